// Clock: time, and waiting for it, as everything below plugin/mca sees them. The machine's unless a
// simulation has put its own in place, whose time passes only when the simulation says so.
//
// Thread contract: process_clock() from any thread; replace_clock() while no transport exists.
// Nothing on the path of a message reads it.
#pragma once

#include <chrono>

namespace mend {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds now() const = 0;  // monotonic
  // Lets about this much time pass; 0 lets others run. Only where blocking is allowed.
  virtual void pause(std::chrono::nanoseconds time) const = 0;
};

const Clock& process_clock();
void replace_clock(const Clock* clock);  // null: the machine's; outlives what uses it

}  // namespace mend
