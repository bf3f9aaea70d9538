// Faults of queue pairs, ports, devices and datagrams, by request and by the clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/softhca/fault_kit.h"

namespace {

using kit::Datagrams;
using kit::FaultyPair;
using kit::Node;
using kit::Qp;
using kit::World;

TEST(FaultKill, TheLocalSideDiesWithItsRequest) {
  World world;
  FaultyPair p(world);
  p.faults("kill-qp:n=2");
  p.receive(3);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:5 3:5");
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.qb.state(), IBV_QPS_RTS);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait()), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(p.executed(2), 0);
  ASSERT_EQ(world.sim().fault_log().size(), 1U);
  EXPECT_EQ(world.sim().fault_log()[0].victim_qpn, p.qa.num());
  EXPECT_EQ(world.sim().fault_log()[0].victim_rank, 0);
}

TEST(FaultKill, TheRequestMayHaveBeenExecuted) {
  World world;
  FaultyPair p(world);
  p.faults("kill-qp:n=1:executed=yes:event=no");
  p.receive(1);
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:5");
  EXPECT_EQ(p.received(), "100:0");
  EXPECT_EQ(p.executed(1), 1);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait(), 1'000'000), -1);
}

TEST(FaultKill, ThePeerDiesAndDoesNotAnswer) {
  World world;
  FaultyPair p(world);
  p.faults("kill-qp:n=1:side=peer");
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:12");
  EXPECT_EQ(p.qb.state(), IBV_QPS_ERR);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait()), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(world.sim().fault_log()[0].victim_rank, 1);
}

TEST(FaultKill, BothSidesDie) {
  World world;
  FaultyPair p(world);
  p.faults("kill-qp:n=1:side=both");
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.completions(1), "1:5");
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.qb.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultKill, AStandingScheduleKillsEitherSideAtRandom) {
  World world;
  FaultyPair p(world);
  p.faults("seed=3; kill-qp:period=200ms:jitter=0.5:side=random");
  std::set<int> sides;
  for (int round = 0; round < 20; ++round) {
    const uint64_t before = p.hits();
    while (p.hits() == before) world.sim().advance(10'000'000);
    sides.insert(world.sim().fault_log().back().victim_rank);
    EXPECT_EQ(p.hits(), before + 1) << "one at a time";
    EXPECT_NE(p.qa.state() == IBV_QPS_ERR, p.qb.state() == IBV_QPS_ERR);
    EXPECT_EQ(p.qa.to(IBV_QPS_RESET), 0);
    EXPECT_EQ(p.qb.to(IBV_QPS_RESET), 0);
    kit::connect(p.qa, p.qb);
  }
  EXPECT_EQ(sides, (std::set<int>{0, 1}));
  EXPECT_NEAR(static_cast<double>(world.now() - 1'000'000'000) / 20, 200e6, 60e6);
  world.sim().clear_faults();
  world.sim().advance(5'000'000'000);
  EXPECT_EQ(p.qa.state(), IBV_QPS_RTS);
  EXPECT_EQ(p.qb.state(), IBV_QPS_RTS);
}

TEST(FaultKill, SelectorsNameTheVictim) {
  World world;
  FaultyPair p(world);
  p.faults("kill-qp:at=1ms:rank=1");
  world.sim().advance(2'000'000);
  EXPECT_EQ(p.qa.state(), IBV_QPS_RTS);
  EXPECT_EQ(p.qb.state(), IBV_QPS_ERR);
}

TEST(FaultPorts, APortFlaps) {
  World world;
  FaultyPair p(world);
  p.faults("port-down:at=10ms:period=100ms:for=30ms");
  const auto state_at = [&](uint64_t ms) {
    world.sim().advance(1'000'000'000 + ms * 1'000'000 - world.now());
    ibv_port_attr attr{};
    EXPECT_EQ(ibv_query_port(p.a.ctx, 1, &attr), 0);
    return attr.state;
  };
  EXPECT_EQ(state_at(5), IBV_PORT_ACTIVE);
  EXPECT_EQ(state_at(20), IBV_PORT_DOWN);
  EXPECT_EQ(state_at(50), IBV_PORT_ACTIVE);
  EXPECT_EQ(state_at(120), IBV_PORT_DOWN);
  EXPECT_EQ(state_at(150), IBV_PORT_ACTIVE);
  EXPECT_EQ(p.hits(), 2U);
  for (const int type :
       {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
    EXPECT_EQ(kit::next_event(p.a.ctx, world.wait()), type);
  }
}

TEST(FaultPorts, ARequestTakesItsPortDown) {
  World world;
  FaultyPair p(world);
  p.faults("port-down:n=2:for=1ms");
  for (uint64_t i = 1; i <= 2; ++i) EXPECT_EQ(p.write(i, 0, 0, 8), 0);
  EXPECT_EQ(p.completions(2), "1:0 2:0") << "one repeat outlives a short outage";
  EXPECT_EQ(p.hits(), 1U);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait()), IBV_EVENT_PORT_ERR);
}

TEST(FaultEvents, SeveralPerWakeUp) {
  World world;
  FaultyPair p(world);
  p.faults("event=GID_CHANGE:at=1ms:times=3:rank=0; event=QP_FATAL:at=2ms:rank=1");
  world.sim().advance(3'000'000);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(kit::next_event(p.a.ctx, world.wait()), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait(), 1'000'000), -1);
  void* element = nullptr;
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000, &element), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(element, p.qb.get());
  EXPECT_EQ(p.qb.state(), IBV_QPS_RTS) << "an event alone changes nothing";
  EXPECT_EQ(p.hits(), 2U);
}

TEST(FaultEvents, ADeadDeviceFailsEverything) {
  World world;
  FaultyPair p(world);
  p.faults("device-fatal:n=2:rank=0");
  EXPECT_EQ(p.write(1, 0, 0, 8), 0);
  EXPECT_EQ(p.write(2, 0, 0, 8), 0);
  world.sim().advance(1'000);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait()), IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.write(3, 0, 0, 8), EIO);
  EXPECT_EQ(p.qa.to(IBV_QPS_RESET), EIO);
  EXPECT_EQ(ibv_alloc_pd(p.a.ctx), nullptr);
  EXPECT_EQ(p.qb.to(IBV_QPS_RESET), 0) << "the other node is well";
}

TEST(FaultFlush, LastWqeIsSuppressed) {
  World world;
  FaultyPair p(world, true);
  p.faults("no-last-wqe:rank=1");
  EXPECT_EQ(p.qb.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000), -1);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait()), IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultFlush, LastWqeComesBeforeTheFlush) {
  World world;
  FaultyPair p(world, true);
  p.faults("late-flush:delay=20ms; drop:times=all");
  EXPECT_EQ(p.write(1, 0, 0, 8), 0);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(kit::next_event(p.a.ctx, world.wait(), 1'000'000), IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(p.write(2, 0, 0, 8), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 10'000'000));
  EXPECT_EQ(p.completions(2), "1:5 2:5");
  EXPECT_EQ(p.write(3, 0, 0, 8), 0);
  EXPECT_EQ(p.completions(1), "3:5") << "from then on at once";
}

