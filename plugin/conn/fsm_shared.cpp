// Moves and handlers that both roles share: outage bookkeeping, replay, failure, closing, timers.
#include <algorithm>

#include "plugin/conn/fsm_rules.h"

namespace mend::conn::rules {

// --- actions ---

void emit(Step& s, ActionType type, Epoch epoch) {
  Action action;
  action.type = type;
  action.epoch = epoch;
  if (type == ActionType::StartReplay) action.seq = s.fsm.peer.progress.rx_next;
  if (type == ActionType::GiveUp) action.reason = s.fsm.failure;
  s.out.push(action);
}

void emit(Step& s, ActionType type) { emit(s, type, s.fsm.epoch); }

void command(Step& s, Command what, Epoch epoch) {
  Action action;
  action.type = what == Command::Fence     ? ActionType::Fence
                : what == Command::Prepare ? ActionType::PrepareQp
                                           : ActionType::ConnectQp;
  action.epoch = epoch;
  action.work = ++s.fsm.work;
  s.fsm.awaited = what;
  if (what == Command::Prepare) s.fsm.has_qp = true;
  s.out.push(action);
}

bool is_awaited(const Step& s, Command what) {
  return s.fsm.awaited == what && s.event.work == s.fsm.work;
}

// --- moves ---

void stop_timers(Fsm& fsm) {
  fsm.resend_at = fsm.heartbeat_at = fsm.probe_until = fsm.bye_until = kNever;
  fsm.probing = false;
  fsm.commit_pending = false;
  fsm.hb_unanswered = false;
  fsm.misses = 0;
  fsm.attempt = 0;
  fsm.resends = 0;
}

void start_outage(Step& s) {
  Fsm& f = s.fsm;
  if (f.outage_since != kNever) return;
  f.outage_since = s.now;
  f.busy_at = kNever;
  f.paused = 0;
}

void schedule_resend(Step& s) {
  Fsm& f = s.fsm;
  f.attempt = std::min<std::uint32_t>(f.attempt + 1, 32);
  f.resend_at = f.port_up ? after(s.now, backoff_delay(f.config->backoff, f.attempt, f.random))
                          : kNever;  // PortUp goes on
}

// An epoch that held for a while earns an immediate next attempt; one that broke at once only does
// if it moved data (take_sample).
void leave_epoch(Step& s) {
  Fsm& f = s.fsm;
  const bool was_active = f.state == State::Active || f.state == State::Suspect;
  if (was_active && s.now - f.active_since >= 2 * f.config->backoff.lowest) f.epoch_tries = 0;
  start_outage(s);
  f.left_at = s.now;
  stop_timers(f);
}

void lose_link(Step& s) {
  Fsm& f = s.fsm;
  leave_epoch(s);
  f.state = State::Fencing;
  f.pending = f.role == Role::Leader ? f.epoch.next() : Epoch{};
  command(s, Command::Fence, f.epoch);
}

// An epoch that delivered something was no failed attempt, however soon it broke: the outage that
// counts towards the deadline begins with its end, and the next epoch at once.
void take_sample(Step& s) {
  const FenceSample& old = s.fsm.sample;
  const FenceSample& now = s.event.sample;
  if (before(old.rx_next, now.rx_next) || before(old.tx_acked, now.tx_acked)) {
    s.fsm.epoch_tries = 0;
    if (s.fsm.outage_since != kNever) s.fsm.outage_since = s.fsm.left_at;
  }
  s.fsm.sample = now;
  s.fsm.has_qp = false;
  s.fsm.awaited = Command::None;
}

void make_offer(Step& s) {
  Fsm& f = s.fsm;
  f.epoch = f.pending;
  f.pending = Epoch{};
  f.awaited = Command::None;
  f.mine.epoch = f.epoch;
  f.mine.data_epoch = f.data_epoch;
  f.mine.endpoint = s.event.endpoint;
  f.mine.progress = Progress{f.sample.rx_next, f.sample.tx_acked, f.config->window, 0};
}

void begin_replay(Step& s) {
  Fsm& f = s.fsm;
  f.state = State::Replaying;
  f.data_epoch = f.epoch;
  f.resend_at = kNever;
  restart_heartbeat(s);
  emit(s, ActionType::StartReplay);
}

GiveUpReason check_progress(const FenceSample& mine, const Progress& peer) {
  if (before(peer.rx_next, mine.tx_acked)) return GiveUpReason::DataLoss;
  if (before(mine.tx_next, peer.rx_next)) return GiveUpReason::Corrupt;
  return GiveUpReason::None;
}

void fail(Step& s, GiveUpReason reason) {
  Fsm& f = s.fsm;
  stop_timers(f);
  f.state = State::Failed;
  f.failure = reason;
  if (f.has_qp && f.awaited != Command::Fence) command(s, Command::Fence, f.epoch);
  if (reason != GiveUpReason::PeerRejected) emit(s, ActionType::SendRej);
  emit(s, ActionType::GiveUp);
}

// --- handlers without state of their own ---

Outcome never(Step&) { return Outcome::Impossible; }
Outcome ignore(Step&) { return Outcome::Ignored; }
Outcome stale(Step&) { return Outcome::Stale; }
Outcome heard(Step&) { return Outcome::Heard; }
Outcome wrong_role(Step&) { return Outcome::WrongRole; }

Outcome say_rej(Step& s) {
  emit(s, ActionType::SendRej);
  return Outcome::Acted;
}

Outcome busy(Step& s) {
  Fsm& f = s.fsm;
  f.resends = 0;
  if (s.event.not_met && f.outage_since != kNever) {
    f.outage_since = s.now;  // it computes; nothing is wrong with it or with the path
    f.busy_at = kNever;
    return Outcome::Heard;
  }
  const TimeNs longest_gap = 4 * f.config->backoff.highest;
  if (f.busy_at != kNever && s.now - f.busy_at <= longest_gap) f.paused += s.now - f.busy_at;
  f.busy_at = s.now;
  return Outcome::Heard;
}

Outcome rej(Step& s) {
  const bool recent = s.event.message->epoch >= s.fsm.data_epoch;
  if (!recent && s.event.message->reason != RejReason::StaleBoot) return Outcome::Stale;
  if (s.fsm.closing)
    begin_closing(s, true);  // we wanted to part anyway
  else
    fail(s, GiveUpReason::PeerRejected);
  return Outcome::Acted;
}

Outcome link_lost(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  lose_link(s);
  return Outcome::Acted;
}

// The QP under preparation broke before it was ready. The command cannot be called back, but its
// fence can follow.
Outcome link_lost_fencing(Step& s) {
  Fsm& f = s.fsm;
  if (f.awaited != Command::Prepare || s.event.epoch != f.pending) return Outcome::Stale;
  if (f.role == Role::Follower) f.pending = Epoch{};
  command(s, Command::Fence, f.epoch);
  return Outcome::Acted;
}

Outcome fence_failed(Step& s) {
  if (!is_awaited(s, Command::Fence)) return Outcome::Stale;
  s.fsm.awaited = Command::None;
  s.fsm.has_qp = false;  // there is nothing more that can be done with it
  fail(s, GiveUpReason::FenceFailed);
  return Outcome::Acted;
}

// Fencing, PrepareQp failed: clear away what there is. The leader tries again after a pause; the
// follower waits for the next REQ, which the leader repeats.
Outcome qp_failed(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Prepare)) return Outcome::Stale;
  if (f.role == Role::Follower) f.pending = Epoch{};
  command(s, Command::Fence, f.epoch);
  return Outcome::Acted;
}

