// A process-private lock for the short critical sections of the data path: spins, then yields the
// processor (with fewer cores than threads the holder may need it). Satisfies Lockable.
#pragma once

#include <sched.h>

#include <atomic>

namespace softhca {

inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The line will be written soon: bring it here, exclusively, while other work goes on.
inline void prefetch_for_write(const void* p) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

class SpinLock {
 public:
  void lock() noexcept {
    if (!held_.exchange(true, std::memory_order_acquire)) [[likely]]
      return;
    lock_slow();
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void lock_slow() noexcept {
    for (unsigned spins = 0;; ++spins) {
      if (!held_.load(std::memory_order_relaxed) &&
          !held_.exchange(true, std::memory_order_acquire)) {
        return;
      }
      if (spins < 200) {
        cpu_relax();
      } else {
        ::sched_yield();
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace softhca
