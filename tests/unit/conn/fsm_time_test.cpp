// Time in the state machine: heartbeats and probes (docs/protocol.md 1.9), back-off, ports,
// deadline and the orderly end (1.10).
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/conn/fsm_kit.h"

namespace mend::conn::test {
namespace {

using T = ActionType;
constexpr TimeNs kBeat = 500 * kMillisecond;

// Ticks with nothing heard until the machine does `what` or `limit` ticks passed; the number of
// ticks.
unsigned ticks_until(Fsm& f, T what, TimeNs& now, const Traffic& traffic, unsigned limit = 20) {
  for (unsigned i = 1; i <= limit; ++i) {
    now += kBeat;
    if (run(f, timer_event(traffic), now).has(what)) return i;
  }
  return limit + 1;
}

TEST(Heartbeat, SilenceMakesSuspectThenProbes) {
  Fsm f = machine(Role::Leader, State::Active);
  const Traffic waiting{false, true, false};
  TimeNs now = kStart;
  EXPECT_EQ(ticks_until(f, T::SendHb, now, waiting), 1u);
  EXPECT_EQ(f.state, State::Active);
  run(f, timer_event(waiting), now += kBeat);
  EXPECT_EQ(f.state, State::Suspect) << "one miss";
  EXPECT_EQ(ticks_until(f, T::Probe, now, waiting), 2u) << "three misses";
  EXPECT_EQ(run(f, EventKind::ProbeFailed, kCur, now).names(), "Fence");
}

TEST(Heartbeat, ProbeOkIsAFalseAlarm) {
  Fsm f = machine(Role::Leader, State::Active);
  TimeNs now = kStart;
  ticks_until(f, T::Probe, now, {false, true, false});
  ASSERT_EQ(f.state, State::Suspect);
  run(f, EventKind::ProbeOk, kCur, now);
  EXPECT_EQ(f.state, State::Active);
  EXPECT_EQ(f.misses, 0u);
}

TEST(Heartbeat, LostProbeIsNotWaitedForForEver) {
  Fsm f = machine(Role::Leader, State::Active);
  TimeNs now = kStart;
  ticks_until(f, T::Probe, now, {false, true, false});
  const Result r = run(f, timer_event({false, true, false}), now + kit_config().probe_limit);
  EXPECT_EQ(r.names(), "Fence");
}

TEST(Heartbeat, OneProbeAtATime) {
  Fsm f = machine(Role::Leader, State::Active);
  TimeNs now = kStart;
  ticks_until(f, T::Probe, now, {false, true, false});
  EXPECT_FALSE(run(f, timer_event({false, true, true}), now + kBeat).has(T::Probe));
}

TEST(Heartbeat, AnythingHeardEndsTheSuspicion) {
  Fsm by_message = machine(Role::Leader, State::Suspect);
  run(by_message, message(MsgType::HbAck, kCur));
  EXPECT_EQ(by_message.state, State::Active);
  Fsm by_key = machine(Role::Follower, State::Suspect);
  run(by_key, message(MsgType::KeyReq, kCur));
  EXPECT_EQ(by_key.state, State::Active);
  Fsm by_rc = machine(Role::Leader, State::Suspect);
  run(by_rc, timer_event({true, true, false}), kStart + kBeat);
  EXPECT_EQ(by_rc.state, State::Active);
}

TEST(Heartbeat, TrafficNeedsNoHeartbeats) {
  Fsm f = machine(Role::Leader, State::Active);
  TimeNs now = kStart;
  EXPECT_EQ(ticks_until(f, T::SendHb, now, {true, true, false}, 50), 51u);
}

TEST(Heartbeat, IdleConnectionsCostNothing) {
  Fsm f = machine(Role::Leader, State::Active);
  f.last_traffic = kStart;
  TimeNs now = kStart;
  unsigned beats = 0, wakes = 0;
  while (now < kStart + 600 * kSecond) {
    now = f.armed_at == kNever ? now + kSecond : std::max(now + 1, f.armed_at);
    const Result r = run(f, timer_event({}), now);
    ++wakes;
    if (!r.has(T::SendHb)) continue;
    ++beats;
    run(f, message(MsgType::HbAck, kCur), now);
  }
  EXPECT_LE(beats, 20u) << "only until heartbeat_idle";
  EXPECT_LE(wakes, 100u);
  run(f, EventKind::Submit, {}, now);
  EXPECT_LE(f.armed_at, now + kBeat) << "traffic again: watched again";
}

// A thousand of them for an hour: no message, and one look each per heartbeat_idle.
TEST(Heartbeat, AThousandIdleConnectionsSendNothing) {
  constexpr std::size_t kMany = 1000;
  constexpr TimeNs kHour = 3600 * kSecond;
  std::vector<Fsm> machines;
  for (std::size_t i = 0; i < kMany; ++i) {
    machines.push_back(machine(i % 2 == 0 ? Role::Leader : Role::Follower, State::Active));
    machines.back().last_traffic = kStart;
  }
  std::uint64_t looks = 0, messages = 0;
  const TimeNs settled = kStart + 2 * kit_config().heartbeat_idle;
  for (Fsm& f : machines) {
    TimeNs now = kStart;
    while (now < settled + kHour) {
      const Result r = run(f, timer_event({}), now);
      if (now > settled) {
        ++looks;
        for (const Action& action : r.actions) messages += action.type != T::ArmTimer ? 1 : 0;
      } else if (r.has(T::SendHb)) {
        run(f, message(MsgType::HbAck, kCur), now);
      }
      ASSERT_GT(f.armed_at, now);
      now = f.armed_at;
    }
  }
  EXPECT_EQ(messages, 0u);
  EXPECT_LE(looks, kMany * (kHour / kit_config().heartbeat_idle + 1));
}

TEST(Heartbeat, OutstandingWorkIsWatchedHoweverLong) {
  Fsm f = machine(Role::Leader, State::Active);
  TimeNs now = kStart + 60 * kSecond;
  run(f, timer_event({false, true, false}), now);
  EXPECT_LE(f.heartbeat_at, now + kBeat);
}

TEST(Heartbeat, StaleCompletionIsProbedUnlessThePeerHasNoBuffers) {
  Fsm f = machine(Role::Leader, State::Active);
  EXPECT_TRUE(run(f, timer_event({true, true, true}), kStart + 1).has(T::Probe));
  Fsm slow = machine(Role::Leader, State::Active);
  CtlMessage hb = message(MsgType::Hb, kCur);
  hb.srq_free = 0;
  run(slow, hb);
  EXPECT_FALSE(run(slow, timer_event({true, true, true}), kStart + 1).has(T::Probe));
}

TEST(Heartbeat, CarriesTheNudge) {
  Fsm f = machine(Role::Leader, State::Active);
  EXPECT_TRUE(run(f, message(MsgType::Hb, kCur, State::Nudging)).has(T::Fence));
  Fsm old = machine(Role::Leader, State::Active);
  EXPECT_FALSE(run(old, message(MsgType::Hb, Epoch{2}, State::Nudging)).has(T::Fence));
}

TEST(Heartbeat, CanBeSwitchedOff) {
  FsmConfig config;
  config.heartbeat = 0;
  Fsm f = machine(Role::Follower, State::Prepared, config);
  run(f, message(MsgType::Commit, kCur));
  run(f, EventKind::LogEmpty, kCur);
  EXPECT_EQ(f.armed_at, kNever);
}

TEST(Timer, MovedOnesDoNotMultiply) {
  Fsm f = machine(Role::Leader, State::Active);
  const Result armed = run(f, timer_event({}), kStart);
  const TimeNs first = armed.find(T::ArmTimer)->at;
  EXPECT_TRUE(run(f, timer_event({}), first).has(T::ArmTimer)) << "it fired";
  EXPECT_FALSE(run(f, timer_event({}), first).has(T::ArmTimer)) << "a leftover of the same time";
  EXPECT_FALSE(run(f, timer_event({}), first + 1).has(T::ArmTimer)) << "an older one";
}

// --- back-off ---

TEST(Backoff, DoublesWithinItsLimits) {
  const BackoffLimits limits;
  EXPECT_EQ(backoff_base(limits, 0), 0u);
  EXPECT_EQ(backoff_base(limits, 1), 10 * kMillisecond);
  EXPECT_EQ(backoff_base(limits, 2), 20 * kMillisecond);
  EXPECT_EQ(backoff_base(limits, 8), 1280 * kMillisecond);
  EXPECT_EQ(backoff_base(limits, 9), 2 * kSecond);
  EXPECT_EQ(backoff_base(limits, 4000000000u), 2 * kSecond);
}

TEST(Backoff, JitterStaysWithinAQuarterAndSpreads) {
  const BackoffLimits limits;
  std::uint64_t random = 1;
  TimeNs least = kNever, most = 0;
  for (unsigned i = 0; i < 2000; ++i) {
    const TimeNs delay = backoff_delay(limits, 9, random);
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, 1500 * kMillisecond);
  EXPECT_LT(most, 2500 * kMillisecond);
  EXPECT_GT(most - least, 900 * kMillisecond);
}

TEST(Backoff, AnAnswerResetsItAndBusyDoesNot) {
  Fsm f = machine(Role::Leader, State::Requesting);
  f.attempt = 9;
  f.resend_at = kStart + 2 * kSecond;
  run(f, message(MsgType::Busy, kCur));
  EXPECT_EQ(f.resend_at, kStart + 2 * kSecond);
  run(f, message(MsgType::HbAck, Epoch{2}, State::Active));
  EXPECT_EQ(f.resend_at, kStart + 10 * kMillisecond);
  EXPECT_EQ(f.attempt, 1u);
}

TEST(Backoff, EpochsThatBreakAtOnceAreNotRetriedAtOnce) {
  Fsm f = machine(Role::Leader, State::Active);
  f.epoch_tries = 1;
  f.active_since = kStart - kMillisecond;  // it broke a millisecond after it came up
  run(f, EventKind::LinkLost, kCur);
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "");
  EXPECT_GT(f.armed_at, kStart);
  Fsm steady = machine(Role::Leader, State::Active);
  steady.epoch_tries = 1;
  run(steady, EventKind::LinkLost, kCur);
  EXPECT_EQ(done(steady, EventKind::FenceDone).names(), "PrepareQp");
}

// A leader whose epochs have not held for 100 s loses the link, and its fence ends with `sample`.
Result fenced_after_many(Fsm& f, const FenceSample& sample, TimeNs now) {
  f = machine(Role::Leader, State::Replaying);
  f.sample = FenceSample{Seq{7}, Seq{5}, Seq{9}};
  f.epoch_tries = 9;
  f.outage_since = kStart - 100 * kSecond;
  run(f, EventKind::LinkLost, kCur, kStart);
  Event fenced = work_event(EventKind::FenceDone, f.work);
  fenced.sample = sample;
  return run(f, fenced, now);
}

// A job whose queue pairs break all the time was slowed to one epoch every 2 s, and given up after
// max_outage, although every epoch carried messages: what moved data in either direction did not
// fail.
TEST(Backoff, EpochsThatMoveDataAreFollowedAtOnceAndBeginTheOutageAnew) {
  for (const auto& moved :
       {FenceSample{Seq{8}, Seq{5}, Seq{9}}, FenceSample{Seq{7}, Seq{6}, Seq{9}}}) {
    Fsm f;
    EXPECT_EQ(fenced_after_many(f, moved, kStart + kSecond).names(), "PrepareQp");
    EXPECT_EQ(deadline_of(f), kStart + kit_config().max_outage) << "from the break, not its fence";
  }
}

TEST(Backoff, EpochsThatMoveNothingAreNot) {
  Fsm f;  // more was submitted, nothing arrived
  EXPECT_EQ(fenced_after_many(f, FenceSample{Seq{7}, Seq{5}, Seq{30}}, kStart).names(), "");
  EXPECT_EQ(deadline_of(f), kStart - 100 * kSecond + kit_config().max_outage);
}

// --- ports ---

TEST(Ports, NothingIsTriedWhileThePortIsDownAndTheGraceIsKept) {
  Fsm f = machine(Role::Follower, State::Nudging);
  f.resend_at = kStart + kMillisecond;
  run(f, EventKind::PortDown, {});
  EXPECT_EQ(run(f, timer_event({}), kStart + kSecond).names(), "");
  const TimeNs up = kStart + 30 * kSecond;
  run(f, EventKind::PortUp, {}, up);
  EXPECT_EQ(f.armed_at, up + 200 * kMillisecond);
  EXPECT_TRUE(run(f, timer_event({}), f.armed_at).has(T::SendNudge));
}

TEST(Ports, LeaderPreparesWhenThePortIsBack) {
  Fsm f = machine(Role::Leader, State::Fencing);
  run(f, EventKind::PortDown, {});
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "");
  run(f, EventKind::PortUp, {}, kStart + kSecond);
  EXPECT_TRUE(run(f, timer_event({}), kStart + 1200 * kMillisecond).has(T::PrepareQp));
}

