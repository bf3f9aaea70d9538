// The connection state machine (docs/protocol.md 1.5, 1.9, 1.10): when to fence, which epoch to
// use, what to tell the peer, when to replay, when to give up. One code path for the first connect
// and for every recovery.
//
// Pure: step(fsm, event, now, actions) changes *fsm and appends what the driver has to do. No
// clock, no lock, no verbs, no allocation. The driver serialises step() per connection, then
// executes the actions in order, and feeds results back as later events (never from inside step()).
//
// Invariants: the epoch only grows and only the leader creates one (F2); rx_next is sampled only by
// FenceDone (F1); at most one command (Fence, PrepareQp, ConnectQp) is awaited, older ones are
// recognised by their number and ignored (F3); no action posts on the RC QP before StartReplay,
// except Probe, which comes only after it (F5).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plugin/conn/backoff.h"
#include "plugin/conn/ctl_wire.h"
#include "plugin/verbs/types.h"

namespace mend::conn {

enum class Role : std::uint8_t { Leader, Follower };
// The lower (jobid, vpid) leads.
constexpr Role role_of(std::uint32_t my_jobid, std::uint32_t my_rank, std::uint32_t jobid,
                       std::uint32_t rank) {
  return my_jobid < jobid || (my_jobid == jobid && my_rank < rank) ? Role::Leader : Role::Follower;
}

// --- events ---
enum class EventKind : std::uint8_t {
  // The channel has something to send and no lane (or: traffic after an idle time; harmless in any
  // state).
  Submit,
  // A control message that parse() and accept.h let through; one kind per MsgType (Key: KeyReq or
  // KeyRep, counts as a sign of
  // life only). event.message is set.
  Req,
  Rep,
  Commit,
  Nudge,
  Hb,
  HbAck,
  Busy,
  Bye,
  ByeAck,
  Rej,
  Key,
  // Results of commands. event.work is the number of the command.
  FenceDone,    // QP in RESET (or its device is dead), CQ drained, lane detached; event.sample is
                // what was counted after that
  FenceFailed,  // neither RESET nor a dead device: nothing may be concluded
  QpReady,      // PrepareQp: event.endpoint is my end of it. ConnectQp: done, lane attached.
  QpFailed,  // PrepareQp or ConnectQp did not succeed; what exists of the QP is left to the Fence
             // that follows
  // From the channel or from async events; event.epoch says which QP.
  LinkLost,   // completion with error, receive gap, QP_FATAL, QP_REQ_ERR ...
  RcReceive,  // first RC receive on this epoch
  LogEmpty,   // replay finished: everything submitted before StartReplay is done
  ProbeOk,
  ProbeFailed,
  // Time: the armed time has come; never before it. A timer that was moved since may still fire, in
  // vain. event.traffic is filled in.
  Timer,
  // No rail (any rail again) can carry control messages to this peer. A machine starts as if up.
  PortDown,
  PortUp,
  // del_procs. event.traffic.outstanding: something is still to be flushed, then Flushed (or a
  // peer's BYE, or the deadline) ends it.
  Close,
  Flushed,
  // A fault that no retry can cure; event.reason.
  NotRepairable,
};
constexpr std::size_t kEventKinds = static_cast<std::size_t>(EventKind::NotRepairable) + 1;

enum class GiveUpReason : std::uint8_t {
  None,
  Deadline,      // no connection for max_outage
  PeerRejected,  // the peer sent REJ (it restarted, gave up, or speaks another version)
  DataLoss,      // F7: the peer has received less than it acknowledged
  Corrupt,       // F7: the peer claims more than was ever sent
  FenceFailed,   // the QP could not be brought to RESET
  LocalError,    // NotRepairable from the driver: local protection, length ...
  PeerLost,      // NotRepairable from the driver: the layer above goes on without the peer
  FlushExpired,  // only a warning: closing took longer than max_outage; what was left is lost
};

// Taken after the fence; feeds REQ, REP and rule F7. Before the first fence of a connection it is
// all zero.
struct FenceSample {
  Seq rx_next;   // next seq I expect
  Seq tx_acked;  // acknowledged to me
  Seq tx_next;   // next seq I will assign
};

// What the driver knows about the RC traffic of this connection at a Timer or Close event.
struct Traffic {
  bool received = false;     // RC receives since the last Timer event
  bool outstanding = false;  // log not empty, or WRs not completed
  bool stale_wr = false;     // a signalled WR is older than twice the RC retry window
};

struct Event {
  EventKind kind;
  Epoch epoch;
  std::uint32_t work = 0;
  const CtlMessage* message = nullptr;  // valid during step()
  FenceSample sample;
  Endpoint endpoint;
  Traffic traffic;
  GiveUpReason reason = GiveUpReason::LocalError;
  bool not_met = false;  // Busy: of a process that lives but has not looked us up yet
};
Event message_event(const CtlMessage& message);
inline Event simple_event(EventKind kind, Epoch epoch = {}) {
  Event event{};
  event.kind = kind;
  event.epoch = epoch;
  return event;
}
inline Event work_event(EventKind kind, std::uint32_t work) {
  Event event{};
  event.kind = kind;
  event.work = work;
  return event;
}
inline Event timer_event(const Traffic& traffic) {
  Event event{};
  event.kind = EventKind::Timer;
  event.traffic = traffic;
  return event;
}

// --- actions ---
enum class ActionType : std::uint8_t {
  // Commands: queue them to the worker, which runs those of one connection one at a time, in order;
  // each ends in exactly one result
  // event with the same number (action.work), even when a newer command has been given meanwhile.
  Fence,  // stop posting NOW (before the next action), then the fence procedure on whatever QP this
          // connection has
          // (none: answer FenceDone all the same). -> FenceDone | FenceFailed
  PrepareQp,  // take a fresh QP (new QPN, random PSN) for action.epoch. Leader: INIT. Follower:
              // INIT, RTR with fsm.peer, RTS, lane
              // attached; it may receive, it must not send. -> QpReady(endpoint) | QpFailed
  ConnectQp,  // leader: RTR and RTS with fsm.peer, lane attached. -> QpReady | QpFailed
  // Immediate.
  StartReplay,  // channel.start(action.seq): apply the replay rules with the peer's rx_next, post
                // from now on.
                // A verdict other than Ok comes back as NotRepairable.
  PeerAck,      // channel.on_peer_ack(action.seq), by max()
  SendReq,
  SendRep,
  SendCommit,
  SendNudge,
  SendHb,
  SendHbAck,
  SendBusy,
  SendBye,
  SendByeAck,
  SendRej,   // encode compose(...)
  Probe,     // zero-byte signalled RDMA WRITE on QP(action.epoch) -> ProbeOk | ProbeFailed (a lost
             // one: the machine waits probe_limit)
  ArmTimer,  // the one timer of this connection: a Timer event at action.at (kNever: none)
  Up,        // replayed on action.epoch: Active, or in good order to the end (outage over)
  GiveUp,    // action.reason; once. The state is Failed (FlushExpired: Closing follows)
  Closed,    // fenced and gone; the connection holds no QP. The driver may destroy it when its own
             // side wants that too, but should
             // keep the machine answering BYEs as long as the process lives
};

struct Action {
  ActionType type{};
  Epoch epoch;
  std::uint32_t work = 0;
  Seq seq;
  TimeNs at = kNever;
  GiveUpReason reason = GiveUpReason::None;
};

// A fixed-capacity list; one step never needs more (the exhaustive test checks the highest use).
class Actions {
 public:
  static constexpr std::size_t kCapacity = 12;
  void clear() { size_ = 0; }
  void push(const Action& action) {
    if (size_ < kCapacity)
      items_[size_++] = action;
    else
      overflow_ = true;
  }
  std::size_t size() const { return size_; }
  bool overflow() const { return overflow_; }
  const Action* begin() const { return items_.data(); }
  const Action* end() const { return items_.data() + size_; }
  const Action& operator[](std::size_t i) const { return items_[i]; }

