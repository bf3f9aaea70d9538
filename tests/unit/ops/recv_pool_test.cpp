#include "ops/recv_pool.h"

#include <gtest/gtest.h>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::RecvLedger;

void expect_sums(const RecvLedger& ledger) {
  EXPECT_EQ(ledger.posted + ledger.delivered + ledger.stashed + ledger.idle, ledger.depth);
}

TEST(RecvPool, TheTwoTimesRuleGrowsOrRefusesByName) {
  Pair pair({.recv_depth = 8});  // capacity of the queue: 128
  ops::RecvPool& pool = *pair.a.recv_pool;
  EXPECT_TRUE(pool.ensure(4));
  EXPECT_EQ(pool.depth(), 8u);
  EXPECT_TRUE(pool.ensure(5));
  EXPECT_GE(pool.depth(), 10u);
  EXPECT_EQ(pair.a.srq.posted.size(), pool.depth());
  EXPECT_TRUE(pool.ensure(64));
  EXPECT_EQ(pool.depth(), 128u);
  const auto refused = pool.ensure(65);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("130"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("128"), std::string::npos);
  expect_sums(pool.ledger());
}

TEST(RecvPool, RegistrationFailureIsAnErrorAndChangesNothing) {
  Pair pair({.recv_depth = 8});
  pair.a.refuse_memory = true;
  EXPECT_FALSE(pair.a.recv_pool->grow(16));
  EXPECT_EQ(pair.a.recv_pool->depth(), 8u);
  expect_sums(pair.a.recv_pool->ledger());
}

// Every buffer has one state, seen from inside an upcall: it is delivered there, and posted before
// progress returns.
TEST(RecvPool, LedgerFollowsABufferThroughItsLife) {
  Pair pair({.recv_depth = 8});
  pair.open();
  static RecvLedger inside;
  pair.b.on_message = [](Side& side) { inside = side.recv_pool->ledger(); };
  pair.a.send("one");
  pair.a.send("two");
  EXPECT_EQ(pair.b.srq.posted.size(), 6u);
  pair.b.progress();
  EXPECT_EQ(inside.delivered, 1u);
  EXPECT_EQ(inside.posted, 7u) << "the first was posted again before the second was delivered";
  expect_sums(inside);
  const RecvLedger after = pair.b.recv_pool->ledger();
  EXPECT_EQ(after.posted, 8u);
  EXPECT_EQ(after.min_posted, 6u);
  EXPECT_EQ(pair.b.srq.posted.size(), 8u);
}

TEST(RecvPool, DebugLogSeesEachHandOver) {
  Pair pair({.recv_depth = 4});
  pair.open();
  std::string log;
  pair.b.recv_pool->set_trace(
      [](void* context, const ops::RecvBuf&, ops::BufferState from, ops::BufferState to) {
        *static_cast<std::string*>(context) +=
            std::string(to_string(from)) + ">" + to_string(to) + " ";
      },
      &log);
  pair.a.send("x");
  pair.b.progress();
  EXPECT_EQ(log, "posted>delivered delivered>posted ");
  log.clear();
  pair.a.send("y");
  pair.b.poller->drain_for_fence();
  pair.b.progress();
  EXPECT_EQ(log, "posted>stashed stashed>delivered delivered>posted ");
  pair.b.recv_pool->set_trace(nullptr, nullptr);
}

TEST(RecvPool, AuditReplacesBuffersTheDeviceForgot) {
  Pair pair({.recv_depth = 8});
  ops::RecvPool& pool = *pair.a.recv_pool;
  pair.a.srq.posted.resize(5);  // three were swallowed
  pair.a.srq.sges.resize(5);
  EXPECT_EQ(pool.audit(5), 3u);
  const RecvLedger ledger = pool.ledger();
  EXPECT_EQ(ledger.lost, 3u);
  EXPECT_EQ(ledger.posted, 8u);
  EXPECT_EQ(pair.a.srq.posted.size(), 8u);
  expect_sums(ledger);
  EXPECT_EQ(pool.audit(8), 0u);
}

TEST(RecvPool, LimitIsArmedThroughTheOwner) {
  FakeFabric fabric;
  FakeSrq srq;
  fabric.init(srq);
  static std::uint32_t armed;
  armed = 0;
  ops::RecvPoolConfig config;
  config.srq = &srq.base;
  config.payload_bytes = 64;
  config.depth = 4;
  config.max_depth = 4;
  config.arm_limit = [](void*, ibv_srq*, std::uint32_t limit) {
    armed = limit;
    return 0;
  };
  const ops::MemoryHooks hooks{nullptr,
                               [](void*, void*, std::size_t, ops::LocalKeys&) { return true; },
                               [](void*, void*) {}};
  auto pool = ops::RecvPool::create(config, hooks).value();
  EXPECT_EQ(pool->arm_limit(2), 0);
  EXPECT_EQ(armed, 2u);
}

TEST(RecvPool, SlowReceiverIsRnrNotLoss) {
  Pair pair({.window = 64, .send_depth = 64, .recv_depth = 4});
  pair.open();
  for (int i = 0; i < 30; ++i) {
    pair.a.send(std::to_string(i));
  }
  EXPECT_EQ(pair.b.srq.posted.size(), 0u);
  pair.pump();
  ASSERT_EQ(pair.b.received.size(), 30u);
  EXPECT_EQ(pair.b.recv_pool->ledger().min_posted, 0u);
  EXPECT_TRUE(pair.a.lost.empty());
}

// --- devices without a shared receive queue
// -------------------------------------------------------------------------

TEST(RecvPoolPerQp, CarriesTrafficAndRecoversItsBuffers) {
  Pair pair({.recv_depth = 8, .srq = false});
  pair.open();
  ops::RecvPool& pool = *pair.b.recv_pool;
  EXPECT_EQ(pool.ledger().posted, 8u);
  for (int i = 0; i < 5; ++i) {
    pair.a.send(std::to_string(i));
  }
  pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.fence(pair.b);
  RecvLedger ledger = pool.ledger();
  EXPECT_EQ(ledger.stashed, 5u);
  EXPECT_EQ(ledger.posted, 0u);
  EXPECT_EQ(ledger.idle, 3u);
  expect_sums(ledger);
  pair.fence(pair.a);
  pair.open();
  pair.pump();
  EXPECT_EQ(pair.b.received.size(), 5u);
  ledger = pool.ledger();
  EXPECT_EQ(ledger.posted, 8u);
  EXPECT_EQ(ledger.stashed + ledger.delivered, 0u);
  expect_sums(ledger);
  EXPECT_LE(ledger.depth, 16u) << "buffers of the old QP were not used again";
  for (int i = 0; i < 20; ++i) {
    pair.recover();
  }
  EXPECT_LE(pool.ledger().depth, 16u);
}

TEST(RecvPoolPerQp, EndOfMemoryIsAnError) {
  Pair pair({.recv_depth = 8, .srq = false});
  FakeSrq queue;
  FakeQp qp;
  pair.fabric.init(queue);
  pair.fabric.init(qp, pair.a.cq, queue, 4, 0);
  pair.a.refuse_memory = true;
  EXPECT_FALSE(pair.a.recv_pool->attach_queue(&qp.base));
  pair.a.refuse_memory = false;
  EXPECT_TRUE(pair.a.recv_pool->attach_queue(&qp.base));
  EXPECT_EQ(queue.posted.size(), 8u);
  pair.a.recv_pool->detach_queue(&qp.base);
  EXPECT_EQ(pair.a.recv_pool->ledger().idle, 8u);
}

}  // namespace
}  // namespace mend::test
