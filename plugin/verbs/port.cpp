// The port half of plugin/verbs/device.h: state, speed, GID table, partition keys.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "plugin/verbs/device.h"

namespace mend::verbs {
namespace {

// ibv_port_attr::flags; the public header of rdma-core names it only in the ioctl headers.
constexpr std::uint8_t kGrhRequired = 1;

// The library's extended call fills the whole structure; the exported symbol only the prefix it
// knows.
int query_port_attr(const Api& api, ibv_context* context, std::uint8_t port, ibv_port_attr& attr) {
  std::memset(&attr, 0, sizeof(attr));
  // verbs_get_ctx_op of verbs.h, written out: its macro is no ISO C++.
  verbs_context* extended = verbs_get_ctx(context);
  if (extended != nullptr &&
      extended->sz >= sizeof(*extended) - offsetof(verbs_context, query_port) &&
      extended->query_port != nullptr) {
    return extended->query_port(context, port, &attr, sizeof(attr));
  }
  return api.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&attr));
}

GidType gid_type(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return GidType::Ib;
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::RoceV1;
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::RoceV2;
    default:
      return GidType::Unknown;
  }
}

bool read_gid(const Api& api, ibv_context* context, const PortInfo& port, std::uint32_t index,
              GidEntry& out) {
  out = GidEntry{};
  out.index = index;
  if (api.query_gid_ex != nullptr) {
    ibv_gid_entry entry{};
    const int rc = api.query_gid_ex(context, port.port, index, &entry, 0, sizeof(entry));
    if (rc == 0) {
      std::memcpy(out.gid.data(), entry.gid.raw, out.gid.size());
      out.type = gid_type(entry.gid_type);
      return out.gid != Gid{};
    }
    // ENODATA is an empty entry; anything else (an old kernel) leaves the plain call.
    if ((rc > 0 ? rc : errno) == ENODATA) return false;
  }
  ibv_gid gid{};
  if (api.query_gid(context, port.port, static_cast<int>(index), &gid) != 0) return false;
  std::memcpy(out.gid.data(), gid.raw, out.gid.size());
  out.type = port.link == LinkLayer::Infiniband ? GidType::Ib : GidType::Unknown;
  return out.gid != Gid{};
}

}  // namespace

Result<PortInfo> query_port(const Api& api, ibv_context* context, std::uint8_t port) {
  ibv_port_attr attr;
  if (const int rc = query_port_attr(api, context, port, attr); rc != 0) {
    const int code = rc > 0 ? rc : errno;
    return fail(code, "query_port",
                fmt::format("query_port {}:{}: {}", api.get_device_name(context->device), port,
                            std::strerror(code)));
  }
  PortInfo info;
  info.port = port;
  info.state = attr.state;
  info.active = attr.state == IBV_PORT_ACTIVE;
  info.link =
      attr.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::Ethernet : LinkLayer::Infiniband;
  info.active_mtu = attr.active_mtu;
  info.lid = attr.lid;
  info.sm_lid = attr.sm_lid;
  info.lid_mask_bits = attr.lmc;
  info.grh_required = info.link == LinkLayer::Ethernet || (attr.flags & kGrhRequired) != 0;
  info.max_message = attr.max_msg_sz;
  info.speed_mbps = port_speed_mbps(attr.active_width, attr.active_speed);
  info.gids = attr.gid_tbl_len > 0 ? static_cast<std::uint32_t>(attr.gid_tbl_len) : 0;
  info.pkeys = attr.pkey_tbl_len;
  return info;
}

std::vector<GidEntry> read_gid_table(const Api& api, ibv_context* context, const PortInfo& port) {
  std::vector<GidEntry> table;
  GidEntry entry;
  for (std::uint32_t index = 0; index < port.gids; ++index) {
    if (read_gid(api, context, port, index, entry)) table.push_back(entry);
  }
  return table;
}

Result<PkeyChoice> find_pkey(const Api& api, ibv_context* context, const PortInfo& port,
                             int wanted) {
  constexpr std::uint16_t kKeyBits = 0x7fff;
  for (std::uint32_t index = 0; index < port.pkeys; ++index) {
    __be16 raw = 0;
    if (api.query_pkey(context, port.port, static_cast<int>(index), &raw) != 0) continue;
    const std::uint16_t value = ntohs(raw);
    const auto key = static_cast<std::uint16_t>(value & kKeyBits);
    const bool match = wanted == 0 ? key != 0 : key == (static_cast<unsigned>(wanted) & kKeyBits);
    if (match) return PkeyChoice{static_cast<std::uint16_t>(index), value};
  }
  const char* name = api.get_device_name(context->device);
  if (wanted == 0) {
    return fail(ENOENT, "pkey", fmt::format("{}:{} has no usable partition key", name, port.port));
  }
  return fail(
      EINVAL, "btl_mend_pkey",
      fmt::format("partition key {:#06x} is not in the table of {}:{}", wanted, name, port.port));
}

std::uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << static_cast<unsigned>(mtu) : 0;
}

Result<ibv_mtu> mtu_from_bytes(int bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (bytes == static_cast<int>(mtu_bytes(mtu))) return mtu;
  }
  return fail(EINVAL, "mtu",
              fmt::format("MTU {} is not one of 256, 512, 1024, 2048, 4096 bytes", bytes));
}

std::uint32_t port_speed_mbps(std::uint8_t active_width, std::uint8_t active_speed) {
  std::uint32_t lanes = 0;
  switch (active_width) {
    case 1:
      lanes = 1;
      break;
    case 2:
      lanes = 4;
      break;
    case 4:
      lanes = 8;
      break;
    case 8:
      lanes = 12;
      break;
    case 16:
      lanes = 2;
      break;
    default:
      return 0;
  }
  switch (active_speed) {
    case 1:  // SDR, 8b/10b
      return lanes * 2000;
    case 2:  // DDR
      return lanes * 4000;
    case 4:  // QDR
      return lanes * 8000;
    case 8:  // FDR10, 64b/66b
      return lanes * 10000;
    case 16:  // FDR
      return lanes * 13636;
    case 32:  // EDR
      return lanes * 25000;
    case 64:  // HDR
      return lanes * 50000;
    case 128:  // NDR
      return lanes * 100000;
    default:
      return 0;
  }
}

const char* port_state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "unknown";
}

}  // namespace mend::verbs
