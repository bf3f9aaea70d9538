// The follower: never changes the epoch by itself; it answers REQ and can only NUDGE
// (docs/protocol.md 1.5).
//   Closed -> Nudging -> Fencing -> Prepared -> Replaying -> Active <-> Suspect; from the last four
//   back to Fencing, and from there to Prepared if a REQ asked for it, to Nudging if the link was
//   lost.
#include "plugin/conn/fsm_rules.h"
#include "plugin/verbs/mutate.h"

namespace mend::conn::rules {
namespace {

void start_nudging(Step& s) {
  Fsm& f = s.fsm;
  f.state = State::Nudging;
  f.attempt = 0;
  emit(s, ActionType::SendNudge);
  schedule_resend(s);
}

Outcome open(Step& s) {
  if (s.fsm.departed) return Outcome::Ignored;
  start_outage(s);
  start_nudging(s);
  return Outcome::Acted;
}

void keep_offer(Step& s) {
  const CtlMessage& m = *s.event.message;
  s.fsm.pending = m.epoch;
  s.fsm.peer = Offer{m.epoch, m.data_epoch, m.endpoint, m.progress};
}

// Nothing is left of the old QP, the sample is final: F7, then a QP for the pending epoch.
void prepare(Step& s) {
  Fsm& f = s.fsm;
  const GiveUpReason bad = check_progress(f.sample, f.peer.progress);
  if (bad != GiveUpReason::None)
    fail(s, bad);
  else
    command(s, Command::Prepare, f.pending);
}

// F2: what is older than the current epoch is ignored, never rejected.
bool is_old(const Step& s) { return s.event.epoch < s.fsm.epoch && !missing(Rule::F2); }

// A REQ(e > cur) in a state without a QP.
void follow(Step& s) {
  start_outage(s);
  stop_timers(s.fsm);
  keep_offer(s);
  s.fsm.state = State::Fencing;
  prepare(s);
}

Outcome req_closed(Step& s) {
  if (s.fsm.departed) return say_bye(s);
  if (s.event.epoch <= s.fsm.epoch) return Outcome::Stale;
  follow(s);
  return Outcome::Acted;
}

// Silence on REQ(cur): its QP is dead, and the leader will take e+1 for our NUDGE(cur).
Outcome req_nudging(Step& s) {
  if (is_old(s)) return Outcome::Stale;
  if (s.event.epoch == s.fsm.epoch) return Outcome::Ignored;
  follow(s);
  return Outcome::Acted;
}

// Fencing: BUSY; a newer REQ replaces the one we were preparing for.
Outcome req_fencing(Step& s) {
  Fsm& f = s.fsm;
  const Epoch e = s.event.epoch;
  if (e < f.epoch || (e > f.epoch && e < f.pending)) return Outcome::Stale;
  if (e > f.epoch && e > f.pending) {
    keep_offer(s);
    if (f.awaited == Command::Prepare) command(s, Command::Fence, f.epoch);
  }
  emit(s, ActionType::SendBusy, e);
  return Outcome::Acted;
}

// Prepared, Replaying, Active, Suspect.
Outcome req(Step& s) {
  Fsm& f = s.fsm;
  if (is_old(s)) return Outcome::Stale;
  if (s.event.epoch == f.epoch) {
    emit(s, ActionType::SendRep);
    return Outcome::Acted;
  }
  leave_epoch(s);
  keep_offer(s);
  f.state = State::Fencing;
  command(s, Command::Fence, f.epoch);
  return Outcome::Acted;
}

// F5: COMMIT(e), a heartbeat of a leader that is past RTS, or a receive releases us.
Outcome commit_prepared(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  begin_replay(s);
  emit(s, ActionType::SendHbAck);
  return Outcome::Acted;
}

Outcome commit_again(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  emit(s, ActionType::SendHbAck);
  return Outcome::Acted;
}

Outcome heartbeat_prepared(Step& s) {
  const CtlMessage& m = *s.event.message;
  const bool leader_is_up = m.state == State::Replaying || m.state == State::Active;
  if (m.epoch == s.fsm.epoch && leader_is_up) begin_replay(s);
  return answer_heartbeat(s);
}

Outcome receive_prepared(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  begin_replay(s);
  return Outcome::Acted;
}

Outcome rc_receive(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  s.fsm.heard = true;
  return Outcome::Acted;
}

Outcome fenced(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Fence)) return Outcome::Stale;
  take_sample(s);
  if (f.pending > f.epoch || (missing(Rule::F2) && f.pending.value != 0))
    prepare(s);
  else
    start_nudging(s);
  return Outcome::Acted;
}

Outcome qp_prepared(Step& s) {
  if (!is_awaited(s, Command::Prepare)) return Outcome::Stale;
  make_offer(s);
  s.fsm.state = State::Prepared;
  s.fsm.attempt = 0;
  emit(s, ActionType::SendRep);
  schedule_resend(s);  // else a leader that ended meanwhile would never be asked, and never say so
  if constexpr (missing(Rule::F5)) begin_replay(s);
  return Outcome::Acted;
}

