#include "plugin/conn/memory_registry.h"

#include <algorithm>
#include <string>

#include "plugin/conn/raise_max.h"
#include "plugin/verbs/log.h"
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

MemoryRegistry::~MemoryRegistry() {
  if (const auto left = live(); left != 0)
    log(LogLevel::Warn,
        "memory registry closed with " + std::to_string(left) +
            " memory regions still registered: the registration cache was not emptied");
}

Result<void> MemoryRegistry::add(void* base, std::size_t bytes, unsigned access, Region& out) {
  out = Region{};
  const int flags = verbs_access(access);
  for (std::size_t i = 0; i < pds_.size(); ++i) {
    auto mr = verbs::register_memory(api_, pds_[i], base, bytes, flags);
    if (!mr) {
      for (std::size_t k = 0; k < i; ++k)
        verbs::Mr(static_cast<ibv_mr*>(out.mrs[k]), api_.dereg_mr).reset();
      out = Region{};
      return tl::unexpected(mr.error());
    }
    out.mrs[i] = mr->release();
  }
  for (std::size_t rail = 0; rail < pd_of_rail_.size(); ++rail) {
    const auto* mr = static_cast<const ibv_mr*>(out.mrs[pd_of_rail_[rail]]);
    out.local.lkey[rail] = Lkey{mr->lkey};
    out.remote.rkey[rail] = Rkey{mr->rkey};
  }
  out.reg_id = next_id_.fetch_add(1, std::memory_order_relaxed);
  out.bytes = bytes;
  raise_max(live_max_, live_.fetch_add(pds_.size(), std::memory_order_relaxed) + pds_.size());
  raise_max(bytes_max_, bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  return {};
}

void MemoryRegistry::remove(Region& region) {
  if (region.reg_id == 0) return;
  for (std::size_t i = 0; i < pds_.size(); ++i)
    verbs::Mr(static_cast<ibv_mr*>(region.mrs[i]), api_.dereg_mr).reset();
  live_.fetch_sub(pds_.size(), std::memory_order_relaxed);
  bytes_.fetch_sub(region.bytes, std::memory_order_relaxed);
  region = Region{};
}

}  // namespace mend::conn
