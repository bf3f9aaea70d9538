// The leader: the side that creates epochs (docs/protocol.md 1.5).
//   Closed -> Fencing -> Requesting -> Replaying -> Active <-> Suspect, and from each of the last
//   four back to Fencing.
#include "plugin/conn/fsm_rules.h"
#include "plugin/verbs/mutate.h"

namespace mend::conn::rules {
namespace {

void prepare(Step& s) {
  Fsm& f = s.fsm;
  f.epoch_tries = f.epoch_tries < 32 ? f.epoch_tries + 1 : f.epoch_tries;
  command(s, Command::Prepare, f.pending);
}

// Nothing is left of the old QP: the next epoch begins now, or after a pause if the last ones did
// not hold.
void prepare_in_time(Step& s) {
  Fsm& f = s.fsm;
  f.state = State::Fencing;
  f.pending = f.epoch.next();  // F6: also when nothing was ever posted on the current one
  if (missing(Rule::F6) && f.data_epoch < f.epoch) f.pending = f.epoch;
  if (!f.port_up) {
    f.resend_at = kNever;  // PortUp goes on
    return;
  }
  const TimeNs delay = backoff_delay(f.config->backoff, f.epoch_tries, f.random);
  if (delay == 0)
    prepare(s);
  else
    f.resend_at = after(s.now, delay);
}

Outcome open(Step& s) {
  if (s.fsm.departed) return Outcome::Ignored;
  start_outage(s);
  prepare_in_time(s);
  return Outcome::Acted;
}

// F2: in Closed only NUDGE(0) before the first connect opens; a late one after BYE must not.
Outcome nudge_closed(Step& s) {
  if (s.fsm.departed) return say_bye(s);
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  return open(s);
}

Outcome nudge_fencing(Step& s) {
  emit(s, ActionType::SendBusy, s.event.epoch);
  return s.event.epoch == s.fsm.epoch ? Outcome::Acted : Outcome::Stale;
}

// Requesting, Replaying, Active, Suspect: acts only for the current (in Requesting: the pending)
// epoch.
Outcome nudge(Step& s) {
  if (s.event.epoch != s.fsm.epoch) return Outcome::Stale;
  lose_link(s);
  return Outcome::Acted;
}

// A heartbeat carries what the follower would have said otherwise: NUDGE, or that COMMIT arrived.
Outcome heartbeat(Step& s) {
  Fsm& f = s.fsm;
  const CtlMessage& m = *s.event.message;
  const Outcome outcome = answer_heartbeat(s);
  if (m.epoch != f.epoch) return outcome;
  if (m.state == State::Nudging) {
    lose_link(s);
  } else if (may_post(f.state) && (m.state == State::Replaying || m.state == State::Active)) {
    f.commit_pending = false;
    f.resend_at = kNever;
  }
  return outcome;
}

// F3: the REP of the pending epoch, once.
Outcome rep(Step& s) {
  Fsm& f = s.fsm;
  const CtlMessage& m = *s.event.message;
  const bool of_this_epoch = m.epoch == f.epoch || missing(Rule::F3);
  if (!of_this_epoch || f.awaited != Command::None) return Outcome::Stale;
  const GiveUpReason bad = check_progress(f.sample, m.progress);
  if (bad != GiveUpReason::None) {
    fail(s, bad);
    return Outcome::Acted;
  }
  f.peer = Offer{m.epoch, m.data_epoch, m.endpoint, m.progress};
  f.resend_at = kNever;
  command(s, Command::Connect, f.epoch);
  return Outcome::Acted;
}

Outcome fenced(Step& s) {
  if (!is_awaited(s, Command::Fence)) return Outcome::Stale;
  take_sample(s);
  prepare_in_time(s);
  return Outcome::Acted;
}

Outcome qp_prepared(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Prepare)) return Outcome::Stale;
  make_offer(s);
  f.state = State::Requesting;
  f.attempt = f.resends = 0;
  emit(s, ActionType::SendReq);
  schedule_resend(s);
  return Outcome::Acted;
}

Outcome qp_connected(Step& s) {
  Fsm& f = s.fsm;
  if (!is_awaited(s, Command::Connect)) return Outcome::Stale;
  f.awaited = Command::None;
  begin_replay(s);
  f.commit_pending = true;
  f.attempt = 0;
  emit(s, ActionType::SendCommit);
  schedule_resend(s);
  return Outcome::Acted;
}

Outcome connect_failed(Step& s) {
  if (!is_awaited(s, Command::Connect)) return Outcome::Stale;
  lose_link(s);
  return Outcome::Acted;
}