TEST(Ports, PreparedFollowerRepeatsItsRep) {
  Fsm f = machine(Role::Follower, State::Prepared);
  run(f, EventKind::PortDown, {});
  run(f, EventKind::PortUp, {}, kStart);
  EXPECT_EQ(run(f, timer_event({}), kStart + 200 * kMillisecond).names(), "SendRep");
  EXPECT_EQ(run(f, timer_event({}), f.armed_at).names(), "SendRep");
}

// --- deadline ---

TEST(Deadline, GivesUpOnceAfterMaxOutage) {
  for (const auto& [role, state] : {std::pair{Role::Leader, State::Requesting},
                                    {Role::Follower, State::Nudging},
                                    {Role::Follower, State::Prepared},
                                    {Role::Leader, State::Fencing}}) {
    Fsm f = machine(role, state);
    f.outage_since = kStart;
    run(f, timer_event({}), kStart + 119 * kSecond);
    EXPECT_NE(f.state, State::Failed);
    const Result r = run(f, timer_event({}), kStart + 120 * kSecond);
    ASSERT_TRUE(r.has(T::GiveUp)) << to_string(state);
    EXPECT_EQ(r.find(T::GiveUp)->reason, GiveUpReason::Deadline);
    EXPECT_EQ(compose(f, *r.find(T::SendRej), {}, 0).reason, RejReason::Deadline);
    EXPECT_FALSE(run(f, timer_event({}), kStart + 500 * kSecond).has(T::GiveUp));
  }
}

