// The rules F1..F8 of docs/protocol.md 1.5, each with tests named after it, and the model's
// mutations that concern the machine (MUT=n in tests/model/recovery2.pml) as the datagram that
// would do the harm.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/conn/fsm_kit.h"

namespace mend::conn::test {
namespace {

using T = ActionType;

// --- F1: fence before count ---

TEST(F1, LeaderAsksOnlyWithWhatTheFenceCounted) {  // MUT 12, 14
  Fsm f = machine(Role::Leader, State::Active);
  const Result lost = run(f, EventKind::LinkLost, kCur);
  EXPECT_EQ(lost.names(), "Fence");
  EXPECT_FALSE(lost.has(T::SendReq));
  Event fenced = work_event(EventKind::FenceDone, f.work);
  fenced.sample = FenceSample{Seq{11}, Seq{12}, Seq{13}};
  EXPECT_EQ(run(f, fenced).names(), "PrepareQp");
  const Result ready = done(f, EventKind::QpReady);
  const CtlMessage m = compose(f, *ready.find(T::SendReq), Seq{99}, 0);
  EXPECT_EQ(m.progress.rx_next, Seq{11}) << "not what is current when it is sent";
  EXPECT_EQ(m.progress.tx_acked, Seq{12});
}

TEST(F1, FollowerAnswersOnlyAfterItsFence) {  // MUT 11, 13
  Fsm f = machine(Role::Follower, State::Active);
  EXPECT_EQ(run(f, message(MsgType::Req, kCur.next())).names(), "Fence");
  Event fenced = work_event(EventKind::FenceDone, f.work);
  fenced.sample = FenceSample{Seq{21}, Seq{7}, Seq{9}};
  EXPECT_EQ(run(f, fenced).names(), "PrepareQp");
  const Result ready = done(f, EventKind::QpReady);
  EXPECT_EQ(compose(f, *ready.find(T::SendRep), Seq{99}, 0).progress.rx_next, Seq{21});
}

TEST(F1, ResultOfASupersededFenceIsNotUsed) {
  Fsm f = machine(Role::Leader, State::Fencing);
  Event old = work_event(EventKind::FenceDone, f.work - 1);
  EXPECT_EQ(run(f, old).outcome, Outcome::Stale);
  EXPECT_EQ(f.state, State::Fencing);
  EXPECT_EQ(f.awaited, Command::Fence);
}

TEST(F1, FailedFenceConcludesNothing) {
  Fsm f = machine(Role::Leader, State::Fencing);
  done(f, EventKind::FenceFailed);
  EXPECT_EQ(f.state, State::Failed);
  EXPECT_EQ(f.failure, GiveUpReason::FenceFailed);
}

// --- F2: the epoch only grows ---

TEST(F2, OldReqIsIgnoredAndNeverRejected) {  // MUT 21, 82
  for (const State state :
       {State::Prepared, State::Replaying, State::Active, State::Nudging, State::Fencing}) {
    Fsm f = machine(Role::Follower, state);
    const Result r = run(f, message(MsgType::Req, Epoch{2}));
    EXPECT_EQ(r.outcome, Outcome::Stale) << to_string(state);
    EXPECT_EQ(r.names(), "") << to_string(state);
    EXPECT_EQ(f.state, state);
  }
}

TEST(F2, DuplicateReqGetsTheIdenticalRep) {  // MUT 22, 23
  Fsm f = machine(Role::Follower, State::Fencing);
  run(f, message(MsgType::Req, kCur.next()));
  done(f, EventKind::FenceDone);
  Event ready = work_event(EventKind::QpReady, f.work);
  ready.endpoint.qpn = Qpn{77};
  ready.endpoint.psn = Psn{12345};
  std::byte first[kCtlMaxBytes], again[kCtlMaxBytes];
  const Result prepared = run(f, ready);
  const std::size_t n = encode(compose(f, *prepared.find(T::SendRep), Seq{5}, 1), first);
  const auto repeat = [&] {
    const Result r = run(f, message(MsgType::Req, f.epoch));
    ASSERT_TRUE(r.has(T::SendRep)) << to_string(f.state);
    EXPECT_FALSE(r.has(T::PrepareQp));
    ASSERT_EQ(encode(compose(f, *r.find(T::SendRep), Seq{31}, 9), again), n);
    EXPECT_EQ(std::memcmp(first, again, n), 0) << to_string(f.state);
  };
  repeat();  // Prepared
  run(f, message(MsgType::Commit, f.epoch));
  EXPECT_EQ(f.state, State::Replaying);
  repeat();
  run(f, EventKind::LogEmpty, f.epoch);
  EXPECT_EQ(f.state, State::Active);
  repeat();
}

TEST(F2, NudgingIsSilentOnItsOwnEpoch) {  // MUT 92, one half
  Fsm f = machine(Role::Follower, State::Nudging);
  const Result r = run(f, message(MsgType::Req, kCur));
  EXPECT_EQ(r.names(), "");
  EXPECT_EQ(f.state, State::Nudging);
}

TEST(F2, NudgeOfThePendingEpochTakesTheNextOne) {  // MUT 92, the other half
  Fsm f = machine(Role::Leader, State::Requesting);
  EXPECT_EQ(run(f, message(MsgType::Nudge, kCur)).names(), "Fence");
  EXPECT_EQ(f.pending, kCur.next());
}

TEST(F2, OldNudgeIsANoOp) {  // MUT 72
  for (const State state : {State::Requesting, State::Replaying, State::Active}) {
    Fsm f = machine(Role::Leader, state);
    EXPECT_EQ(run(f, message(MsgType::Nudge, Epoch{2})).outcome, Outcome::Stale);
    EXPECT_EQ(run(f, message(MsgType::Nudge, Epoch{0})).outcome, Outcome::Stale);
    EXPECT_EQ(f.state, state);
  }
}

TEST(F2, LateNudgeDoesNotReopenAClosedConnection) {
  Fsm f = machine(Role::Leader, State::Active);
  run(f, EventKind::Close, {});
  run(f, message(MsgType::ByeAck, kCur));
  done(f, EventKind::FenceDone);
  ASSERT_EQ(f.state, State::Closed);
  EXPECT_EQ(f.epoch, kCur) << "the epoch stays";
  for (const std::uint32_t e : {0u, 2u, 3u})
    EXPECT_EQ(run(f, message(MsgType::Nudge, Epoch{e})).names(), "SendBye");
  EXPECT_EQ(f.state, State::Closed);
}

TEST(F2, NewerReqReplacesTheOneBeingPrepared) {
  Fsm f = machine(Role::Follower, State::Nudging);
  run(f, message(MsgType::Req, Epoch{4}));
  ASSERT_EQ(f.awaited, Command::Prepare);
  const std::uint32_t first = f.work;
  EXPECT_EQ(run(f, message(MsgType::Req, Epoch{5})).names(), "Fence SendBusy");
  EXPECT_EQ(run(f, work_event(EventKind::QpReady, first)).outcome, Outcome::Stale);
  done(f, EventKind::FenceDone);
  done(f, EventKind::QpReady);
  EXPECT_EQ(f.state, State::Prepared);
  EXPECT_EQ(f.epoch, Epoch{5});
}

TEST(F2, FencingAnswersBusy) {
  Fsm f = machine(Role::Follower, State::Active);
  run(f, message(MsgType::Req, Epoch{4}));
  const Result r = run(f, message(MsgType::Req, Epoch{4}));
  ASSERT_TRUE(r.has(T::SendBusy));
  EXPECT_EQ(r.find(T::SendBusy)->epoch, Epoch{4});
  EXPECT_EQ(f.epoch, kCur) << "cur becomes e only in Prepared(e)";
}

// --- F3: a REP is used once ---

TEST(F3, RepOfAnotherEpochIsNotUsed) {  // MUT 31
  Fsm f = machine(Role::Leader, State::Requesting);
  for (const std::uint32_t e : {0u, 2u, 4u})
    EXPECT_EQ(run(f, message(MsgType::Rep, Epoch{e})).outcome, Outcome::Stale);
  EXPECT_EQ(f.state, State::Requesting);
}

TEST(F3, RepIsNotUsedTwice) {  // MUT 32
  Fsm f = machine(Role::Leader, State::Requesting);
  EXPECT_EQ(run(f, message(MsgType::Rep, kCur)).names(), "ConnectQp");
  EXPECT_EQ(run(f, message(MsgType::Rep, kCur)).outcome, Outcome::Stale);
  done(f, EventKind::QpReady);
  ASSERT_EQ(f.state, State::Replaying);
  EXPECT_EQ(run(f, message(MsgType::Rep, kCur)).outcome, Outcome::Stale);
}

// --- F4: every epoch has a QP of its own ---

TEST(F4, EveryEpochPreparesAFreshQpAfterAFence) {
  Fsm f = machine(Role::Leader, State::Requesting);
  for (unsigned i = 0; i < 5; ++i) {
    const Epoch before = f.epoch;
    EXPECT_EQ(run(f, EventKind::LinkLost, before).names(), "Fence");
    const Result fenced = done(f, EventKind::FenceDone);
    if (!fenced.has(T::PrepareQp)) {
      const Result later = run(f, timer_event({}), f.armed_at);
      ASSERT_TRUE(later.has(T::PrepareQp));
      EXPECT_EQ(later.find(T::PrepareQp)->epoch, before.next());
    }
    done(f, EventKind::QpReady, kStart + 10 * kSecond);
    EXPECT_EQ(f.epoch, before.next());
  }
}

// --- F5: the follower waits ---

TEST(F5, FollowerDoesNotPostAfterItsRep) {  // MUT 51
  Fsm f = machine(Role::Follower, State::Fencing);
  run(f, message(MsgType::Req, kCur.next()));
  done(f, EventKind::FenceDone);
  EXPECT_EQ(done(f, EventKind::QpReady).names(), "SendRep");
  EXPECT_FALSE(may_post(f.state));
}

TEST(F5, HeartbeatOfARequestingLeaderReleasesNothing) {  // MUT 52
  for (const State leader : {State::Closed, State::Fencing, State::Requesting}) {
    Fsm f = machine(Role::Follower, State::Prepared);
    const Result r = run(f, message(MsgType::Hb, kCur, leader));
    EXPECT_FALSE(r.has(T::StartReplay)) << to_string(leader);
    EXPECT_EQ(f.state, State::Prepared);
  }
}

TEST(F5, CommitHeartbeatOrReceiveReleases) {
  Fsm by_commit = machine(Role::Follower, State::Prepared);
  EXPECT_TRUE(run(by_commit, message(MsgType::Commit, kCur)).has(T::StartReplay));
  for (const State leader : {State::Replaying, State::Active}) {
    Fsm by_hb = machine(Role::Follower, State::Prepared);
    EXPECT_TRUE(run(by_hb, message(MsgType::Hb, kCur, leader)).has(T::StartReplay));
  }
  Fsm by_receive = machine(Role::Follower, State::Prepared);
  const Result r = run(by_receive, EventKind::RcReceive, kCur);
  ASSERT_TRUE(r.has(T::StartReplay));
  EXPECT_EQ(r.find(T::StartReplay)->seq, Seq{8}) << "from what the REQ reported";
}

TEST(F5, CommitOfAnotherEpochReleasesNothing) {
  for (const std::uint32_t e : {2u, 4u}) {
    Fsm f = machine(Role::Follower, State::Prepared);
    EXPECT_EQ(run(f, message(MsgType::Commit, Epoch{e})).outcome, Outcome::Stale);
    EXPECT_EQ(run(f, EventKind::RcReceive, Epoch{e}).outcome, Outcome::Stale);
    run(f, message(MsgType::Hb, Epoch{e}, State::Active));
    EXPECT_EQ(f.state, State::Prepared);
  }
}

TEST(F5, CommitInNudgingIsNotObeyed) {  // MUT 93
  Fsm f = machine(Role::Follower, State::Nudging);
  EXPECT_EQ(run(f, message(MsgType::Commit, kCur)).names(), "");
  EXPECT_EQ(f.state, State::Nudging);
}

TEST(F5, NoHeartbeatAndNoProbeInPrepared) {
  Fsm f = machine(Role::Follower, State::Prepared);
  for (unsigned i = 1; i < 20; ++i)
    EXPECT_EQ(run(f, timer_event({false, true, true}), kStart + i * kSecond).names(), "");
}

// --- F6: a failed handshake costs an epoch ---

TEST(F6, FailedConnectTakesTheNextEpoch) {
  Fsm f = machine(Role::Leader, State::Requesting);
  run(f, message(MsgType::Rep, kCur));
  EXPECT_EQ(done(f, EventKind::QpFailed).names(), "Fence");
  EXPECT_EQ(f.pending, kCur.next());
}

TEST(F6, DataEpochIsTheLastOneThatCarriedData) {  // MUT 9 of recovery.pml
  Fsm f = machine(Role::Leader, State::Active);
  run(f, EventKind::LinkLost, kCur);
  for (unsigned i = 0; i < 3; ++i) {  // three epochs that never come up
    done(f, EventKind::FenceDone, kStart + i * 10 * kSecond);
    if (f.awaited == Command::None) run(f, timer_event({}), f.armed_at);
    done(f, EventKind::QpReady, kStart + i * 10 * kSecond);
    EXPECT_EQ(f.mine.data_epoch, kCur);
    run(f, EventKind::LinkLost, f.epoch);
  }
}

TEST(F6, DataEpochMovesWhenPostingBegins) {
  Fsm leader = machine(Role::Leader, State::Requesting);
  run(leader, message(MsgType::Rep, kCur));
  EXPECT_EQ(leader.data_epoch, Epoch{2});
  done(leader, EventKind::QpReady);
  EXPECT_EQ(leader.data_epoch, kCur);
  Fsm follower = machine(Role::Follower, State::Prepared);
  EXPECT_EQ(follower.data_epoch, Epoch{2});
  run(follower, message(MsgType::Commit, kCur));
  EXPECT_EQ(follower.data_epoch, kCur);
}

TEST(F6, LeaderStopsAskingAnUnansweredEpoch) {
  Fsm f = machine(Role::Leader, State::Requesting);
  f.resend_at = f.armed_at = kStart;
  unsigned requests = 0;
  while (f.state == State::Requesting) {
    if (run(f, timer_event({}), f.armed_at).has(T::SendReq)) ++requests;
    ASSERT_LE(requests, kit_config().resends_per_epoch);
  }
  EXPECT_EQ(requests, kit_config().resends_per_epoch);
  EXPECT_EQ(f.state, State::Fencing);
}

// --- F7: validation of the peer's progress ---

struct Claim {
  Seq acked, next, rx_next;
  GiveUpReason expected;
};

TEST(F7, LeaderChecksTheRepItUses) {
  const Claim claims[] = {
      {Seq{7}, Seq{9}, Seq{6}, GiveUpReason::DataLoss},
      {Seq{7}, Seq{9}, Seq{10}, GiveUpReason::Corrupt},
      {Seq{7}, Seq{9}, Seq{7}, GiveUpReason::None},
      {Seq{7}, Seq{9}, Seq{9}, GiveUpReason::None},
      {Seq{0xfffffffe}, Seq{3}, Seq{1}, GiveUpReason::None},  // across the wrap
      {Seq{0xfffffffe}, Seq{3}, Seq{0xfffffffd}, GiveUpReason::DataLoss},
      {Seq{0xfffffffe}, Seq{3}, Seq{4}, GiveUpReason::Corrupt},
  };
  for (const Claim& claim : claims) {
    Fsm f = machine(Role::Leader, State::Requesting);
    f.sample = FenceSample{Seq{5}, claim.acked, claim.next};
    CtlMessage m = message(MsgType::Rep, kCur);
    m.progress.rx_next = claim.rx_next;
    run(f, m);
    EXPECT_EQ(f.failure, claim.expected) << claim.rx_next.value;
    EXPECT_EQ(f.awaited, claim.expected == GiveUpReason::None ? Command::Connect : Command::Fence);
  }
}

TEST(F7, FollowerChecksAfterItsFence) {
  Fsm f = machine(Role::Follower, State::Active);
  CtlMessage m = message(MsgType::Req, kCur.next());
  m.progress.rx_next = Seq{4};
  run(f, m);
  EXPECT_EQ(f.state, State::Fencing) << "the sample is not there yet";
  done(f, EventKind::FenceDone);
  EXPECT_EQ(f.failure, GiveUpReason::DataLoss);
  EXPECT_FALSE(f.has_qp);
}

TEST(F7, OnlyWhatIsUsedIsChecked) {  // MUT 81: a late duplicate REQ or HB reports less than was
                                     // acknowledged meanwhile
  Fsm f = machine(Role::Follower, State::Active);
  CtlMessage late = message(MsgType::Req, kCur);
  late.progress.rx_next = Seq{1};
  EXPECT_EQ(run(f, late).names(), "SendRep");
  CtlMessage hb = message(MsgType::Hb, kCur);
  hb.rx_next = Seq{1};
  run(f, hb);
  EXPECT_EQ(f.state, State::Active);
}

// --- F8 is the driver's (path MTU); what the machine keeps for it ---

TEST(F8, BothOffersAreKeptForTheDriver) {
  Fsm f = machine(Role::Follower, State::Nudging);
  CtlMessage m = message(MsgType::Req, kCur.next());
  m.endpoint.mtu = 4;
  run(f, m);
  Event ready = work_event(EventKind::QpReady, f.work);
  ready.endpoint.mtu = 3;
  run(f, ready);
  EXPECT_EQ(f.peer.endpoint.mtu, 4);
  EXPECT_EQ(f.mine.endpoint.mtu, 3);
}

// --- retransmission and link loss ---

TEST(Retransmission, NudgeIsRepeated) {  // MUT 71
  Fsm f = make_fsm(Role::Follower, kit_config(), 1);
  run(f, EventKind::Submit, {});
  for (unsigned i = 0; i < 30; ++i)
    EXPECT_TRUE(run(f, timer_event({}), f.armed_at).has(T::SendNudge));
}

// A leader that ended meanwhile is asked so, and says it.
TEST(Retransmission, RepIsRepeatedWhilePrepared) {  // MUT 114
  Fsm f = machine(Role::Follower, State::Nudging);
  run(f, message(MsgType::Req, kCur.next()));
  ASSERT_TRUE(done(f, EventKind::QpReady).has(T::SendRep));
  for (unsigned i = 0; i < 30; ++i)
    EXPECT_EQ(run(f, timer_event({}), f.armed_at).names(), "SendRep");
  run(f, message(MsgType::Commit, f.epoch));
  EXPECT_FALSE(run(f, timer_event({}), f.armed_at).has(T::SendRep));
}

TEST(Retransmission, WhoeverEndedAnswersWhatThePeerRepeats) {
  for (const auto& [role, type] :
       {std::pair{Role::Leader, MsgType::Rep}, {Role::Follower, MsgType::Commit}}) {
    Fsm closed = machine(role, State::Closed);
    EXPECT_EQ(run(closed, message(type, kCur)).names(), "") << "it never opened";
    closed.departed = true;
    EXPECT_EQ(run(closed, message(type, kCur)).names(), "SendBye");
    Fsm closing = machine(role, State::Closing);
    EXPECT_EQ(run(closing, message(type, kCur)).names(), "SendBye");
    Fsm failed = machine(role, State::Failed);
    EXPECT_EQ(run(failed, message(type, kCur)).names(), "SendRej");
  }
}

TEST(Retransmission, CommitIsRepeatedUntilTheFollowerShowsThatItKnows) {  // MUT 61
  const auto connected = [] {
    Fsm f = machine(Role::Leader, State::Requesting);
    run(f, message(MsgType::Rep, kCur));
    EXPECT_TRUE(done(f, EventKind::QpReady).has(T::SendCommit));
    run(f, EventKind::LogEmpty, kCur);
    return f;
  };
  const auto repeats = [](Fsm& f) {
    TimeNs now = kStart;
    for (unsigned i = 0; i < 5; ++i) {
      now += 3 * kSecond;
      if (run(f, timer_event({true, false, false}), now).has(T::SendCommit)) return true;
    }
    return false;
  };
  Fsm unheard = connected();
  EXPECT_TRUE(repeats(unheard));
  Fsm prepared = connected();
  run(prepared, message(MsgType::HbAck, kCur, State::Prepared));
  EXPECT_TRUE(repeats(prepared));
  for (const State state : {State::Replaying, State::Active}) {
    Fsm f = connected();
    run(f, message(MsgType::HbAck, kCur, state));
    EXPECT_FALSE(repeats(f));
  }
  Fsm received = connected();
  run(received, EventKind::RcReceive, kCur);
  EXPECT_FALSE(repeats(received));
}

TEST(LinkLoss, FollowerLeavesPreparedAndReplayingToo) {  // MUT 91
  for (const State state : {State::Prepared, State::Replaying, State::Active, State::Suspect}) {
    Fsm f = machine(Role::Follower, state);
    EXPECT_EQ(run(f, EventKind::LinkLost, kCur).names(), "Fence");
    EXPECT_EQ(done(f, EventKind::FenceDone).names(), "SendNudge");
    EXPECT_EQ(f.state, State::Nudging);
  }
}

TEST(LinkLoss, OfAnotherEpochIsStale) {
  for (const Role role : {Role::Leader, Role::Follower}) {
    Fsm f = machine(role, State::Active);
    EXPECT_EQ(run(f, EventKind::LinkLost, Epoch{2}).outcome, Outcome::Stale);
    EXPECT_EQ(f.state, State::Active);
  }
}

TEST(LinkLoss, OfTheQpBeingPreparedFencesIt) {
  Fsm f = machine(Role::Leader, State::Fencing);
  done(f, EventKind::FenceDone);
  EXPECT_EQ(run(f, EventKind::LinkLost, kCur.next()).names(), "Fence");
  EXPECT_EQ(done(f, EventKind::FenceDone).names(), "");
  EXPECT_TRUE(run(f, timer_event({}), f.armed_at).has(T::PrepareQp));
}

TEST(Opening, BothAtOnceNeedNoTieBreak) {  // trap 8
  Fsm leader = make_fsm(Role::Leader, kit_config(), 1);
  Fsm follower = make_fsm(Role::Follower, kit_config(), 2);
  run(leader, EventKind::Submit, {});
  run(follower, EventKind::Submit, {});
  done(leader, EventKind::QpReady);
  EXPECT_EQ(leader.epoch, Epoch{1});
  EXPECT_EQ(run(leader, message(MsgType::Nudge, Epoch{0})).outcome, Outcome::Stale);
  CtlMessage req = message(MsgType::Req, Epoch{1});
  req.progress = Progress{};
  EXPECT_EQ(run(follower, req).names(), "PrepareQp");
}

TEST(Opening, RolesFollowJobAndRank) {
  EXPECT_EQ(role_of(1, 0, 1, 1), Role::Leader);
  EXPECT_EQ(role_of(1, 1, 1, 0), Role::Follower);
  EXPECT_EQ(role_of(1, 9, 2, 0), Role::Leader);
  EXPECT_EQ(role_of(2, 0, 1, 9), Role::Follower);
}

}  // namespace
}  // namespace mend::conn::test
