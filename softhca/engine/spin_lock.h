// How the data path waits, and its process-private lock for short critical sections (Lockable).
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <ctime>

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

// One wait for somebody who is about to let go: spins, then yields the processor (with fewer cores
// than threads the holder may need it), then sleeps: a thread that has run little is chosen again
// and again before a holder on the same core, and would burn the rest of its time slice,
// milliseconds, with every yield. Of one thread.
class Backoff {
 public:
  void pause() noexcept {
    if (round_ < kSpins) {
      cpu_relax();
    } else if (round_ < kSpins + kYields) {
      ::sched_yield();
    } else {
      const timespec time{0, kSleepNs << std::min(round_ - kSpins - kYields, kDoublings)};
      ::nanosleep(&time, nullptr);
    }
    ++round_;
  }
  // How often it slept: from the first time on there is time to look why the wait is long. Unlike
  // a clock it does not go on while the whole job is stopped.
  unsigned slept() const noexcept { return round_ - std::min(round_, kSpins + kYields); }

 private:
  static constexpr unsigned kSpins = 200;
  static constexpr unsigned kYields = 16;
  static constexpr long kSleepNs = 20'000;
  static constexpr unsigned kDoublings = 5;  // of the sleep: to wake up often slows the holder down

  unsigned round_ = 0;
};

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
    for (Backoff backoff;; backoff.pause()) {
      if (!held_.load(std::memory_order_relaxed) &&
          !held_.exchange(true, std::memory_order_acquire)) {
        return;
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace softhca
