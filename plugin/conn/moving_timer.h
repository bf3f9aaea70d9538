// A time that moves, on an executor whose timers cannot be taken back: a new timer is armed only
// for a time before all that are pending, so that neither a machine that moves its time with every
// step nor a storm of flaps leaves timers behind.
//
// Thread contract: the owner's thread.
// Invariant: while a time is wanted, a timer at or before it is pending.
#pragma once

#include <vector>

#include "plugin/conn/clock.h"

namespace mend::conn {

class MovingTimer {
 public:
  // The time is `at` from now on (kNever: none). True: the caller arms a timer for it, whose task
  // calls fired(at).
  bool move(TimeNs at) {
    wanted_ = at;
    if (at == kNever || (!pending_.empty() && pending_.back() <= at)) return false;
    pending_.push_back(at);
    return true;
  }
  // A timer has come. True: the time too, and none is wanted any more. Else the caller arms a timer
  // if move(wanted()) says so.
  bool fired(TimeNs at, TimeNs now) {
    std::erase(pending_, at);
    if (now < wanted_) return false;
    wanted_ = kNever;
    return true;
  }
  TimeNs wanted() const { return wanted_; }

 private:
  TimeNs wanted_ = kNever;
  std::vector<TimeNs> pending_;  // latest first
};

}  // namespace mend::conn
