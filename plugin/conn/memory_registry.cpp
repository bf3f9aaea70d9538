#include "plugin/conn/memory_registry.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "plugin/conn/raise_max.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {
namespace {

int verbs_access(unsigned access) {
  int flags = 0;
  if ((access & kLocalWrite) != 0) flags |= IBV_ACCESS_LOCAL_WRITE;
  if ((access & kRemoteRead) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((access & kRemoteWrite) != 0) flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  return flags;
}

}  // namespace

MemoryRegistry::MemoryRegistry(const verbs::Api& api, const std::vector<ibv_pd*>& pd_of_rail)
    : api_(api) {
  for (ibv_pd* pd : pd_of_rail) {
    auto it = std::find(pds_.begin(), pds_.end(), pd);
    if (it == pds_.end()) it = pds_.insert(pds_.end(), pd);
    pd_of_rail_.push_back(static_cast<std::uint8_t>(it - pds_.begin()));
  }
}

MemoryRegistry::~MemoryRegistry() = default;

Result<MemoryRegistry::Handles> MemoryRegistry::register_all(void* base, std::size_t bytes,
                                                             unsigned access) {
  Handles handles;
  for (ibv_pd* pd : pds_) {
    auto mr = verbs::register_memory(api_, pd, base, bytes, verbs_access(access));
    if (!mr) return tl::unexpected(mr.error());
    handles.push_back(std::move(*mr));
  }
  return handles;
}

void MemoryRegistry::read_keys(std::span<ibv_mr* const> mrs, ops::LocalKeys& local,
                               ops::RemoteKeys& remote) const {
  for (std::size_t rail = 0; rail < pd_of_rail_.size(); ++rail) {
    const ibv_mr* mr = mrs[pd_of_rail_[rail]];
    local.lkey[rail] = Lkey{mr->lkey};
    remote.rkey[rail] = Rkey{mr->rkey};
  }
}

Result<void> MemoryRegistry::add(void* base, std::size_t bytes, unsigned access, Region& out) {
  out = Region{};
  auto handles = register_all(base, bytes, access);
  if (!handles) return tl::unexpected(handles.error());
  std::vector<ibv_mr*> mrs;
  for (verbs::Mr& mr : *handles) mrs.push_back(mr.release());
  std::copy(mrs.begin(), mrs.end(), out.mrs);
  read_keys(mrs, out.local, out.remote);
  out.reg_id = next_id_.fetch_add(1, std::memory_order_relaxed);
  out.remote.reg_id = out.reg_id;
  out.bytes = bytes;
  raise_max(live_max_, live_.fetch_add(pds_.size(), std::memory_order_relaxed) + pds_.size());
  raise_max(bytes_max_, bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  const std::lock_guard guard(mutex_);
  known_[out.reg_id] = Known{base, bytes, access, out.local, out.local, out.remote, {}};
  return {};
}

void MemoryRegistry::remove(Region& region) {
  if (region.reg_id == 0) return;
  std::vector<ibv_mr*> renewed;
  {
    const std::lock_guard guard(mutex_);
    if (const auto it = known_.find(region.reg_id); it != known_.end()) {
      renewed = std::move(it->second.renewed);
      known_.erase(it);
    }
  }
  for (ibv_mr* mr : renewed) release(mr);
  for (std::size_t i = 0; i < pds_.size(); ++i) release(static_cast<ibv_mr*>(region.mrs[i]));
  live_.fetch_sub(pds_.size() + renewed.size(), std::memory_order_relaxed);
  bytes_.fetch_sub(region.bytes, std::memory_order_relaxed);
  region = Region{};
}

Result<MemoryRegistry::Keys> MemoryRegistry::renew_locked(Known& known, std::uint32_t generation) {
  if (known.renewed.empty() && generation >= known.remote.generation) {
    auto handles = register_all(known.base, known.bytes, known.access);
    if (!handles) return tl::unexpected(handles.error());
    for (verbs::Mr& mr : *handles) known.renewed.push_back(mr.release());
    read_keys(known.renewed, known.local, known.remote);
    ++known.remote.generation;
    raise_max(live_max_, live_.fetch_add(pds_.size(), std::memory_order_relaxed) + pds_.size());
  }
  return Keys{known.remote, &known.local};
}

Result<MemoryRegistry::Keys> MemoryRegistry::renew(std::uint32_t reg_id, std::uint32_t generation) {
  const std::lock_guard guard(mutex_);
  const auto it = known_.find(reg_id);
  if (it == known_.end())
    return fail(ENOENT, "region", "region " + std::to_string(reg_id) + " is not registered");
  return renew_locked(it->second, generation);
}

Result<MemoryRegistry::Keys> MemoryRegistry::renew(RailId rail, Lkey failed) {
  const std::lock_guard guard(mutex_);
  for (auto& [id, known] : known_)
    if (known.local.lkey[rail.value] == failed || known.first.lkey[rail.value] == failed)
      return renew_locked(known, known.remote.generation);
  return fail(ENOENT, "region", "no registered region has the local key that failed");
}

}  // namespace mend::conn