Outcome rc_receive(Step& s) {
  Fsm& f = s.fsm;
  if (s.event.epoch != f.epoch) return Outcome::Stale;
  f.heard = true;
  f.commit_pending = false;
  f.resend_at = kNever;
  return Outcome::Acted;
}

// clang-format off
// Columns:           Closed            Fencing            Requesting      Nudging  Prepared  Replaying       Active          Suspect         Closing           Failed
constexpr Table kLeader = {{
/* Submit        */ {{open,             ignore,            ignore,         never,   never,    ignore,         wake,           wake,           ignore,           ignore}},
/* Req           */ {{wrong_role,       wrong_role,        wrong_role,     never,   never,    wrong_role,     wrong_role,     wrong_role,     wrong_role,       wrong_role}},
/* Rep           */ {{answer_closed,    stale,             rep,            never,   never,    stale,          stale,          stale,          say_bye,          say_rej}},
/* Commit        */ {{wrong_role,       wrong_role,        wrong_role,     never,   never,    wrong_role,     wrong_role,     wrong_role,     wrong_role,       wrong_role}},
/* Nudge         */ {{nudge_closed,     nudge_fencing,     nudge,          never,   never,    nudge,          nudge,          nudge,          say_bye,          say_rej}},
/* Hb            */ {{heartbeat_closed, answer_heartbeat,  heartbeat,      never,   never,    heartbeat,      heartbeat,      heartbeat,      answer_heartbeat, say_rej}},
/* HbAck         */ {{heartbeat_closed, answer_heartbeat,  heartbeat,      never,   never,    heartbeat,      heartbeat,      heartbeat,      answer_heartbeat, heard}},
/* Busy          */ {{heard,            heard,             busy,           never,   never,    heard,          heard,          heard,          heard,            heard}},
/* Bye           */ {{bye_closed,       bye,               bye,            never,   never,    bye,            bye,            bye,            bye_closing,      bye_failed}},
/* ByeAck        */ {{heard,            heard,             heard,          never,   never,    heard,          heard,          heard,          bye_ack,          heard}},
/* Rej           */ {{heard,            rej,               rej,            never,   never,    rej,            rej,            rej,            heard,            heard}},
/* Key           */ {{heard,            heard,             heard,          never,   never,    heard,          heard,          heard,          heard,            heard}},
/* FenceDone     */ {{stale,            fenced,            stale,          never,   never,    stale,          stale,          stale,          closing_fenced,   failed_fenced}},
/* FenceFailed   */ {{stale,            fence_failed,      stale,          never,   never,    stale,          stale,          stale,          closing_fenced,   failed_fenced}},
/* QpReady       */ {{stale,            qp_prepared,       qp_connected,   never,   never,    stale,          stale,          stale,          closing_qp,       stale}},
/* QpFailed      */ {{stale,            qp_failed,         connect_failed, never,   never,    stale,          stale,          stale,          closing_qp,       stale}},
/* LinkLost      */ {{stale,            link_lost_fencing, link_lost,      never,   never,    link_lost,      link_lost,      link_lost,      ignore,           ignore}},
/* RcReceive     */ {{stale,            stale,             stale,          never,   never,    rc_receive,     rc_receive,     rc_receive,     ignore,           ignore}},
/* LogEmpty      */ {{stale,            stale,             stale,          never,   never,    log_empty,      ignore,         ignore,         ignore,           ignore}},
/* ProbeOk       */ {{stale,            stale,             stale,          never,   never,    probe_ok,       probe_ok,       probe_ok,       ignore,           ignore}},
/* ProbeFailed   */ {{stale,            stale,             stale,          never,   never,    link_lost,      link_lost,      link_lost,      ignore,           ignore}},
/* Timer         */ {{ignore,           timer,             timer,          never,   never,    timer,          timer,          timer,          timer,            ignore}},
/* PortDown      */ {{port_down,        port_down,         port_down,      never,   never,    port_down,      port_down,      port_down,      port_down,        port_down}},
/* PortUp        */ {{port_up,          port_up,           port_up,        never,   never,    port_up,        port_up,        port_up,        port_up,          port_up}},
/* Close         */ {{close_closed,     close_live,        close_live,     never,   never,    close_live,     close_live,     close_live,     ignore,           close_failed}},
/* Flushed       */ {{ignore,           flushed,           flushed,        never,   never,    flushed,        flushed,        flushed,        ignore,           ignore}},
/* NotRepairable */ {{not_repairable,   not_repairable,    not_repairable, never,   never,    not_repairable, not_repairable, not_repairable, ignore,           ignore}},
}};
// clang-format on

}  // namespace

const Table& leader_table() { return kLeader; }

void retry_prepare(Step& s) {
  if (s.fsm.role == Role::Leader && s.fsm.awaited == Command::None) prepare(s);
}

}  // namespace mend::conn::rules
