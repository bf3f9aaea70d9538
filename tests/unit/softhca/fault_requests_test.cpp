// Faults of single requests: each kind happens, is counted, and leaves the device as a real one
// would be. 5 = WR_FLUSH_ERR, 12 = RETRY_EXC_ERR, 13 = RNR_RETRY_EXC_ERR.
#include <gtest/gtest.h>

#include "tests/unit/softhca/fault_kit.h"

namespace {

using kit::FaultyPair;
using kit::World;
using softhca::FaultKind;

TEST(FaultRequests, ADroppedAttemptIsRepeated) {
  World world;
  FaultyPair p(world);
  p.faults("drop:n=2");
  p.receive(3);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:0 3:0");
  EXPECT_EQ(p.received(), "100:0 101:0 102:0");
  EXPECT_EQ(p.hits(), 1U);
  EXPECT_EQ(p.executed(2), 1);
  const auto& log = world.sim().log();
  ASSERT_EQ(log.size(), 4U);
  EXPECT_EQ(log[1].fault, FaultKind::Drop);
  EXPECT_FALSE(log[1].executed);
  EXPECT_EQ(log[1].src_node, 0);
  EXPECT_EQ(log[1].dest_node, 1);
  EXPECT_TRUE(log[2].executed);
  ASSERT_EQ(world.sim().fault_log().size(), 1U);
  EXPECT_EQ(world.sim().fault_log()[0].wr_id, 2U);
  EXPECT_EQ(world.sim().fault_log()[0].qpn, p.qa.num());
}

TEST(FaultRequests, DroppedForGoodItIsNotExecuted) {
  World world;
  FaultyPair p(world);
  p.faults("drop:n=2:times=all");
  p.receive(3);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:12 3:5");
  EXPECT_EQ(p.received(), "100:0");
  EXPECT_EQ(p.executed(2), 0);
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
}

TEST(FaultRequests, ALostAcknowledgementLeavesTheWorkDone) {
  World world;
  FaultyPair p(world);
  p.faults("drop-ack:n=1");
  p.receive(3);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.send(2), 0);
  EXPECT_EQ(p.completions(2), "1:12 2:5");
  EXPECT_EQ(p.received(), "100:0") << "the second request was behind the first";
  EXPECT_EQ(p.executed(1), 1);
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultRequests, AWindowOfRequestsIsExecutedWithoutAnAnswer) {
  World world;
  FaultyPair p(world);
  p.faults("drop-ack:n=1:window=2");
  p.receive(4);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.received(), "100:0 101:0 102:0");
  EXPECT_EQ(p.completions(4), "1:12 2:5 3:5 4:5");
  EXPECT_EQ(p.received(), "");
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.executed(i), 1) << i;
  EXPECT_EQ(p.executed(4), 0);
}

TEST(FaultRequests, OneLostAcknowledgementIsMadeGoodByARepeat) {
  World world;
  FaultyPair p(world);
  p.faults("drop-ack:n=1:times=1:window=1");
  p.receive(3);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:0 3:0");
  EXPECT_EQ(p.received(), "100:0 101:0 102:0");
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.executed(i), 1) << i;
}

TEST(FaultRequests, AnAtomicIsExecutedOnceAndItsResultComesWithTheAnswer) {
  World world;
  FaultyPair p(world);
  p.faults("drop-ack:n=1:times=1:op=atomic; drop-ack:n=2:op=atomic");
  EXPECT_EQ(p.fetch_add(1, 0, 1024, 5), 0);
  EXPECT_EQ(kit::value_at(p.b, 1024), 5U) << "done at once";
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_EQ(kit::value_at(p.b, 1024), 5U) << "and not again";
  EXPECT_EQ(kit::value_at(p.a, 0), 0U);
  p.a.fill(8, 8, 3);
  EXPECT_EQ(p.fetch_add(2, 8, 1024, 5), 0);
  EXPECT_EQ(p.completions(1), "2:12");
  EXPECT_EQ(kit::value_at(p.b, 1024), 10U);
  EXPECT_TRUE(p.a.holds(8, 8, 3)) << "the result was lost";
  EXPECT_EQ(p.hits(), 2U);
}

TEST(FaultRequests, AStatusIsForced) {
  World world;
  FaultyPair p(world);
  p.faults("status=LOC_PROT_ERR:n=2; status=REM_OP_ERR:n=4:executed=yes");
  p.receive(4);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:" + std::to_string(IBV_WC_LOC_PROT_ERR) + " 3:5");
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.executed(2), 0);
  EXPECT_EQ(p.hits(), 1U) << "the third was flushed, not executed";
}

