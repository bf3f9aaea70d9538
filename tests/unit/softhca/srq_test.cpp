// Shared receive queues: sharing, the limit event, LAST_WQE_REACHED.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::World;

struct SrqPair {
  explicit SrqPair(World& world)
      : a(world.open()),
        b(world.open(), {.srq_wr = 16}),
        qa(a),
        qa2(a),
        qb(b, QpOptions{.srq = b.srq}),
        qb2(b, QpOptions{.srq = b.srq}) {
    kit::connect(qa, qb);
    kit::connect(qa2, qb2);
  }
  Node a, b;
  Qp qa, qa2, qb, qb2;
};

TEST(Srq, TwoQueuePairsDrawFromOneQueue) {
  World world;
  SrqPair p(world);
  ASSERT_EQ(kit::post_srq(p.b, 1, 0, 64), 0);
  ASSERT_EQ(kit::post_srq(p.b, 2, 64, 64), 0);
  p.a.fill(0, 64, 1);
  p.a.fill(64, 64, 2);
  ASSERT_EQ(kit::post(p.qa, {.offset = 0, .length = 64}), 0);
  const ibv_wc first = kit::poll_one(p.b.cq, world.wait());
  ASSERT_EQ(kit::post(p.qa2, {.offset = 64, .length = 64}), 0);
  const ibv_wc second = kit::poll_one(p.b.cq, world.wait());
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(first.qp_num, p.qb.num());
  EXPECT_EQ(second.wr_id, 2U);
  EXPECT_EQ(second.qp_num, p.qb2.num());
  EXPECT_TRUE(p.b.holds(0, 64, 1));
  EXPECT_TRUE(p.b.holds(64, 64, 2));
}

TEST(Srq, QueuePairOnAnSrqHasNoReceiveQueue) {
  World world;
  SrqPair p(world);
  EXPECT_NE(kit::post_recv(p.qb, 1, 0, 64), 0);
}

TEST(Srq, HasAnEnd) {
  World world;
  Node b(world.open(), {.srq_wr = 4});
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(b.srq, &attr), 0);
  ASSERT_GE(attr.max_wr, 4U);
  for (uint32_t i = 0; i < attr.max_wr; ++i) ASSERT_EQ(kit::post_srq(b, i, 0, 64), 0);
  EXPECT_EQ(kit::post_srq(b, 99, 0, 64), ENOMEM);
}

TEST(Srq, LimitFiresOnceWhenTheCountFallsBelow) {
  World world;
  SrqPair p(world);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(kit::post_srq(p.b, i, 0, 64), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 6;
  ASSERT_EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(kit::post(p.qa, {}), 0);
  ASSERT_EQ(kit::poll(p.b.cq, 2, world.wait()).size(), 2U);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000), -1) << "six left is not below six";
  ASSERT_EQ(kit::post(p.qa, {}), 0);
  void* element = nullptr;
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000'000, &element),
            IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(element, p.b.srq);
  ASSERT_EQ(ibv_query_srq(p.b.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0U) << "the event disarms";
  ASSERT_EQ(kit::post(p.qa, {}), 0);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000), -1);
  attr.srq_limit = 5;
  ASSERT_EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait()), IBV_EVENT_SRQ_LIMIT_REACHED)
      << "arming below the limit fires at once";
}

TEST(Srq, LastWqeReachedAfterTheLastCompletion) {
  World world;
  SrqPair p(world);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(kit::post_srq(p.b, i, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {}), 0);
  ASSERT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
  ASSERT_EQ(p.qb.to(IBV_QPS_ERR), 0);
  void* element = nullptr;
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000'000, &element),
            IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(element, p.qb.get());
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 1'000'000)) << "buffers of the SRQ are not flushed";
  ASSERT_EQ(kit::post(p.qa2, {}), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).wr_id, 1U) << "the other queue pair goes on";
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000), -1);
}

TEST(Srq, OutlivesItsQueuePairsOnly) {
  World world;
  SrqPair p(world);
  EXPECT_EQ(ibv_destroy_srq(p.b.srq), EBUSY);
}

TEST(Srq, EmptyMeansRnr) {
  World world;
  SrqPair p(world);
  p.a.fill(0, 8, 4);
  ASSERT_EQ(kit::post(p.qa, {}), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 10'000'000));
  ASSERT_EQ(kit::post_srq(p.b, 1, 0, 64), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(p.b.holds(0, 8, 4));
}

}  // namespace