 private:
  std::array<Action, kCapacity> items_{};
  std::size_t size_ = 0;
  bool overflow_ = false;
};

// What became of an event; the driver counts everything but Acted and Heard.
enum class Outcome : std::uint8_t {
  Acted,       // changed something or answered
  Heard,       // a sign of life, nothing else to do
  Stale,       // of an older epoch, or the result of a superseded command
  Ignored,     // has no meaning in this state
  WrongRole,   // a message only the other role may send
  Impossible,  // this role is never in this state
};

// --- the machine ---
struct FsmConfig {
  BackoffLimits backoff;
  TimeNs grace = 200 * kMillisecond;      // after PortUp
  TimeNs max_outage = 120 * kSecond;      // 0: for ever
  TimeNs heartbeat = 500 * kMillisecond;  // 0: no heartbeats
  std::uint32_t heartbeat_misses = 3;
  TimeNs heartbeat_idle = 10 * kSecond;
  TimeNs bye_wait = 1 * kSecond;
  TimeNs probe_limit = 10 * kSecond;  // for a probe of which nothing is heard, success or failure
  std::uint32_t resends_per_epoch =
      8;  // unanswered REQs before a new epoch (and perhaps another rail); 0: never
  std::uint32_t window = 128;  // reported in Progress
};

// What one side offers for an epoch: the contents of its REQ or REP, frozen so that every copy is
// identical.
struct Offer {
  Epoch epoch;
  Epoch data_epoch;
  Endpoint endpoint;
  Progress progress;
};

enum class Command : std::uint8_t { None, Fence, Prepare, Connect };

struct Fsm {
  Role role = Role::Leader;
  State state = State::Closed;
  const FsmConfig* config = nullptr;
  Epoch epoch;       // F2 "cur": changes on entering Requesting (leader) or Prepared (follower)
  Epoch pending;     // Fencing: the epoch to come; a follower that lost the link by itself has 0
  Epoch data_epoch;  // last epoch that reached Replaying: data may have been posted on it
  Offer mine;        // my REQ or REP of `epoch`
  Offer peer;        // the REQ or REP in use
  FenceSample sample;