// clang-format off
// Columns:           Closed            Fencing            Requesting  Nudging           Prepared            Replaying         Active            Suspect           Closing           Failed
constexpr Table kFollower = {{
/* Submit        */ {{open,             ignore,            never,      ignore,           ignore,             ignore,           wake,             wake,             ignore,           ignore}},
/* Req           */ {{req_closed,       req_fencing,       never,      req_nudging,      req,                req,              req,              req,              say_bye,          say_rej}},
/* Rep           */ {{wrong_role,       wrong_role,        never,      wrong_role,       wrong_role,         wrong_role,       wrong_role,       wrong_role,       wrong_role,       wrong_role}},
/* Commit        */ {{answer_closed,    stale,             never,      stale,            commit_prepared,    commit_again,     commit_again,     commit_again,     say_bye,          say_rej}},
/* Nudge         */ {{wrong_role,       wrong_role,        never,      wrong_role,       wrong_role,         wrong_role,       wrong_role,       wrong_role,       wrong_role,       wrong_role}},
/* Hb            */ {{heartbeat_closed, answer_heartbeat,  never,      answer_heartbeat, heartbeat_prepared, answer_heartbeat, answer_heartbeat, answer_heartbeat, answer_heartbeat, say_rej}},
/* HbAck         */ {{heartbeat_closed, answer_heartbeat,  never,      answer_heartbeat, heartbeat_prepared, answer_heartbeat, answer_heartbeat, answer_heartbeat, answer_heartbeat, heard}},
/* Busy          */ {{heard,            heard,             never,      busy,             heard,              heard,            heard,            heard,            heard,            heard}},
/* Bye           */ {{bye_closed,       bye,               never,      bye,              bye,                bye,              bye,              bye,              bye_closing,      bye_failed}},
/* ByeAck        */ {{heard,            heard,             never,      heard,            heard,              heard,            heard,            heard,            bye_ack,          heard}},
/* Rej           */ {{heard,            rej,               never,      rej,              rej,                rej,              rej,              rej,              heard,            heard}},
/* Key           */ {{heard,            heard,             never,      heard,            heard,              heard,            heard,            heard,            heard,            heard}},
/* FenceDone     */ {{stale,            fenced,            never,      stale,            stale,              stale,            stale,            stale,            closing_fenced,   failed_fenced}},
/* FenceFailed   */ {{stale,            fence_failed,      never,      stale,            stale,              stale,            stale,            stale,            closing_fenced,   failed_fenced}},
/* QpReady       */ {{stale,            qp_prepared,       never,      stale,            stale,              stale,            stale,            stale,            closing_qp,       stale}},
/* QpFailed      */ {{stale,            qp_failed,         never,      stale,            stale,              stale,            stale,            stale,            closing_qp,       stale}},
/* LinkLost      */ {{stale,            link_lost_fencing, never,      stale,            link_lost,          link_lost,        link_lost,        link_lost,        ignore,           ignore}},
/* RcReceive     */ {{stale,            stale,             never,      stale,            receive_prepared,   rc_receive,       rc_receive,       rc_receive,       ignore,           ignore}},
/* LogEmpty      */ {{stale,            stale,             never,      stale,            stale,              log_empty,        ignore,           ignore,           ignore,           ignore}},
/* ProbeOk       */ {{stale,            stale,             never,      stale,            stale,              probe_ok,         probe_ok,         probe_ok,         ignore,           ignore}},
/* ProbeFailed   */ {{stale,            stale,             never,      stale,            stale,              link_lost,        link_lost,        link_lost,        ignore,           ignore}},
/* Timer         */ {{ignore,           timer,             never,      timer,            timer,              timer,            timer,            timer,            timer,            ignore}},
/* PortDown      */ {{port_down,        port_down,         never,      port_down,        port_down,          port_down,        port_down,        port_down,        port_down,        port_down}},
/* PortUp        */ {{port_up,          port_up,           never,      port_up,          port_up,            port_up,          port_up,          port_up,          port_up,          port_up}},
/* Close         */ {{close_closed,     close_live,        never,      close_live,       close_live,         close_live,       close_live,       close_live,       ignore,           close_failed}},
/* Flushed       */ {{ignore,           flushed,           never,      flushed,          flushed,            flushed,          flushed,          flushed,          ignore,           ignore}},
/* NotRepairable */ {{not_repairable,   not_repairable,    never,      not_repairable,   not_repairable,     not_repairable,   not_repairable,   not_repairable,   ignore,           ignore}},
}};
// clang-format on

}  // namespace

const Table& follower_table() { return kFollower; }

}  // namespace mend::conn::rules
