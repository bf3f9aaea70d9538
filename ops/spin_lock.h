// SpinLock: a leaf lock for critical sections of a few hundred instructions that never wait for
// anything but the device.
//
// Thread contract: any thread. Not recursive. It spins with a pause, then yields the core, because
// ranks and threads may be oversubscribed and the holder may not be running, then sleeps: a thread
// that has run little is chosen again and again before a holder on the same core, and would burn
// the rest of its time slice, milliseconds.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
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
  static constexpr int kYieldsBeforeSleep = 16;
  static constexpr long kSleepNs = 20000;
  static constexpr int kDoublings = 5;  // of the sleep: to wake up often slows the holder down

  static void pause(int round) {
    if (round < kSpinsBeforeYield) {
      cpu_pause();
    } else if (round < kSpinsBeforeYield + kYieldsBeforeSleep) {
      sched_yield();
    } else {
      const int slept = round - kSpinsBeforeYield - kYieldsBeforeSleep;
      const timespec time{0, kSleepNs << std::min(slept, kDoublings)};
      nanosleep(&time, nullptr);
    }
  }

  [[gnu::cold, gnu::noinline]] void lock_slow() {
    int round = 0;
    do {
      while (locked_.load(std::memory_order_relaxed)) {
        pause(round++);
      }
    } while (locked_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> locked_{false};
};

}  // namespace mend::ops