TEST(Deadline, CountsFromTheFirstLossNotTheLast) {
  Fsm f = machine(Role::Leader, State::Active);
  run(f, EventKind::LinkLost, kCur, kStart);
  done(f, EventKind::FenceDone, kStart);
  done(f, EventKind::QpReady, kStart + kSecond);
  run(f, EventKind::LinkLost, f.epoch, kStart + 60 * kSecond);
  EXPECT_EQ(deadline_of(f), kStart + 120 * kSecond);
}

TEST(Deadline, ActiveEndsTheOutage) {
  Fsm f = machine(Role::Leader, State::Replaying);
  EXPECT_NE(deadline_of(f), kNever);
  EXPECT_EQ(run(f, EventKind::LogEmpty, kCur).names(), "Up");
  EXPECT_EQ(deadline_of(f), kNever);
}

TEST(Deadline, BusyPausesItAtMostOnceMore) {
  Fsm f = machine(Role::Leader, State::Requesting);
  f.outage_since = kStart;
  TimeNs now = kStart;
  for (; now < kStart + 60 * kSecond; now += kSecond) run(f, message(MsgType::Busy, kCur), now);
  EXPECT_GT(deadline_of(f), kStart + 175 * kSecond);
  EXPECT_LE(deadline_of(f), kStart + 180 * kSecond);
  for (; now < kStart + 239 * kSecond; now += kSecond) {
    run(f, timer_event({}), now);
    run(f, message(MsgType::Busy, kCur), now);
  }
  EXPECT_NE(f.state, State::Failed);
  run(f, timer_event({}), kStart + 240 * kSecond);
  EXPECT_EQ(f.state, State::Failed);
}

