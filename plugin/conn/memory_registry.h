// MemoryRegistry: registers memory with every open protection domain at once, so that a region (or
// a chunk of fragments) has keys for every rail and an operation can move to another rail without a
// new registration.
//
// Thread contract: any thread; registration may block on the driver. Counters are exact at any
// quiet moment. Invariants: either every domain has the region or none has; live regions == 0 when
// the registry is destroyed (checked, reported by name).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/request.h"
#include "plugin/conn/transport.h"
#include "plugin/verbs/api.h"
#include "plugin/verbs/unique.h"

namespace mend::conn {

class MemoryRegistry {
 public:
  // pd_of_rail[i] is the protection domain of rail i; rails of one device share theirs.
  MemoryRegistry(const verbs::Api& api, const std::vector<ibv_pd*>& pd_of_rail);
  ~MemoryRegistry();
  MemoryRegistry(const MemoryRegistry&) = delete;
  MemoryRegistry& operator=(const MemoryRegistry&) = delete;

  // access: conn::Access bits. On failure out is empty and the error names object, size, limit and
  // what to do.
  Result<void> add(void* base, std::size_t bytes, unsigned access, Region& out);
  void remove(Region& region);  // no-op on an empty region

  std::uint64_t live_max() const { return live_max_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  std::uint64_t live() const { return live_.load(std::memory_order_relaxed); }

 private:
  const verbs::Api& api_;
  std::vector<ibv_pd*> pds_;              // distinct
  std::vector<std::uint8_t> pd_of_rail_;  // index into pds_
  std::atomic<std::uint32_t> next_id_{1};
  std::atomic<std::uint64_t> live_{0}, live_max_{0};    // memory regions registered
  std::atomic<std::uint64_t> bytes_{0}, bytes_max_{0};  // their bytes
};

}  // namespace mend::conn
