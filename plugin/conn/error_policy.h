// What mend does about every completion status and every asynchronous event: the one table of
// faults (docs/protocol.md 1.9 shows the same, a test compares them). What is not clearly a fault
// of a buffer, a key or the device counts as a broken link: a recovery that was not needed costs
// time only, a wrong "not repairable" costs the job.
//
// Thread contract: pure, any thread. Invariant: total; a value that no header knows yet is
// LinkLike.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>

namespace mend::conn {

enum class FaultClass : std::uint8_t {
  Ignore,           // nothing is wrong, or somebody else looks at it
  LinkLike,         // recreate and replay, for as long as max_outage allows
  PeerSlow,         // the peer had no receive buffer for too long: recreate, replay, count
  LocalFault,       // our memory: register it once more, replay once, then give up
  RemoteAccess,     // the peer's memory: refresh its keys, replay once, then give up
  RemoteOperation,  // the peer's queue pair failed: the handshake settles what it executed, replay
  PathChange,       // addresses may have moved: look the port up again, fence if ours moved
  DeviceFatal,      // everything on that device (or of its shared queues) is gone
  NotRepairable,    // would come back on every new queue pair: give up and name it
};
const char* to_string(FaultClass fault);

struct StatusRule {
  ibv_wc_status status;
  FaultClass fault;
};
struct EventRule {
  ibv_event_type event;
  FaultClass fault;
};
std::span<const StatusRule> status_rules();  // in the order of the enumeration, complete
std::span<const EventRule> event_rules();

FaultClass policy_of(ibv_wc_status status);
FaultClass policy_of(ibv_event_type event);

// Rows of the table in docs/protocol.md, one line each.
std::string policy_rows();

}  // namespace mend::conn
