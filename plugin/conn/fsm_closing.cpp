// The orderly end: Close, Flushed, BYE and BYE_ACK, and what Closed and Failed still answer
// (docs/protocol.md 1.10).
#include "plugin/conn/fsm_rules.h"

namespace mend::conn::rules {
namespace {

void finish(Step& s) {
  s.fsm.state = State::Closed;
  stop_timers(s.fsm);
  emit(s, ActionType::Closed);
}

// The peer needs nothing more from us: fence what is left, then end.
void advance(Step& s) {
  Fsm& f = s.fsm;
  f.bye_done = true;
  f.resend_at = f.bye_until = kNever;
  if (f.has_qp) {
    if (f.awaited != Command::Fence) command(s, Command::Fence, f.epoch);
  } else {
    finish(s);
  }
}

// Everything is done, or the peer says that it needs nothing more: if a replay was under way, it
// has done its work, and its last operation may be what let both sides leave.
void part(Step& s, bool peer_is_gone) {
  if (s.fsm.state == State::Replaying) emit(s, ActionType::Up);
  begin_closing(s, peer_is_gone);
}

}  // namespace

void begin_closing(Step& s, bool peer_is_gone) {
  Fsm& f = s.fsm;
  stop_timers(f);
  f.state = State::Closing;
  f.departed = true;
  f.outage_since = f.close_since = kNever;
  if (peer_is_gone) {
    advance(s);
    return;
  }
  emit(s, ActionType::SendBye);
  f.bye_until = after(s.now, f.config->bye_wait);
  schedule_resend(s);
}

// A peer that still speaks to a connection that ended in good order has missed our BYE.
Outcome say_bye(Step& s) {
  if (s.fsm.state == State::Closed && !s.fsm.departed) return Outcome::Ignored;
  emit(s, ActionType::SendBye);
  return Outcome::Acted;
}

// A reply to a handshake, or a heartbeat, that finds nothing here any more.
Outcome answer_closed(Step& s) { return s.fsm.departed ? say_bye(s) : Outcome::Stale; }

Outcome heartbeat_closed(Step& s) {
  if (s.event.kind == EventKind::Hb && s.fsm.departed) return say_bye(s);
  return Outcome::Heard;
}

Outcome bye_closed(Step& s) {
  s.fsm.departed = true;
  emit(s, ActionType::SendByeAck);
  return Outcome::Acted;
}

// The follower's epoch can be behind ours, but never behind the last one that carried data.
Outcome bye(Step& s) {
  emit(s, ActionType::SendByeAck);
  if (s.event.epoch < s.fsm.data_epoch) return Outcome::Stale;
  part(s, true);
  return Outcome::Acted;
}

Outcome bye_closing(Step& s) {
  emit(s, ActionType::SendByeAck);
  if (!s.fsm.bye_done) advance(s);
  return Outcome::Acted;
}

Outcome bye_failed(Step& s) {
  emit(s, ActionType::SendByeAck);
  return Outcome::Acted;
}

// Closing: the BYE_ACK came, or was waited for long enough.
Outcome bye_ack(Step& s) {
  if (s.fsm.bye_done) return Outcome::Heard;
  advance(s);
  return Outcome::Acted;
}

Outcome close_closed(Step& s) {
  s.fsm.departed = true;
  emit(s, ActionType::Closed);
  return Outcome::Acted;
}

Outcome close_live(Step& s) {
  Fsm& f = s.fsm;
  f.closing = true;
  if (f.close_since == kNever) f.close_since = s.now;
  if (!s.event.traffic.outstanding) part(s, false);
  return Outcome::Acted;
}

Outcome close_failed(Step& s) {
  s.fsm.closing = true;
  if (!s.fsm.has_qp) emit(s, ActionType::Closed);
  return Outcome::Acted;
}

Outcome flushed(Step& s) {
  if (!s.fsm.closing) return Outcome::Ignored;
  part(s, false);
  return Outcome::Acted;
}

// FenceDone or FenceFailed: either way the QP is nothing we could still use.
Outcome closing_fenced(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Fence)) return Outcome::Stale;
  f.awaited = Command::None;
  f.has_qp = false;
  if (f.bye_done) finish(s);
  return Outcome::Acted;
}

Outcome closing_qp(Step& s) {
  if (s.fsm.awaited == Command::Fence || s.event.work != s.fsm.work) return Outcome::Stale;
  s.fsm.awaited = Command::None;  // the fence that ends Closing takes care of the QP
  return Outcome::Acted;
}

Outcome failed_fenced(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Fence)) return Outcome::Stale;
  f.awaited = Command::None;
  f.has_qp = false;
  if (f.closing) emit(s, ActionType::Closed);
  return Outcome::Acted;
}

}  // namespace mend::conn::rules