// It has not looked us up because its application computes: for hours, if need be.
TEST(Deadline, ABusyProcessThatHasNotMetUsIsWaitedFor) {
  Fsm f = machine(Role::Leader, State::Requesting);
  const TimeNs limit = kit_config().max_outage;
  TimeNs now = kStart;
  const CtlMessage text = message(MsgType::Busy, kCur);
  Event busy = message_event(text);
  busy.not_met = true;
  for (int i = 0; i < 10; ++i) {
    now += limit / 2;
    EXPECT_FALSE(run(f, timer_event({}), now).has(T::GiveUp)) << i;
    run(f, busy, now);
  }
  EXPECT_TRUE(run(f, timer_event({}), now + limit).has(T::GiveUp)) << "silence still ends it";
}

TEST(Deadline, ZeroMeansForEver) {
  FsmConfig config;
  config.max_outage = 0;
  Fsm f = machine(Role::Leader, State::Requesting, config);
  EXPECT_EQ(deadline_of(f), kNever);
}

// --- rejection ---

TEST(Rejection, OldOnesAreIgnoredButARestartedPeerIsNot) {
  Fsm f = machine(Role::Leader, State::Active);
  CtlMessage old = message(MsgType::Rej, Epoch{2});
  old.reason = RejReason::Deadline;
  EXPECT_EQ(run(f, old).outcome, Outcome::Stale);
  old.reason = RejReason::StaleBoot;
  const Result r = run(f, old);
  EXPECT_EQ(f.failure, GiveUpReason::PeerRejected);
  EXPECT_FALSE(r.has(T::SendRej)) << "no answer to a rejection";
}

