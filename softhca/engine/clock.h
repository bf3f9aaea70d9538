// Time as the engine sees it: CLOCK_MONOTONIC in real use, a number that only tests advance in
// deterministic use. now() is callable from any thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace softhca {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now() const noexcept = 0;
  // A virtual clock stands still while the engine waits, so nothing may sleep on it.
  virtual bool is_virtual() const noexcept = 0;
  // A call that takes so long.
  virtual void pass(uint64_t ns) noexcept = 0;
};

class RealClock final : public Clock {
 public:
  uint64_t now() const noexcept override {
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(ts.tv_nsec);
  }
  bool is_virtual() const noexcept override { return false; }
  void pass(uint64_t ns) noexcept override {
    timespec left{static_cast<time_t>(ns / 1'000'000'000U), static_cast<long>(ns % 1'000'000'000U)};
    while (nanosleep(&left, &left) != 0) {
    }
  }
};

class VirtualClock final : public Clock {
 public:
  uint64_t now() const noexcept override { return now_; }
  bool is_virtual() const noexcept override { return true; }
  void pass(uint64_t ns) noexcept override { now_ += ns; }
  void set(uint64_t t) noexcept {
    if (t > now_) now_ = t;
  }

 private:
  uint64_t now_ = 1'000'000'000;
};

}  // namespace softhca
