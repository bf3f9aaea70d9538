// Chaos: one random schedule from a seed: how many processes, which traffic, which kinds of faults,
// how often, when they end. After that everything must come to its end and every promise hold.
//
// Thread contract: one thread. Invariant: the seed (and the mask of kinds) decides everything.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/sim/world.h"

namespace mend::sim {

enum class Kind : std::uint8_t {
  LoseRequest,   // a request is not executed, the queue pair breaks
  LoseAck,       // it is executed, the queue pair breaks all the same
  RefusePost,    // ibv_post_send returns EIO
  KillOne,       // a queue pair goes to ERR, silently
  KillBoth,      // both ends do
  QpFatal,       // with an asynchronous event
  FalseAlarm,    // the event alone
  CtlLost,       // control datagrams: lost
  CtlDoubled,    // twice
  CtlLate,       // reordered
  CtlEpochLate,  // a second copy, long after
  LateCqe,       // completions come late
  NoLastWqe,     // the device never raises LAST_WQE_REACHED
  CreateFails,   // create_qp and create_ah fail
  ModifyFails,   // modify_qp to INIT, RTR or RTS fails
  PortFlap,      // the port goes down and comes back
  Nap,           // an application does not call into mend
  PsnWrap,       // packet sequence numbers start just before their end
  SeqWrap,       // so do the sequence numbers of messages
  // What the device itself does (docs/softhca.md, fault schedules).
  Ghost,      // a lost request reaches the old queue pair number later
  DropAck,    // requests are executed unseen and the retries run out in their own time
  NoCqe,      // a request never completes
  LateFetch,  // payload is read, and the request executed, later
  LatePlace,  // a write completes before its bytes arrive
  LateFlush,  // LAST_WQE_REACHED comes before the flushed completions
  Rnr,        // the responder is not ready
  ReuseQpn,   // queue pair numbers come back at once
  Count
};
constexpr unsigned kKinds = static_cast<unsigned>(Kind::Count);
constexpr std::uint32_t bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }
const char* to_string(Kind kind);

struct Outcome {
  std::string complaints;  // empty: all is well
  std::uint64_t faults = 0;
  std::array<std::uint64_t, kKinds> hits{};
  std::int64_t recoveries = 0;
  std::int64_t replayed = 0;
  std::uint64_t put_repeats = 0;
  std::uint64_t executed = 0;
  TimeNs time = 0;
};

struct Plan {
  std::size_t nodes = 2;
  std::uint32_t kinds = 0;  // bits of Kind
  unsigned faults = 3;      // how many may happen
  unsigned operations = 20;
  TimeNs pause = 0;         // longest pause between two operations
  bool from_start = false;  // faults already while the first connection is made
};
// Which kinds a seed uses, and the rest of its plan. `allowed` masks the kinds.
Plan plan_of(std::uint64_t seed, std::uint32_t allowed);

Outcome run_chaos(std::uint64_t seed, const Plan& plan);

}  // namespace mend::sim