// --- the orderly end ---

TEST(Closing, FlushesFirst) {
  Fsm f = machine(Role::Leader, State::Active);
  Event close = simple_event(EventKind::Close);
  close.traffic.outstanding = true;
  EXPECT_EQ(run(f, close).names(), "");
  EXPECT_EQ(f.state, State::Active);
  run(f, EventKind::LinkLost, kCur);
  EXPECT_EQ(f.state, State::Fencing) << "what is left is still recovered";
  done(f, EventKind::FenceDone);
  done(f, EventKind::QpReady);
  run(f, message(MsgType::Rep, f.epoch));
  done(f, EventKind::QpReady);
  EXPECT_EQ(run(f, EventKind::Flushed, {}).names(), "Up SendBye") << "it was repaired";
  EXPECT_EQ(run(f, message(MsgType::ByeAck, f.epoch)).names(), "Fence");
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "Closed");
  EXPECT_EQ(f.state, State::Closed);
}

TEST(Closing, MissingByeAckIsWaitedForOneSecond) {
  Fsm f = machine(Role::Follower, State::Active);
  EXPECT_EQ(run(f, EventKind::Close, {}).names(), "SendBye");
  unsigned byes = 0;
  TimeNs now = kStart;
  while (!f.bye_done) {
    now = f.armed_at;
    const Result r = run(f, timer_event({}), now);
    if (r.has(T::SendBye)) ++byes;
    if (r.has(T::Fence)) break;
  }
  EXPECT_GE(byes, 3u) << "it is repeated";
  EXPECT_EQ(now, kStart + kSecond);
}

TEST(Closing, PeersByeEndsItOnBothSides) {
  for (const Role role : {Role::Leader, Role::Follower}) {
    Fsm f = machine(role, State::Active);
    EXPECT_EQ(run(f, message(MsgType::Bye, kCur)).names(), "SendByeAck Fence");
    EXPECT_EQ(done(f, EventKind::FenceDone).names(), "Closed");
    EXPECT_EQ(run(f, message(MsgType::Bye, kCur)).names(), "SendByeAck") << "its BYE_ACK was lost";
    EXPECT_EQ(run(f, EventKind::Submit, {}).names(), "") << "nothing reopens it";
    EXPECT_EQ(run(f, message(MsgType::Hb, kCur)).names(), "SendBye");
  }
}

