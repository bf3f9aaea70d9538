// Exported calls that concern devices and what they tell: lists, opening, queries, GIDs, P_Keys.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "softhca/api/library.h"
#include "softhca/engine/context.h"
#include "softhca/engine/gid_table.h"

#undef ibv_query_port
#undef ibv_get_device_list

using softhca::Context;
using softhca::context_of;
using softhca::Device;
using softhca::GidConf;
using softhca::GidTable;
using softhca::PortConf;

namespace {

const PortConf* port_of(ibv_context* context, unsigned port) noexcept {
  const auto& ports = context_of(context)->conf->ports;
  return port >= 1 && port <= ports.size() ? &ports[port - 1] : nullptr;
}

GidTable gids_of(ibv_context* context, unsigned port) noexcept {
  return GidTable(*context_of(context), port);
}

// RoCE GIDs belong to a network interface; ours to the loopback, which every host has.
void fill_entry(const GidConf& gid, unsigned port, unsigned index, bool ethernet,
                ibv_gid_entry* entry) noexcept {
  std::memset(entry, 0, sizeof(*entry));
  std::memcpy(entry->gid.raw, gid.raw.data(), sizeof(entry->gid.raw));
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = gid.type;
  entry->ndev_ifindex = ethernet ? 1 : 0;
}

}  // namespace

ibv_device** ibv_get_device_list(int* count) {
  const auto* devices = softhca::Library::get().devices();
  if (count != nullptr) *count = 0;
  if (devices == nullptr) return nullptr;
  // sizeof(void*): a list of pointers, which the tool would take for a list of devices.
  auto** list = static_cast<ibv_device**>(std::calloc(devices->size() + 1, sizeof(void*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  for (std::size_t i = 0; i < devices->size(); ++i) list[i] = &(*devices)[i]->dev;
  if (count != nullptr) *count = static_cast<int>(devices->size());
  return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(static_cast<void*>(list)); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(reinterpret_cast<Device*>(device)->index);
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return __builtin_bswap64(reinterpret_cast<Device*>(device)->conf->node_guid);
}

ibv_context* ibv_open_device(ibv_device* device) {
  Context* ctx = softhca::Library::get().open(*reinterpret_cast<Device*>(device));
  return ctx == nullptr ? nullptr : &ctx->vctx.context;
}

int ibv_close_device(ibv_context* context) { return softhca::close_context(context_of(context)); }

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return softhca::query_device(*context_of(context), attr);
}

int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  // The old form ends before port_cap_flags2.
  ibv_port_attr full{};
  const int rc = softhca::query_port(*context_of(context), port, &full);
  if (rc == 0) {
    std::memcpy(static_cast<void*>(attr), &full, offsetof(ibv_port_attr, port_cap_flags2));
  }
  return rc;
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  if (port_of(context, port) == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const GidTable table = gids_of(context, port);
  if (index < 0 || static_cast<unsigned>(index) >= table.size()) {
    errno = EINVAL;
    return -1;
  }
  const GidConf* found = table.at(static_cast<unsigned>(index));
  const GidConf none;  // an empty place reads as zero
  std::memcpy(gid->raw, (found != nullptr ? *found : none).raw.data(), sizeof(gid->raw));
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t size) {
  const PortConf* conf = port_of(context, port);
  if (conf == nullptr || flags != 0 || size < sizeof(*entry)) return EINVAL;
  const GidTable table = gids_of(context, port);
  const GidConf* gid = table.at(index);
  if (gid == nullptr) return ENODATA;
  fill_entry(*gid, port, index, conf->link_layer == IBV_LINK_LAYER_ETHERNET, entry);
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max,
                             uint32_t flags, size_t size) {
  if (flags != 0 || size < sizeof(*entries)) return -EINVAL;
  size_t used = 0;
  const auto& ports = context_of(context)->conf->ports;
  for (unsigned p = 1; p <= ports.size(); ++p) {
    const PortConf& conf = ports[p - 1];
    const GidTable table = gids_of(context, p);
    for (unsigned i = 0; i < table.size() && used < max; ++i) {
      if (table.at(i) == nullptr) continue;
      auto* slot = reinterpret_cast<ibv_gid_entry*>(reinterpret_cast<char*>(entries) + used * size);
      fill_entry(*table.at(i), p, i, conf.link_layer == IBV_LINK_LAYER_ETHERNET, slot);
      ++used;
    }
  }
  return static_cast<ssize_t>(used);
}

// Not in a public header; ibv_devinfo -v uses it. 0: InfiniBand or RoCE v1, 1: RoCE v2.
extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type);
extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
  const GidConf* gid =
      port_of(context, port) != nullptr ? gids_of(context, port).at(index) : nullptr;
  if (gid == nullptr) {
    errno = EINVAL;
    return -1;
  }
  *type = gid->type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  const PortConf* conf = port_of(context, port);
  if (conf == nullptr || index < 0 || static_cast<std::size_t>(index) >= conf->pkeys.size()) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htons(conf->pkeys[static_cast<std::size_t>(index)]);
  return 0;
}

int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  const PortConf* conf = port_of(context, port);
  if (conf == nullptr) return -1;
  const auto at = std::find(conf->pkeys.begin(), conf->pkeys.end(), ntohs(pkey));
  if (at != conf->pkeys.end()) return static_cast<int>(at - conf->pkeys.begin());
  errno = ENOENT;
  return -1;
}

// Declared in libibverbs' driver header only, as the next one.
extern "C" const char* ibv_get_sysfs_path(void);
extern "C" const char* ibv_get_sysfs_path(void) {
  const char* path = std::getenv("SYSFS_PATH");
  return path != nullptr && *path != '\0' ? path : "/sys";
}

extern "C" int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
extern "C" int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  char path[512];
  std::snprintf(path, sizeof(path), "%s/%s", dir, file);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t n = ::read(fd, buf, size);
  ::close(fd);
  if (n <= 0) return static_cast<int>(n);
  auto used = static_cast<size_t>(n);
  if (buf[used - 1] == '\n') --used;
  if (used < size) buf[used] = '\0';
  return static_cast<int>(used);
}

int ibv_fork_init(void) { return 0; }
ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
// Not in a public header either.
extern "C" int ibv_dontfork_range(void* base, size_t size);
extern "C" int ibv_dontfork_range(void*, size_t) { return 0; }
extern "C" int ibv_dofork_range(void* base, size_t size);
extern "C" int ibv_dofork_range(void*, size_t) { return 0; }

ibv_context* ibv_import_device(int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
