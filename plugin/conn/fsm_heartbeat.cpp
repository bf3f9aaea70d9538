// Time: retransmission, heartbeats, probes and the deadline (docs/protocol.md 1.9, 1.10).
#include <algorithm>

#include "plugin/conn/fsm_rules.h"

namespace mend::conn::rules {
namespace {

void start_probe(Step& s) {
  Fsm& f = s.fsm;
  if (f.probing) return;
  f.probing = true;
  f.probe_until = after(s.now, f.config->probe_limit);
  emit(s, ActionType::Probe);
}

// One tick: whoever was heard needs no heartbeat; whoever left one unanswered has missed.
void heartbeat_tick(Step& s) {
  Fsm& f = s.fsm;
  const FsmConfig& config = *f.config;
  if (f.heard) {
    f.misses = 0;
    f.hb_unanswered = false;
  } else if (f.hb_unanswered) {
    ++f.misses;
  }
  const bool silent = !f.heard;
  f.heard = false;
  if (silent) {
    f.hb_unanswered = true;
    emit(s, ActionType::SendHb);
  }
  if (f.misses >= 1 && f.state == State::Active) f.state = State::Suspect;
  if (f.misses >= config.heartbeat_misses) start_probe(s);
  f.heartbeat_at = after(s.now, config.heartbeat);
}

void heartbeats(Step& s) {
  Fsm& f = s.fsm;
  const Traffic& traffic = s.event.traffic;
  if (traffic.received) {
    f.heard = true;
    f.misses = 0;
    f.hb_unanswered = false;
    if (f.state == State::Suspect) f.state = State::Active;
  }
  if (traffic.received || traffic.outstanding) f.last_traffic = s.now;
  if (traffic.stale_wr && f.peer_srq_free != 0) start_probe(s);
  if (s.now < f.heartbeat_at) return;
  // An idle connection costs nothing: look again now and then whether it still is.
  const bool idle = s.now - f.last_traffic >= f.config->heartbeat_idle && f.misses == 0;
  if (idle && !f.commit_pending) {
    f.hb_unanswered = false;
    f.heartbeat_at = after(s.now, std::max(f.config->heartbeat, f.config->heartbeat_idle));
    return;
  }
  heartbeat_tick(s);
}

void resend_request(Step& s) {
  Fsm& f = s.fsm;
  const std::uint32_t limit = f.config->resends_per_epoch;
  if (limit > 0 && f.resends >= limit) {
    lose_link(s);
    return;
  }
  ++f.resends;
  emit(s, ActionType::SendReq);
  schedule_resend(s);
}

void resend(Step& s) {
  Fsm& f = s.fsm;
  if (s.now < f.resend_at) return;
  f.resend_at = kNever;
  if (!f.port_up) return;
  switch (f.state) {
    case State::Fencing:
      retry_prepare(s);
      break;
    case State::Requesting:
      resend_request(s);
      break;
    case State::Prepared:
      emit(s, ActionType::SendRep);
      schedule_resend(s);
      break;
    case State::Nudging:
      emit(s, ActionType::SendNudge);
      schedule_resend(s);
      break;
    case State::Closing:
      emit(s, ActionType::SendBye);
      schedule_resend(s);
      break;
    case State::Replaying:
    case State::Active:
    case State::Suspect:
      if (!f.commit_pending) break;
      emit(s, ActionType::SendCommit);
      schedule_resend(s);
      break;
    case State::Closed:
    case State::Failed:
      break;
  }
}

void expire(Step& s) {
  if (!s.fsm.closing) {
    fail(s, GiveUpReason::Deadline);
    return;
  }
  Action action;
  action.type = ActionType::GiveUp;
  action.epoch = s.fsm.epoch;
  action.reason = GiveUpReason::FlushExpired;
  s.out.push(action);
  begin_closing(s, false);
}

}  // namespace

void restart_heartbeat(Step& s) {
  Fsm& f = s.fsm;
  f.heard = true;  // the handshake just spoke to it
  f.hb_unanswered = false;
  f.misses = 0;
  f.peer_srq_free = ~0u;
  f.last_traffic = s.now;
  f.heartbeat_at = f.config->heartbeat == 0 ? kNever : after(s.now, f.config->heartbeat);
}

Outcome wake(Step& s) {
  Fsm& f = s.fsm;
  f.last_traffic = s.now;
  if (f.config->heartbeat != 0)
    f.heartbeat_at = std::min(f.heartbeat_at, after(s.now, f.config->heartbeat));
  return Outcome::Acted;
}

Outcome answer_heartbeat(Step& s) {
  s.fsm.peer_srq_free = s.event.message->srq_free;
  Action ack;
  ack.type = ActionType::PeerAck;
  ack.epoch = s.fsm.epoch;
  ack.seq = s.event.message->rx_next;
  s.out.push(ack);
  if (s.event.kind == EventKind::Hb) emit(s, ActionType::SendHbAck);
  return Outcome::Acted;
}

Outcome probe_ok(Step& s) {
  Fsm& f = s.fsm;
  if (s.event.epoch != f.epoch) return Outcome::Stale;
  f.probing = false;
  f.probe_until = kNever;
  f.misses = 0;
  f.hb_unanswered = false;
  if (f.state == State::Suspect) f.state = State::Active;
  return Outcome::Acted;
}

void timer_up(Step& s) {
  if (s.now >= s.fsm.probe_until) {  // the probe's completion never came
    lose_link(s);
    return;
  }
  heartbeats(s);
}

Outcome timer(Step& s) {
  Fsm& f = s.fsm;
  if (s.now >= deadline_of(f)) {
    expire(s);
    return Outcome::Acted;
  }
  if (f.state == State::Closing && s.now >= f.bye_until) return bye_ack(s);
  if (may_post(f.state)) timer_up(s);
  resend(s);
  return Outcome::Acted;
}

}  // namespace mend::conn::rules
