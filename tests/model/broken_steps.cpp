#include "tests/model/broken_steps.h"

namespace mend::conn::model {
namespace {

// A message as if it were of the present epoch.
Outcome as_current(Fsm& f, const Event& event, Epoch epoch, TimeNs now, Actions& out) {
  CtlMessage message = *event.message;
  message.epoch = epoch;
  return step(f, message_event(message), now, out);
}

// The action is never taken.
template <ActionType type>
Outcome without(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  Actions all;
  const Outcome outcome = step(f, event, now, all);
  for (const Action& action : all)
    if (action.type != type) out.push(action);
  return outcome;
}

// The message is not repeated.
template <ActionType type>
Outcome sent_once(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind != EventKind::Timer) return step(f, event, now, out);
  return without<type>(f, event, now, out);
}

bool is_old(const Fsm& f, const Event& event) { return event.epoch < f.epoch; }

Outcome old_nudge_obeyed(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Nudge && is_old(f, event))
    return as_current(f, event, f.epoch, now, out);
  return step(f, event, now, out);
}

Outcome nudge_ignored_in_requesting(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Nudge && f.state == State::Requesting) return Outcome::Ignored;
  return step(f, event, now, out);
}

Outcome old_req_accepted(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Req && is_old(f, event))
    return as_current(f, event, f.epoch.next(), now, out);
  return step(f, event, now, out);
}

Outcome repeated_req_unanswered(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Req && event.epoch == f.epoch) return Outcome::Ignored;
  return step(f, event, now, out);
}

Outcome nudging_answers_req(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const Outcome outcome = step(f, event, now, out);
  if (event.kind == EventKind::Req && event.epoch == f.epoch && f.state == State::Nudging) {
    Action reply;
    reply.type = ActionType::SendRep;
    reply.epoch = f.epoch;
    out.push(reply);
  }
  return outcome;
}

Outcome any_rep_used(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Rep && is_old(f, event))
    return as_current(f, event, f.epoch, now, out);
  return step(f, event, now, out);
}

Outcome rep_used_again(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Rep && event.epoch == f.epoch && may_post(f.state))
    f.state = State::Requesting;
  return step(f, event, now, out);
}

Outcome replay_when_prepared(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const Outcome outcome = step(f, event, now, out);
  if (event.kind != EventKind::QpReady || f.state != State::Prepared) return outcome;
  Action replay;
  replay.type = ActionType::StartReplay;
  replay.epoch = f.epoch;
  replay.seq = f.peer.progress.rx_next;
  out.push(replay);
  return outcome;
}

Outcome any_heartbeat_releases(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind != EventKind::Hb || f.state != State::Prepared) return step(f, event, now, out);
  CtlMessage message = *event.message;
  message.state = State::Active;
  return step(f, message_event(message), now, out);
}

Outcome commit_in_nudging(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Commit && f.state == State::Nudging) f.state = State::Prepared;
  return step(f, event, now, out);
}

Outcome replaying_keeps_a_dead_link(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::LinkLost && f.state == State::Replaying) return Outcome::Ignored;
  return step(f, event, now, out);
}

Outcome receive_does_not_release(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::RcReceive && f.state == State::Prepared) return Outcome::Ignored;
  return step(f, event, now, out);
}

Outcome bye_before_flush(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  Event early = event;
  early.traffic.outstanding = false;
  return step(f, event.kind == EventKind::Close ? early : event, now, out);
}

Outcome bye_ack_waited_for_without_limit(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (event.kind == EventKind::Timer && now >= f.bye_until) return Outcome::Ignored;
  return step(f, event, now, out);
}

Outcome departed_is_silent(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (f.departed && event.kind != EventKind::Timer) {
    const bool talk = event.kind == EventKind::Req || event.kind == EventKind::Nudge;
    if (talk) return Outcome::Ignored;
  }
  return step(f, event, now, out);
}

Outcome closed_reopens(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const bool opens = event.kind == EventKind::Req || event.kind == EventKind::Nudge;
  if (opens && f.state == State::Closed) f.departed = false;
  return step(f, event, now, out);
}

Outcome closing_is_failed(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const bool ends =
      event.kind == EventKind::Rej || (event.kind == EventKind::Timer && now >= deadline_of(f));
  if (ends) f.closing = false;
  return step(f, event, now, out);
}

Outcome failed_is_silent(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (f.state != State::Failed) return step(f, event, now, out);
  return without<ActionType::SendRej>(f, event, now, out);
}

Outcome early_count(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const FenceSample before = f.sample;
  if (event.kind != EventKind::FenceDone) return step(f, event, now, out);
  Event early = event;
  early.sample.rx_next = before.rx_next;
  return step(f, early, now, out);
}

Outcome epoch_skips(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  if (f.role == Role::Leader && event.kind == EventKind::QpReady && f.state == State::Fencing &&
      f.epoch.value > 0)
    f.pending = f.pending.next();
  return step(f, event, now, out);
}

Outcome follower_counts_epochs(Fsm& f, const Event& event, TimeNs now, Actions& out) {
  const Outcome outcome = step(f, event, now, out);
  if (f.role == Role::Follower && event.kind == EventKind::LinkLost) f.epoch = f.epoch.next();
  return outcome;
}

}  // namespace

std::vector<BrokenStep> broken_steps() {
  return {{"OldNudgeObeyed", old_nudge_obeyed},
          {"NudgeIgnoredInRequesting", nudge_ignored_in_requesting},
          {"OldReqAccepted", old_req_accepted},
          {"RepeatedReqUnanswered", repeated_req_unanswered},
          {"NudgingAnswersReq", nudging_answers_req},
          {"AnyRepUsed", any_rep_used},
          {"RepUsedAgain", rep_used_again},
          {"ReplayWhenPrepared", replay_when_prepared},
          {"AnyHeartbeatReleases", any_heartbeat_releases},
          {"CommitInNudging", commit_in_nudging},
          {"ReplayingKeepsADeadLink", replaying_keeps_a_dead_link},
          {"ReceiveDoesNotRelease", receive_does_not_release},
          {"CommitSentOnce", sent_once<ActionType::SendCommit>},
          {"NudgeSentOnce", sent_once<ActionType::SendNudge>},
          {"ReqSentOnce", sent_once<ActionType::SendReq>},
          {"PreparedIsSilent", sent_once<ActionType::SendRep>},
          {"ByeSentOnce", sent_once<ActionType::SendBye>},
          {"ByeUnanswered", without<ActionType::SendByeAck>},
          {"ByeBeforeFlush", bye_before_flush},
          {"ByeAckWaitedForWithoutLimit", bye_ack_waited_for_without_limit},
          {"DepartedIsSilent", departed_is_silent},
          {"ClosedReopens", closed_reopens},
          {"ClosingIsFailed", closing_is_failed},
          {"FailedIsSilent", failed_is_silent},
          {"GivesUpSilently", without<ActionType::GiveUp>},
          {"NoFence", without<ActionType::Fence>},
          {"EarlyCount", early_count},
          {"EpochSkips", epoch_skips},
          {"FollowerCountsEpochs", follower_counts_epochs}};
}

}  // namespace mend::conn::model