TEST(FaultRequests, ACompletionNeverComes) {
  World world;
  FaultyPair p(world);
  p.faults("no-cqe:n=1:executed=yes");
  p.receive(2);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.send(2), 0);
  EXPECT_EQ(p.received(), "100:0");
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 10'000'000'000));
  EXPECT_EQ(p.qa.state(), IBV_QPS_RTS);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(p.completions(2), "1:5 2:5");
}

TEST(FaultRequests, ACompletionIsLostForGood) {
  World world;
  FaultyPair p(world);
  p.faults("no-cqe:n=1:flush=no");
  p.receive(2);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.send(2), 0);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(p.completions(1), "2:5");
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 1'000'000'000));
  EXPECT_EQ(p.executed(1), 0);
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultRequests, ALateCompletionOutlivesTheFence) {
  World world;
  FaultyPair p(world);
  p.faults("late-cqe:n=1:delay=20ms");
  p.receive(2);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.send(2), 0);
  EXPECT_EQ(p.received(), "100:0");
  world.sim().advance(5'000'000);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(p.send(3), 0) << "a beacon";
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 10'000'000));
  EXPECT_EQ(p.completions(3), "1:0 2:5 3:5");
}

TEST(FaultRequests, ALateCompletionOfAQueuePairThatLives) {
  World world;
  FaultyPair p(world);
  p.faults("late-cqe:n=1:delay=20ms");
  p.receive(2);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.send(2), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 15'000'000));
  EXPECT_EQ(p.completions(2), "1:0 2:0");
  EXPECT_EQ(p.executed(1), 1);
}

TEST(FaultRequests, TheReceiverIsNotReadyForAWhile) {
  World world;
  FaultyPair p(world);
  p.faults("rnr:n=1:times=4");
  p.receive(1);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.received(), "");
  EXPECT_EQ(p.completions(1), "1:0");
  const auto& log = world.sim().log();
  EXPECT_EQ(std::count_if(log.begin(), log.end(),
                          [](const auto& e) {
                            return e.outcome == static_cast<uint8_t>(softhca::Outcome::NotReady);
                          }),
            4);
}

TEST(FaultRequests, PayloadIsFetchedLate) {
  World world;
  FaultyPair p(world);
  p.faults("late-fetch:n=1:delay=3ms");
  p.receive(1);
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.send(1), 0);
  p.a.fill(0, 64, 2);  // too early: it has not completed
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_EQ(p.received(), "100:0");
  EXPECT_TRUE(p.b.holds(32768, 64, 2));
}

TEST(FaultRequests, BytesArriveAfterTheCompletion) {
  World world;
  FaultyPair p(world);
  p.faults("late-place:delay=3ms");
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.write(1, 0, 1024), 0);
  p.a.fill(0, 64, 9);  // it is ours again
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_FALSE(p.b.holds(1024, 64, 1));
  world.sim().advance(4'000'000);
  EXPECT_TRUE(p.b.holds(1024, 64, 1));
  // What follows on the queue pair does not overtake it.
  p.receive(1);
  EXPECT_EQ(p.send(2), 0);
  p.a.fill(0, 64, 3);
  EXPECT_EQ(p.write(3, 0, 2048), 0);
  EXPECT_FALSE(p.b.holds(2048, 64, 3));
  EXPECT_EQ(p.send(4, 128), 0);
  EXPECT_TRUE(p.b.holds(2048, 64, 3));
  EXPECT_EQ(p.hits(), 2U);
}

TEST(FaultRequests, AcknowledgedBytesArriveBeforeTheTargetIsReset) {
  World world;
  FaultyPair p(world);
  p.faults("late-place:n=1:delay=1s");
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.write(1, 0, 1024), 0);
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_FALSE(p.b.holds(1024, 64, 1));
  EXPECT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  EXPECT_TRUE(p.b.holds(1024, 64, 1));
}