// A peer that leaves needs nothing more: what was replayed has reached it, whether or not it said
// so before. The side that replayed used to count no recovery then.
TEST(Closing, AByeDuringTheReplayEndsTheOutage) {
  for (const Role role : {Role::Leader, Role::Follower}) {
    Fsm f = machine(role, State::Replaying);
    EXPECT_EQ(run(f, message(MsgType::Bye, kCur)).names(), "SendByeAck Up Fence");
    EXPECT_EQ(f.state, State::Closing);
  }
}

TEST(Closing, ExpiryDuringTheReplayIsNoRecovery) {
  Fsm f = machine(Role::Leader, State::Replaying);
  Event close = simple_event(EventKind::Close);
  close.traffic.outstanding = true;
  run(f, close);
  EXPECT_FALSE(run(f, timer_event({}), deadline_of(f)).has(T::Up));
  EXPECT_EQ(f.state, State::Closing);
}

TEST(Closing, NoRecoveryAfterBye) {
  Fsm follower = machine(Role::Follower, State::Active);
  run(follower, EventKind::Close, {});
  EXPECT_EQ(run(follower, message(MsgType::Req, kCur.next())).names(), "SendBye");
  EXPECT_EQ(run(follower, EventKind::LinkLost, kCur).names(), "");
  EXPECT_EQ(follower.state, State::Closing);
  run(follower, message(MsgType::ByeAck, kCur));
  done(follower, EventKind::FenceDone);
  EXPECT_EQ(run(follower, message(MsgType::Req, kCur.next())).names(), "SendBye");
  EXPECT_EQ(follower.state, State::Closed);
}

TEST(Closing, ByeOfAFollowerThatIsBehindCounts) {
  Fsm f = machine(Role::Leader, State::Requesting);  // epoch 3 asked for, data_epoch 2
  run(f, message(MsgType::Bye, Epoch{2}));
  EXPECT_EQ(f.state, State::Closing);
  Fsm up = machine(Role::Leader, State::Active);  // data on 3: a BYE of 2 is a ghost
  EXPECT_EQ(run(up, message(MsgType::Bye, Epoch{2})).outcome, Outcome::Stale);
  EXPECT_EQ(up.state, State::Active);
}

TEST(Closing, ExpiryWarnsAndEnds) {
  Fsm f = machine(Role::Leader, State::Requesting);
  f.outage_since = kStart;
  Event close = simple_event(EventKind::Close);
  close.traffic.outstanding = true;
  run(f, close);
  const Result r = run(f, timer_event({}), kStart + 120 * kSecond);
  ASSERT_TRUE(r.has(T::GiveUp));
  EXPECT_EQ(r.find(T::GiveUp)->reason, GiveUpReason::FlushExpired);
  EXPECT_EQ(f.state, State::Closing) << "not Failed";
}

TEST(Closing, CommandsInFlightAreWaitedFor) {
  Fsm f = machine(Role::Leader, State::Fencing);
  done(f, EventKind::FenceDone);
  const std::uint32_t prepare = f.work;
  EXPECT_EQ(run(f, message(MsgType::Bye, kCur)).names(), "SendByeAck Fence");
  EXPECT_EQ(run(f, work_event(EventKind::QpReady, prepare)).outcome, Outcome::Stale);
  EXPECT_EQ(f.state, State::Closing);
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "Closed");
}

TEST(Closing, FailedTellsWhenTheQpIsGone) {
  Fsm f = machine(Role::Leader, State::Active);
  run(f, EventKind::NotRepairable, {});
  EXPECT_EQ(run(f, EventKind::Close, {}).names(), "");
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "Closed");
  EXPECT_EQ(f.state, State::Failed);
}

}  // namespace
}  // namespace mend::conn::test
