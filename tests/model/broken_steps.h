// State machines with one transition broken by hand, as wrappers around the real step(): the
// conformance test must notice each. And the transitions that the schedules must take.
#pragma once

#include <vector>

#include "plugin/conn/fsm.h"

namespace mend::conn::model {

struct BrokenStep {
  const char* name;
  Outcome (*step)(Fsm&, const Event&, TimeNs, Actions&);
};

std::vector<BrokenStep> broken_steps();

inline constexpr const char* kTransitions[] = {
    // the leader
    "leader Closed --submit--> Requesting",
    "leader Closed --NUDGE--> Requesting",
    "leader Requesting --REP--> Replaying",
    "leader Requesting --REP--> Active",
    "leader Requesting --NUDGE--> Fencing",
    "leader Requesting --suspect--> Fencing",
    "leader Replaying --data--> Active",
    "leader Replaying --NUDGE--> Fencing",
    "leader Replaying --lost--> Fencing",
    "leader Replaying --suspect--> Fencing",
    "leader Active --NUDGE--> Fencing",
    "leader Active --lost--> Fencing",
    "leader Active --suspect--> Fencing",
    "leader Fencing --fence--> Requesting",
    // the follower
    "follower Closed --submit--> Nudging",
    "follower Closed --REQ--> Prepared",
    "follower Nudging --REQ--> Prepared",
    "follower Prepared --COMMIT--> Replaying",
    "follower Prepared --COMMIT--> Active",
    "follower Prepared --receive--> Replaying",
    "follower Prepared --REQ--> Fencing",
    "follower Prepared --suspect--> Fencing",
    "follower Replaying --data--> Active",
    "follower Replaying --REQ--> Fencing",
    "follower Replaying --lost--> Fencing",
    "follower Replaying --suspect--> Fencing",
    "follower Active --REQ--> Fencing",
    "follower Active --lost--> Fencing",
    "follower Active --suspect--> Fencing",
    "follower Fencing --fence--> Prepared",
    "follower Fencing --fence--> Nudging",
    // the end
    "leader Active --close--> Closing",
    "leader Replaying --close--> Replaying",
    "leader Active --flushed--> Closing",
    "leader Active --BYE--> Closing",
    "leader Closing --BYE--> Closing",
    "leader Closing --BYE_ACK--> Closing",
    "leader Closing --waited--> Closing",
    "leader Closing --fence--> Closed",
    "leader Failed --fence--> Failed",
    "leader Replaying --deadline--> Failed",
    "follower Active --close--> Closing",
    "follower Replaying --close--> Replaying",
    "follower Active --flushed--> Closing",
    "follower Active --BYE--> Closing",
    "follower Closing --BYE--> Closing",
    "follower Closing --BYE_ACK--> Closing",
    "follower Closing --waited--> Closing",
    "follower Closing --fence--> Closed",
    "follower Failed --fence--> Failed",
    "follower Replaying --deadline--> Failed",
    "leader Requesting --deadline--> Failed",
    "leader Requesting --REJ--> Failed",
    "follower Nudging --deadline--> Failed",
    "follower Nudging --REJ--> Failed",
    "follower Prepared --deadline--> Failed",
    "follower Nudging --BYE--> Closed",
};

}  // namespace mend::conn::model