TEST(FaultRequests, AGhostReachesAQueuePairThatStillLives) {
  World world;
  FaultyPair p(world);
  p.faults("ghost:n=1:delay=100ms");
  p.receive(1);
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:12");
  EXPECT_EQ(p.executed(1), 0);
  EXPECT_EQ(p.qa.to(IBV_QPS_RESET), 0);
  EXPECT_EQ(p.received(), "");
  world.sim().advance(100'000'000);
  EXPECT_EQ(p.received(), "100:0") << "its peer never fenced";
  EXPECT_TRUE(p.b.holds(32768, 64, 1));
  ASSERT_FALSE(world.sim().log().empty());
  EXPECT_TRUE(world.sim().log().back().ghost);
  EXPECT_TRUE(world.sim().log().back().executed);
}

TEST(FaultRequests, AGhostFindsNobodyAfterTheFence) {
  World world;
  FaultyPair p(world);
  p.faults("ghost:n=1:delay=100ms");
  p.receive(1);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:12");
  EXPECT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  world.sim().advance(200'000'000);
  EXPECT_EQ(p.received(), "");
  EXPECT_TRUE(world.sim().log().back().ghost);
  EXPECT_FALSE(world.sim().log().back().executed);
}

TEST(FaultRequests, ReusedNumbersLetAGhostIn) {
  World world;
  FaultyPair p(world);
  p.faults("ghost:n=1:delay=100ms; reuse-qpn:rank=1");
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:12");
  const uint32_t number = p.qb.num();
  ASSERT_EQ(ibv_destroy_qp(p.qb.get()), 0);
  p.qb.forget();
  kit::Qp again(p.b, {});
  EXPECT_EQ(again.num(), number);
  EXPECT_EQ(again.to_init(), 0);
  EXPECT_EQ(kit::post_recv(again, 7, 0, 64), 0);
  EXPECT_EQ(again.to_rtr(p.qa.num(), kit::gid_of(p.a.ctx, 0)), 0);
  world.sim().advance(100'000'000);
  EXPECT_EQ(p.received(), "7:0") << "same numbers, same PSN: valid for the new connection";
  EXPECT_EQ(world.sim().fault_hits("reuse-qpn"), 1U);
}

TEST(FaultRequests, SelectorsChoose) {
  World world;
  FaultyPair p(world);
  p.faults("drop:op=read; drop:rank=1; drop:peer=0; drop:qp=ud; drop:port=2; drop:device=other");
  p.receive(1);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.write(2, 0, 0), 0);
  EXPECT_EQ(p.completions(2), "1:0 2:0");
  EXPECT_EQ(p.hits(), 0U);
  p.faults("drop:op=write:peer=1:port=1:device=softhca0:qpn=" + std::to_string(p.qa.num()));
  EXPECT_EQ(p.write(3, 0, 0), 0);
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultRequests, ProbabilitiesComeFromTheSeed) {
  const auto losses = [](const std::string& seed) {
    World world;
    FaultyPair p(world);
    p.faults("seed=" + seed + "; drop:p=0.3");
    std::string lost;
    for (uint64_t i = 1; i <= 40; ++i) {
      const uint64_t before = p.hits();
      EXPECT_EQ(p.write(i, 0, 0, 8), 0);
      lost += p.hits() != before ? 'x' : '.';
      EXPECT_EQ(p.completions(1), std::to_string(i) + ":0");
    }
    return lost;
  };
  const std::string one = losses("1");
  EXPECT_EQ(one, losses("1"));
  EXPECT_NE(one, losses("2"));
  const auto n = std::count(one.begin(), one.end(), 'x');
  EXPECT_GT(n, 4);
  EXPECT_LT(n, 24);
}

TEST(FaultRequests, TimesAndLimitsBound) {
  World world;
  FaultyPair p(world);
  p.faults("drop:from=10ms:until=20ms; drop:from=30ms:limit=1; drop:at=50ms:op=write");
  const auto try_at = [&](uint64_t ms) {
    while (world.now() < 1'000'000'000 + ms * 1'000'000) world.sim().advance(1'000'000);
    const uint64_t before = p.hits();
    EXPECT_EQ(p.write(ms, 0, 0, 8), 0);
    EXPECT_EQ(p.completions(1), std::to_string(ms) + ":0");
    return p.hits() - before;
  };
  EXPECT_EQ(try_at(5), 0U);
  EXPECT_EQ(try_at(12), 1U);
  EXPECT_EQ(try_at(25), 0U);
  EXPECT_EQ(try_at(35), 1U);
  EXPECT_EQ(try_at(40), 0U);
  EXPECT_EQ(try_at(55), 1U);
  EXPECT_EQ(try_at(60), 0U);
}

}  // namespace