  Command awaited = Command::None;
  std::uint32_t work = 0;  // number of the last command
  bool has_qp = false;     // a QP may exist: since PrepareQp, until FenceDone
  bool commit_pending =
      false;              // leader: the follower has not yet shown that it knows about Replaying
  bool closing = false;   // Close came, not everything is flushed yet
  bool departed = false;  // closed in good order: nothing reopens it
  bool bye_done = false;  // Closing: no need to wait for the peer any more
  bool port_up = true;
  bool probing = false;
  bool heard = false;          // a control message since the last heartbeat tick
  bool hb_unanswered = false;  // a heartbeat was sent at the last tick
  std::uint32_t misses = 0;
  std::uint32_t attempt = 0;          // of the current retransmission
  std::uint32_t resends = 0;          // REQs of this epoch without any answer
  std::uint32_t epoch_tries = 0;      // epochs in a row that neither held nor moved data
  std::uint32_t peer_srq_free = ~0u;  // from its heartbeats
  GiveUpReason failure = GiveUpReason::None;

  TimeNs resend_at = kNever;
  TimeNs heartbeat_at = kNever;
  TimeNs probe_until = kNever;
  TimeNs bye_until = kNever;
  TimeNs outage_since = kNever;  // first loss since data moved last, or first submit
  TimeNs left_at = 0;            // the last epoch was left
  TimeNs close_since = kNever;
  TimeNs active_since = kNever;
  TimeNs last_traffic = 0;
  TimeNs busy_at = kNever;  // last BUSY
  TimeNs paused = 0;        // sum of time under BUSY in this outage
  TimeNs armed_at = kNever;
  std::uint64_t random = 0;
};

Fsm make_fsm(Role role, const FsmConfig& config, std::uint64_t random_seed);

// The one entry point. Actions are appended.
Outcome step(Fsm& fsm, const Event& event, TimeNs now, Actions& actions);

// The message for a Send* action: type, epochs and bodies. The caller fills in the names (job_key,
// boots, ranks, conns, k).
CtlMessage compose(const Fsm& fsm, const Action& action, Seq rx_next, std::uint32_t srq_free);

// Whether the channel may post (state Replaying, Active or Suspect).
constexpr bool may_post(State state) {
  return state == State::Replaying || state == State::Active || state == State::Suspect;
}
// When this outage is given up, kNever if there is none or no limit.
TimeNs deadline_of(const Fsm& fsm);

const char* to_string(Role);
const char* to_string(EventKind);
const char* to_string(ActionType);
const char* to_string(Outcome);
const char* to_string(GiveUpReason);
const char* to_string(Command);

}  // namespace mend::conn
