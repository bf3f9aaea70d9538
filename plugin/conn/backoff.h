// Back-off of retransmissions and retries (docs/protocol.md 1.10): attempt 0 at once, attempt k >=
// 1 after min(lowest * 2^(k-1), highest) +-25 %. Pure: the caller owns the clock and the random
// state.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mend::conn {

// A monotonic clock reading in nanoseconds. The state machines never read a clock; they are told.
using TimeNs = std::uint64_t;
constexpr TimeNs kNever = ~TimeNs{0};
constexpr TimeNs kMillisecond = 1'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

// now + delay without wrapping past kNever.
constexpr TimeNs after(TimeNs now, TimeNs delay) {
  return now > kNever - delay ? kNever : now + delay;
}

// splitmix64: one 64-bit word of state, good enough to keep a thousand peers from retrying in step.
constexpr std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct BackoffLimits {
  TimeNs lowest = 10 * kMillisecond;
  TimeNs highest = 2 * kSecond;
};

// Delay before attempt `attempt`, without jitter.
constexpr TimeNs backoff_base(const BackoffLimits& limits, std::uint32_t attempt) {
  if (attempt == 0) return 0;
  const std::uint32_t doublings = std::min<std::uint32_t>(attempt - 1, 32);
  TimeNs delay = std::min(limits.lowest, limits.highest);
  for (std::uint32_t i = 0; i < doublings && delay < limits.highest; ++i) delay *= 2;
  return std::min(delay, limits.highest);
}

// The same with jitter: evenly spread over [3/4, 5/4) of the base.
constexpr TimeNs backoff_delay(const BackoffLimits& limits, std::uint32_t attempt,
                               std::uint64_t& random) {
  const TimeNs base = backoff_base(limits, attempt);
  const TimeNs half = base / 2;
  return half == 0 ? base : base - base / 4 + next_random(random) % half;
}

}  // namespace mend::conn
