// How late a thread of this process got its processor: what a test with a time limit needs to know
// before it calls the product late. It tells of the machine, not of each thread.
//
// Thread contract: one owner; its own thread measures.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace mend::test {

class StallGauge {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBeat{5};

  StallGauge() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto slept = Clock::now();
        std::this_thread::sleep_for(kBeat);
        const auto late =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - slept - kBeat);
        if (late.count() > longest_ms_) longest_ms_ = late.count();
      }
    });
  }

  // Of a sleep of 5 ms, since the last call.
  std::chrono::milliseconds longest() { return std::chrono::milliseconds(longest_ms_.exchange(0)); }

 private:
  std::atomic<std::chrono::milliseconds::rep> longest_ms_{0};
  std::jthread thread_;
};

}  // namespace mend::test
