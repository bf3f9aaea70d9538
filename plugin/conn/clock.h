// The clock of the connection layer's drivers. The state machines never read it: they are handed
// `now` (TimeNs, backoff.h).
#pragma once

#include <chrono>

#include "plugin/conn/backoff.h"

namespace mend::conn {

inline TimeNs monotonic_now() {
  return static_cast<TimeNs>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

}  // namespace mend::conn