TEST(FaultFlush, AReceiveIsSeenAfterLastWqe) {
  World world;
  FaultyPair p(world, true);
  p.faults("late-recv:n=2:delay=20ms:rank=1");
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(kit::post_srq(p.b, 100 + i, 32768, 64), 0);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(p.send(i), 0);
  EXPECT_EQ(p.completions(3), "1:0 2:0 3:0");
  EXPECT_EQ(p.received(), "100:0");
  EXPECT_EQ(p.qb.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait()), IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(p.received(), "");
  world.sim().advance(20'000'000);
  EXPECT_EQ(p.received(), "101:0 102:0");
  EXPECT_EQ(p.hits(), 1U);
}

TEST(FaultFlush, AHiddenReceiveWakesItsChannelWhenItIsShown) {
  World world;
  Node a(world.open());
  Node b(world.open(), {.channel = true});
  Qp qa(a);
  Qp qb(b);
  kit::connect(qa, qb);
  ASSERT_TRUE(world.sim().add_faults("late-recv:n=1:delay=20ms:rank=1"));
  ASSERT_EQ(kit::post_recv(qb, 7, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_TRUE(kit::poll(b.cq, 1, world.wait(), 0).empty());
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  EXPECT_TRUE(kit::poll(b.cq, 1, world.wait(), 0).empty());
  world.sim().advance(25'000'000);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel, &cq, &user), 0);
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(kit::poll(b.cq, 1, world.wait(), 0).size(), 1U);
}

TEST(FaultDatagrams, LostDoubledLateAndReordered) {
  World world;
  Datagrams d(world);
  ASSERT_TRUE(
      world.sim().add_faults("drop:n=1; dup:n=2:delay=1ms; late:n=3:delay=5ms; reorder:n=4"));
  d.send('1');
  EXPECT_EQ(d.arrived(), "");
  d.send('2');
  EXPECT_EQ(d.arrived(), "2");
  world.sim().advance(2'000'000);
  EXPECT_EQ(d.arrived(), "2");
  d.send('3');
  EXPECT_EQ(d.arrived(), "");
  d.send('4');
  EXPECT_EQ(d.arrived(), "");
  d.send('5');
  EXPECT_EQ(d.arrived(), "54");
  world.sim().advance(5'000'000);
  EXPECT_EQ(d.arrived(), "3");
  EXPECT_EQ(world.sim().fault_hits(), 4U);
}

TEST(FaultDatagrams, AReorderedOneWithoutASuccessorComesInTime) {
  World world;
  Datagrams d(world);
  ASSERT_TRUE(world.sim().add_faults("reorder:n=1:delay=2ms"));
  d.send('1');
  EXPECT_EQ(d.arrived(), "");
  world.sim().advance(2'000'000);
  EXPECT_EQ(d.arrived(), "1");
  EXPECT_EQ(world.sim().fault_hits("reorder"), 1U);
}

// How many of them the device tried to deliver after all.
long ghosts(World& world) {
  const auto& log = world.sim().log();
  return std::count_if(log.begin(), log.end(), [](const auto& entry) { return entry.ghost; });
}

TEST(FaultDatagrams, HeldBackOnesOutliveTheirQueuePairButNotTheirDevice) {
  for (const bool close : {false, true}) {
    World world;
    ibv_context* sender = nullptr;
    {
      Datagrams d(world);
      ASSERT_TRUE(world.sim().add_faults("late:delay=1s"));
      d.send('1');
      sender = d.a.ctx;
    }
    if (close) world.close(sender);
    world.sim().advance(2'000'000'000);
    EXPECT_EQ(world.sim().fault_hits("late"), 1U);
    EXPECT_EQ(ghosts(world), close ? 0 : 1);
  }
}

}  // namespace
