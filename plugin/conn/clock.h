// Monotonic time of the connection layer's drivers, in nanoseconds. The state machines never read a
// clock: they are handed `now`.
#pragma once

#include <chrono>
#include <cstdint>

namespace mend::conn {

using TimeNs = std::int64_t;
constexpr TimeNs kNever = INT64_MAX;

inline TimeNs monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace mend::conn
