// The clock of the connection layer's drivers. The state machines never read it: they are handed
// `now` (TimeNs, backoff.h).
#pragma once

#include "plugin/conn/backoff.h"
#include "plugin/verbs/clock.h"

namespace mend::conn {

inline TimeNs monotonic_now() { return static_cast<TimeNs>(process_clock().now().count()); }

}  // namespace mend::conn
