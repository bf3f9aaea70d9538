// SpinLock: a leaf lock for critical sections of a few hundred instructions that never wait for
// anything but the device.
//
// Thread contract: any thread. Not recursive. It spins with a pause, then yields the core, because
// ranks and threads may be oversubscribed and the holder may not be running.
#pragma once

#include <sched.h>

#include <atomic>

namespace mend::ops {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SpinLock {
 public:
  void lock() {
    if (locked_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      lock_slow();
    }
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpinsBeforeYield = 128;

  [[gnu::cold, gnu::noinline]] void lock_slow() {
    int spins = 0;
    do {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins < kSpinsBeforeYield) {
          cpu_pause();
        } else {
          sched_yield();
        }
      }
    } while (locked_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> locked_{false};
};

}  // namespace mend::ops