Outcome log_empty(Step& s) {
  Fsm& f = s.fsm;
  if (s.event.epoch != f.epoch) return Outcome::Stale;
  f.state = State::Active;
  f.active_since = s.now;
  f.outage_since = kNever;
  emit(s, ActionType::Up);
  return Outcome::Acted;
}

Outcome not_repairable(Step& s) {
  fail(s, s.event.reason);
  return Outcome::Acted;
}

Outcome port_down(Step& s) {
  s.fsm.port_up = false;
  return Outcome::Acted;
}

// Whatever this state repeats is repeated once the grace time is over, with the back-off starting
// anew. Prepared repeats its REP once, because the leader may be in a long back-off of its own.
Outcome port_up(Step& s) {
  Fsm& f = s.fsm;
  if (f.port_up) return Outcome::Ignored;
  f.port_up = true;
  const bool waits_to_prepare =
      f.state == State::Fencing && f.role == Role::Leader && f.awaited == Command::None;
  const bool repeats = (f.state == State::Requesting && f.awaited == Command::None) ||
                       f.state == State::Nudging || f.state == State::Prepared ||
                       (may_post(f.state) && f.commit_pending) ||
                       (f.state == State::Closing && !f.bye_done);
  if (waits_to_prepare || repeats) {
    f.attempt = 0;
    f.resend_at = after(s.now, f.config->grace);
  }
  return Outcome::Acted;
}

}  // namespace mend::conn::rules
