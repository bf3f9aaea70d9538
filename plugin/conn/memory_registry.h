// MemoryRegistry: registers memory with every open protection domain at once, so that a region (or
// a chunk of fragments) has keys for every rail and an operation can move to another rail without a
// new registration. It knows every region by number, so that one that a device refuses can be
// registered once more (docs/protocol.md 1.9, local fault and remote access).
//
// Thread contract: any thread; registration may block on the driver. Counters are exact at any
// quiet moment. Invariants: either every domain has the region or none has; a region is renewed at
// most once, and its first keys stay valid until it is removed, for others still use them; live
// regions == 0 at the end (the transport checks, and reports it by name).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
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

  struct Keys {
    ops::RemoteKeys remote;
    const ops::LocalKeys* local = nullptr;  // valid until the region is removed
  };
  // The present keys of region reg_id. A caller that has seen them fail (generation is theirs)
  // makes the registry register the region once more, the first time. ENOENT: there is no such
  // region.
  Result<Keys> renew(std::uint32_t reg_id, std::uint32_t generation);
  // The same by a local key of one rail that failed.
  Result<Keys> renew(RailId rail, Lkey failed);

  std::uint64_t live_max() const { return live_max_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  std::uint64_t live() const { return live_.load(std::memory_order_relaxed); }

 private:
  struct Known {
    void* base = nullptr;
    std::size_t bytes = 0;
    unsigned access = 0;
    ops::LocalKeys first;  // as the owner has them
    ops::LocalKeys local;  // present
    ops::RemoteKeys remote;
    std::vector<ibv_mr*> renewed;  // one per distinct domain, once it was renewed
  };
  using Handles = std::vector<verbs::Mr>;

  Result<Handles> register_all(void* base, std::size_t bytes, unsigned access);
  void read_keys(std::span<ibv_mr* const> mrs, ops::LocalKeys& local,
                 ops::RemoteKeys& remote) const;
  Result<Keys> renew_locked(Known& known, std::uint32_t generation);
  void release(ibv_mr* mr) { verbs::Mr(mr, api_.dereg_mr).reset(); }

  const verbs::Api& api_;
  std::vector<ibv_pd*> pds_;              // distinct
  std::vector<std::uint8_t> pd_of_rail_;  // index into pds_
  std::atomic<std::uint32_t> next_id_{1};
  std::atomic<std::uint64_t> live_{0}, live_max_{0};    // memory regions registered
  std::atomic<std::uint64_t> bytes_{0}, bytes_max_{0};  // their bytes
  std::mutex mutex_;  // guards known_; held over the registration of a renewal, which is rare
  std::map<std::uint32_t, Known> known_;  // by reg_id
};

}  // namespace mend::conn
