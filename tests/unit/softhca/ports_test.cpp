// Links that go down and up: events, silence, recovery within the retry time.
#include <gtest/gtest.h>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::World;

ibv_port_state state_of(ibv_context* ctx) {
  ibv_port_attr attr{};
  EXPECT_EQ(ibv_query_port(ctx, 1, &attr), 0);
  return attr.state;
}

TEST(Ports, DownAndUpAreEventsForEverybody) {
  World world;
  ibv_context* a = world.open();
  ibv_context* b = world.open();
  EXPECT_TRUE(world.sim().set_port(0, 1, false));
  EXPECT_FALSE(world.sim().set_port(0, 1, false)) << "already down";
  for (ibv_context* ctx : {a, b}) {
    EXPECT_EQ(state_of(ctx), IBV_PORT_DOWN);
    EXPECT_EQ(kit::next_event(ctx, world.wait()), IBV_EVENT_PORT_ERR);
    EXPECT_EQ(kit::next_event(ctx, world.wait(), 1'000'000), -1);
  }
  EXPECT_TRUE(world.sim().set_port(0, 1, true));
  for (ibv_context* ctx : {a, b}) {
    EXPECT_EQ(state_of(ctx), IBV_PORT_ACTIVE);
    EXPECT_EQ(kit::next_event(ctx, world.wait()), IBV_EVENT_PORT_ACTIVE);
  }
  EXPECT_TRUE(world.sim().set_port(0, 1, false));
  EXPECT_TRUE(world.sim().set_port(0, 1, true));
  EXPECT_EQ(kit::next_event(a, world.wait()), IBV_EVENT_PORT_ERR) << "a short flap is two events";
  EXPECT_EQ(kit::next_event(a, world.wait()), IBV_EVENT_PORT_ACTIVE);
}

TEST(Ports, TrafficOverADeadLinkTimesOut) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a), qb(b);
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  world.sim().set_port(0, 1, false);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
}

TEST(Ports, AShortOutageIsRiddenOut) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.timeout = 14, .retry_cnt = 7}), qb(b);
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  a.fill(0, 8, 5);
  world.sim().set_port(0, 1, false);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_TRUE(kit::quiet(a.cq, world.wait(), 200'000'000));
  world.sim().set_port(0, 1, true);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(b.holds(0, 8, 5));
}

TEST(Ports, OnlyThePortsOfThePathMatter) {
  World world("[x]\n[y]\n[z]\n");
  Node a(world.open("x")), b(world.open("y"));
  Qp qa(a), qb(b);
  kit::connect(qa, qb);
  world.sim().set_port(2, 1, false);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
  world.sim().set_port(1, 1, false);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR)
      << "the far port is down";
}

std::string gid_text(ibv_context* ctx, unsigned index) {
  ibv_gid_entry entry{};
  if (ibv_query_gid_ex(ctx, 1, index, &entry, 0) != 0) return "-";
  return entry.gid.raw[15] == 1 ? "one" : entry.gid.raw[15] == 2 ? "two" : "?";
}

int table_length(ibv_context* ctx) {
  ibv_port_attr attr{};
  EXPECT_EQ(ibv_query_port(ctx, 1, &attr), 0);
  return attr.gid_tbl_len;
}

constexpr char kTwoGids[] = "[x]\n[x/1]\ngid = rocev2 10.0.0.1\ngid = rocev2 10.0.0.2\n";

TEST(Gids, MoveAndLeaveHoles) {
  World world(kTwoGids);
  ibv_context* a = world.open();
  ibv_context* b = world.open();
  EXPECT_EQ(table_length(a), 2);
  EXPECT_TRUE(world.sim().swap_gids(0, 1, 0, 3));
  EXPECT_FALSE(world.sim().swap_gids(0, 1, 0, 2)) << "both are empty";
  for (ibv_context* ctx : {a, b}) {
    EXPECT_EQ(kit::next_event(ctx, world.wait()), IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(kit::next_event(ctx, world.wait(), 1'000'000), -1);
    EXPECT_EQ(table_length(ctx), 4);
    EXPECT_EQ(gid_text(ctx, 0) + gid_text(ctx, 1) + gid_text(ctx, 2) + gid_text(ctx, 3),
              "-two-one");
    ibv_gid gid{.raw = {1}};
    EXPECT_EQ(ibv_query_gid(ctx, 1, 0, &gid), 0);
    EXPECT_EQ(gid.raw[0], 0) << "an empty place reads as zero";
    ibv_gid_entry table[8];
    EXPECT_EQ(ibv_query_gid_table(ctx, table, 8, 0), 2);
  }
  EXPECT_TRUE(world.sim().swap_gids(0, 1, 3, 0));
  EXPECT_EQ(gid_text(a, 0) + gid_text(a, 1), "onetwo");
  EXPECT_EQ(table_length(a), 2);
}

TEST(Gids, AQueuePairWhoseAddressLeftItsPlaceIsNotHeard) {
  World world(kTwoGids);
  Node a(world.open()), b(world.open());
  Qp qa(a), qb(b);
  kit::connect(qa, qb);  // both from index 0
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_TRUE(world.sim().swap_gids(0, 1, 0, 1));
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
  Qp qc(a), qd(b);
  kit::connect(qc, qd);  // index 0 is the other address by now
  ASSERT_EQ(kit::post_recv(qd, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qc, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Gids, NothingIsMadeOfAnEmptyPlace) {
  World world(kTwoGids);
  Node a(world.open()), b(world.open());
  const ibv_gid peer = kit::gid_of(b.ctx, 0);
  ASSERT_TRUE(world.sim().swap_gids(0, 1, 0, 3));
  Qp qa(a), qb(b);
  ASSERT_EQ(qa.to_init(), 0);
  EXPECT_EQ(qa.to_rtr(qb.num(), peer), EINVAL);
  EXPECT_EQ(kit::make_ah(a, b), nullptr);
}

TEST(Ports, ConfiguredDownIsDownUntilRaised) {
  World world("[x]\n[x/1]\nstate = down\n");
  Node a(world.open()), b(world.open());
  EXPECT_EQ(state_of(a.ctx), IBV_PORT_DOWN);
  Qp qa(a), qb(b);
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(world.sim().set_port(0, 1, true));
  EXPECT_EQ(state_of(a.ctx), IBV_PORT_ACTIVE);
  ASSERT_EQ(qa.to(IBV_QPS_RESET), 0);
  ASSERT_EQ(qb.to(IBV_QPS_RESET), 0);
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 2, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).wr_id, 2U);
}

TEST(Ports, DatagramsOverADeadLinkAreLost) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.type = IBV_QPT_UD}), qb(b, {.type = IBV_QPT_UD});
  kit::bring_up_ud(qa);
  kit::bring_up_ud(qb);
  ibv_ah* ah = kit::make_ah(a, b);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 4096), 0);
  world.sim().set_port(0, 1, false);
  ASSERT_EQ(kit::post(qa, {.ah = ah, .dest_qpn = qb.num()}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
  world.sim().set_port(0, 1, true);
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
