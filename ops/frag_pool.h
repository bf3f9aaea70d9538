// FragPool: registered fragments of one size class, from a ucs memory pool that grows chunk by
// chunk.
//
// Thread contract: get() and put() from any thread (one leaf spin lock); get() may register memory,
// so it is never called with a channel lock held. Destroyed only when every Frag came back or
// nothing uses the strays any more. Invariant: a Frag leaves with held == kHoldUser and returns
// with held == 0 (I5).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/memory_hooks.h"
#include "ops/request.h"
#include "ops/spin_lock.h"
#include "plugin/verbs/error.h"

namespace mend::ops {

struct FragPoolConfig {
  const char* name = "mend_frag";
  std::uint32_t payload_bytes = 1024;  // capacity of each Frag
  std::uint32_t frags_per_chunk = 64;
  std::uint32_t max_frags = 0xffffffffu;
};

struct FragPoolCounters {
  std::uint64_t live = 0;    // Frags out of the pool
  std::uint64_t chunks = 0;  // registered chunks
  std::uint64_t bytes = 0;   // registered bytes
};

class FragPool {
 public:
  static Result<std::unique_ptr<FragPool>> create(const FragPoolConfig& config,
                                                  const MemoryHooks& hooks);
  ~FragPool();
  FragPool(const FragPool&) = delete;
  FragPool& operator=(const FragPool&) = delete;

  Frag* get() {  // nullptr: memory or registration exhausted
    lock_.lock();
    Frag* frag = free_;
    if (frag != nullptr) [[likely]] {
      free_ = reinterpret_cast<Frag*>(frag->due_next);
    } else {
      frag = refill();
    }
    if (frag != nullptr) [[likely]] {
      frag->held.store(kHoldUser, std::memory_order_relaxed);
    }
    lock_.unlock();
    return frag;
  }
  void put(Frag& frag) {  // all holds are gone
    lock_.lock();
    frag.due_next = reinterpret_cast<DueLink>(free_);
    free_ = &frag;
    lock_.unlock();
  }
  std::uint32_t capacity() const { return config_.payload_bytes; }
  FragPoolCounters counters() const;

 private:
  struct Ucs;  // the ucs pool and its callbacks
  FragPool(const FragPoolConfig& config, const MemoryHooks& hooks);
  [[gnu::cold, gnu::noinline]] Frag* refill();

  mutable SpinLock lock_;
  // Under lock_, as is what follows: Frags in front of the ucs pool, hottest first.
  Frag* free_ = nullptr;
  std::uint64_t taken_ = 0;  // from the ucs pool, ever
  std::uint64_t chunks_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t refused_ = 0;
  bool exhausted_ = false;  // the last attempt to grow failed
  FragPoolConfig config_;
  MemoryHooks hooks_;
  std::unique_ptr<Ucs> ucs_;
};

// Takes away one or more of the holds; the last one gone returns the Frag to its pool. Any thread.
inline void release_hold(Frag& frag, std::uint8_t holds) {
  const auto before =
      frag.held.fetch_and(static_cast<std::uint8_t>(~holds), std::memory_order_acq_rel);
  if ((before & static_cast<std::uint8_t>(~holds)) == 0) {
    frag.pool->put(frag);
  }
}

}  // namespace mend::ops
