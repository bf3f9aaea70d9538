// Entry point of the state machine: dispatch through the tables, signs of life, the one timer,
// messages.
#include "plugin/conn/fsm.h"

#include <algorithm>

#include "plugin/conn/fsm_rules.h"

namespace mend::conn {
namespace {

using rules::Step;

bool is_message(EventKind kind) { return kind >= EventKind::Req && kind <= EventKind::Key; }

// Any valid datagram of the peer: it lives, and an answer to the next try is likely, so try soon.
// BUSY is alive but not ready: it does not speed anything up.
void note_life(Step& s) {
  Fsm& f = s.fsm;
  f.heard = true;
  f.misses = 0;
  f.hb_unanswered = false;
  if (f.state == State::Suspect) f.state = State::Active;
  if (s.event.kind == EventKind::Busy) return;
  f.attempt = std::min<std::uint32_t>(f.attempt, 1);
  if (f.state != State::Requesting && f.state != State::Nudging) return;
  if (f.resend_at != kNever)
    f.resend_at = std::min(f.resend_at, after(s.now, f.config->backoff.lowest));
}

void arm_timer(Step& s) {
  Fsm& f = s.fsm;
  const TimeNs next =
      std::min({f.resend_at, f.heartbeat_at, f.probe_until, f.bye_until, deadline_of(f)});
  if (next == f.armed_at) return;
  f.armed_at = next;
  Action action;
  action.type = ActionType::ArmTimer;
  action.epoch = f.epoch;
  action.at = next;
  s.out.push(action);
}

RejReason reject_reason(GiveUpReason reason) {
  return reason == GiveUpReason::Deadline ? RejReason::Deadline : RejReason::Failed;
}

MsgType message_of(ActionType type) {
  switch (type) {
    case ActionType::SendReq:
      return MsgType::Req;
    case ActionType::SendRep:
      return MsgType::Rep;
    case ActionType::SendCommit:
      return MsgType::Commit;
    case ActionType::SendNudge:
      return MsgType::Nudge;
    case ActionType::SendHb:
      return MsgType::Hb;
    case ActionType::SendHbAck:
      return MsgType::HbAck;
    case ActionType::SendBusy:
      return MsgType::Busy;
    case ActionType::SendBye:
      return MsgType::Bye;
    case ActionType::SendByeAck:
      return MsgType::ByeAck;
    default:
      return MsgType::Rej;
  }
}

EventKind kind_of(MsgType type) {
  switch (type) {
    case MsgType::Req:
      return EventKind::Req;
    case MsgType::Rep:
      return EventKind::Rep;
    case MsgType::Commit:
      return EventKind::Commit;
    case MsgType::Nudge:
      return EventKind::Nudge;
    case MsgType::Hb:
      return EventKind::Hb;
    case MsgType::HbAck:
      return EventKind::HbAck;
    case MsgType::Busy:
      return EventKind::Busy;
    case MsgType::Bye:
      return EventKind::Bye;
    case MsgType::ByeAck:
      return EventKind::ByeAck;
    case MsgType::Rej:
      return EventKind::Rej;
    case MsgType::KeyReq:
    case MsgType::KeyRep:
      return EventKind::Key;
  }
  return EventKind::Key;
}

}  // namespace

Fsm make_fsm(Role role, const FsmConfig& config, std::uint64_t random_seed) {
  Fsm fsm;
  fsm.role = role;
  fsm.config = &config;
  fsm.random = random_seed;
  return fsm;
}

Event message_event(const CtlMessage& message) {
  Event event{};
  event.kind = kind_of(message.type);
  event.epoch = message.epoch;
  event.message = &message;
  return event;
}

Outcome step(Fsm& fsm, const Event& event, TimeNs now, Actions& actions) {
  Step s{fsm, event, now, actions};
  if (is_message(event.kind)) note_life(s);
  // The armed one fired: arm it anew in any case. An older one that was moved since changes
  // nothing, else every move would leave a timer that renews itself for ever.
  if (event.kind == EventKind::Timer && now >= fsm.armed_at) fsm.armed_at = kNever;
  const rules::Table& table =
      fsm.role == Role::Leader ? rules::leader_table() : rules::follower_table();
  const auto row = static_cast<std::size_t>(event.kind);
  const Outcome outcome = table[row][static_cast<std::size_t>(fsm.state)](s);
  arm_timer(s);
  return outcome;
}

TimeNs deadline_of(const Fsm& fsm) {
  const TimeNs limit = fsm.config->max_outage;
  if (limit == 0 || fsm.state == State::Closing || fsm.state == State::Failed) return kNever;
  TimeNs deadline = kNever;
  if (fsm.outage_since != kNever)
    deadline = after(after(fsm.outage_since, limit), std::min(fsm.paused, limit));
  if (fsm.close_since != kNever) deadline = std::min(deadline, after(fsm.close_since, limit));
  return deadline;
}

CtlMessage compose(const Fsm& fsm, const Action& action, Seq rx_next, std::uint32_t srq_free) {
  CtlMessage m;
  m.type = message_of(action.type);
  m.epoch = action.epoch;
  m.data_epoch = fsm.data_epoch;
  m.state = fsm.state == State::Suspect ? State::Active : fsm.state;
  m.rx_next = rx_next;
  m.srq_free = srq_free;
  m.reason = reject_reason(fsm.failure);
  if (m.type == MsgType::Req || m.type == MsgType::Rep) {  // identical bytes each time (F2)
    m.epoch = fsm.mine.epoch;
    m.data_epoch = fsm.mine.data_epoch;
    m.endpoint = fsm.mine.endpoint;
    m.progress = fsm.mine.progress;
  }
  return m;
}

}  // namespace mend::conn
