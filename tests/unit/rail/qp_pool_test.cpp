// The life of RC queue pairs: warm, taken, parked, destroyed; numbers, counts and refusals.
#include "plugin/conn/qp_pool.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "tests/unit/rail/rail_kit.h"

namespace mend::conn {
namespace {

class QpPoolTest : public RailKit {
 protected:
  void start(std::uint32_t peers = 4) {
    open(peers);
    pool = std::make_unique<QpPool>(*rail, params);
  }
  // As the fence leaves it.
  void fenced(RcQp& qp) {
    ASSERT_TRUE(verbs::modify(fake.api, qp.qp.get(), verbs::to_reset()));
    qp.stage = QpStage::Fenced;
  }
  void TearDown() override {
    pool.reset();
    rail.reset();
    nic.reset();
    for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
  }
  std::unique_ptr<QpPool> pool;
};

TEST_F(QpPoolTest, TakesWarmOnes) {
  start();
  ASSERT_TRUE(pool->refill());
  EXPECT_EQ(pool->counts().live, 2u);
  const int before = fake.calls("create_qp");
  auto qp = pool->take(Qpn{0});
  ASSERT_TRUE(qp);
  EXPECT_EQ(fake.calls("create_qp"), before) << "no creation on the way to a connection";
  EXPECT_EQ((*qp)->stage, QpStage::Armed);
  EXPECT_EQ(fake.state((*qp)->qpn.value), IBV_QPS_INIT);
  ASSERT_TRUE(pool->refill());
  EXPECT_EQ(pool->counts().live, 3u);
  EXPECT_EQ(rail->reserved_qps(), 3u) << "warm ones count for the 2 x rule";
}

TEST_F(QpPoolTest, WalksToRts) {
  start();
  auto qp = pool->take(Qpn{0});
  ASSERT_TRUE(qp);
  const auto params_of_qp = connected_to(Qpn{0x999});
  ASSERT_TRUE(pool->to_rtr(**qp, params_of_qp));
  ASSERT_TRUE(pool->to_rts(**qp, params_of_qp));
  EXPECT_EQ((*qp)->stage, QpStage::Rts);
  EXPECT_EQ(fake.state((*qp)->qpn.value), IBV_QPS_RTS);
}

TEST_F(QpPoolTest, RefusedTransitionKeepsTheStage) {
  start();
  auto qp = pool->take(Qpn{0});
  fake.fail("modify_qp", EINVAL);
  EXPECT_FALSE(pool->to_rtr(**qp, connected_to(Qpn{1})));
  EXPECT_EQ((*qp)->stage, QpStage::Armed);
}

// Rule F4: ghosts of the connection's previous QP must not find its number again.
TEST_F(QpPoolTest, NeverTheSameNumberTwiceInARow) {
  start();
  params.qp_pool_size = 0;
  auto first = pool->take(Qpn{0});
  ASSERT_TRUE(first);
  const Qpn old = (*first)->qpn;
  fenced(**first);
  pool->park(*first, 0);
  EXPECT_EQ(pool->reap(kNever - 1), kNever) << "the old one is gone, its number free";
  fake.qpns_to_reuse = {old.value};
  auto second = pool->take(old);
  ASSERT_TRUE(second);
  EXPECT_NE((*second)->qpn, old);
  auto third = pool->take(Qpn{0});
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)->qpn, old) << "another connection may have it";
}

TEST_F(QpPoolTest, ParkedOnesLinger) {
  start();
  auto qp = pool->take(Qpn{0});
  const Qpn number = (*qp)->qpn;
  fenced(**qp);
  pool->park(*qp, 5 * kSecond);
  EXPECT_EQ(rail->reserved_qps(), 0u) << "in RESET it needs no buffers";
  EXPECT_EQ(pool->reap(5 * kSecond), 6 * kSecond);
  EXPECT_TRUE(pool->owns(number));
  EXPECT_EQ(pool->reap(6 * kSecond - 1), 6 * kSecond);
  EXPECT_EQ(pool->reap(6 * kSecond), kNever);
  EXPECT_FALSE(pool->owns(number));
  EXPECT_EQ(pool->counts().destroyed, 1u);
}

TEST_F(QpPoolTest, ShortOfQpsTheLingerIsGivenUp) {
  fake.limits.max_qp = 2;
  start();
  auto a = pool->take(Qpn{0});
  auto b = pool->take(Qpn{0});
  ASSERT_TRUE(a && b);
  const auto none = pool->take(Qpn{0});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ENOMEM);
  EXPECT_TRUE(has(none.error().message, "2 queue pairs")) << none.error().message;
  fenced(**a);
  pool->park(*a, 0);
  EXPECT_TRUE(pool->take(Qpn{0}));
  EXPECT_EQ(pool->counts().live_max, 2u);
}

TEST_F(QpPoolTest, RefusedByTheRuleNothingIsCreated) {
  fake.limits.max_srq_wr = 4;
  start();
  ASSERT_TRUE(pool->take(Qpn{0}));
  ASSERT_TRUE(pool->take(Qpn{0}));
  const auto none = pool->take(Qpn{0});
  ASSERT_FALSE(none);
  EXPECT_EQ(fake.live["qp"], 2);
  EXPECT_EQ(pool->counts().created, 2u);
}

TEST_F(QpPoolTest, FailedArmingGivesTheReservationBack) {
  start();
  fake.fail("modify_qp", ENOMEM);
  EXPECT_FALSE(pool->take(Qpn{0}));
  EXPECT_EQ(rail->reserved_qps(), 0u);
  EXPECT_EQ(fake.live["qp"], 0);
}

TEST_F(QpPoolTest, StuckOnesAreNeverReused) {
  start();
  auto qp = pool->take(Qpn{0});
  (*qp)->stage = QpStage::Stuck;
  pool->park(*qp, 0);
  EXPECT_EQ(pool->reap(kNever - 1), kNever);
  EXPECT_TRUE(pool->owns((*qp)->qpn));
  EXPECT_EQ(rail->reserved_qps(), 1u) << "it may still take buffers";
  EXPECT_EQ(pool->counts().live, 1u);
}

// What the statistics call live is what the 2 x rule counts. Once it was everything that existed,
// so that a storm of recoveries looked like a rule that was broken.
TEST_F(QpPoolTest, ParkedOnesAreNotLive) {
  start();
  ASSERT_TRUE(pool->refill());
  const std::uint32_t warm = rail->reserved_qps();
  EXPECT_EQ(pool->counts().live, warm);
  const auto before = pool->counts();
  for (std::uint32_t round = 1; round <= 50; ++round) {
    auto qp = pool->take(Qpn{0});
    ASSERT_TRUE(qp) << qp.error().message;
    ASSERT_TRUE(pool->refill());
    EXPECT_EQ(pool->counts().live, warm + 1);
    EXPECT_EQ(pool->counts().live, rail->reserved_qps());
    fenced(**qp);
    pool->park(*qp, 0);
    EXPECT_EQ(pool->counts().live, warm);
    EXPECT_EQ(pool->counts().existing(), before.existing() + round) << "they linger";
  }
  EXPECT_EQ(pool->counts().live_max, warm + 1);
  EXPECT_GE(rail->recv_pool().depth(), 2 * pool->counts().live_max) << "the 2 x rule";
  pool->clear();
  EXPECT_EQ(pool->counts().live, 0u);
  EXPECT_EQ(pool->counts().existing(), 0u);
}

TEST_F(QpPoolTest, ARefusedOneIsNotLive) {
  start();
  fake.fail("modify_qp", ENOMEM);
  EXPECT_FALSE(pool->take(Qpn{0}));
  EXPECT_EQ(pool->counts().live, 0u);
  EXPECT_EQ(pool->counts().live_max, 0u);
}

TEST_F(QpPoolTest, LastWqeReachesItsQp) {
  start();
  auto qp = pool->take(Qpn{0});
  EXPECT_FALSE(pool->on_last_wqe(Qpn{0x7777}));
  EXPECT_EQ(nic->last_wqe(), LastWqe::Unknown);
  EXPECT_TRUE(pool->on_last_wqe((*qp)->qpn));
  EXPECT_TRUE((*qp)->last_wqe);
  EXPECT_EQ(nic->last_wqe(), LastWqe::Delivered);
}

TEST_F(QpPoolTest, WithoutSrqEachQpBringsItsBuffers) {
  fake.limits.max_srq = 0;
  start();
  auto qp = pool->take(Qpn{0});
  ASSERT_TRUE(qp) << qp.error().message;
  EXPECT_EQ(rail->recv_pool().ledger().posted, 8u);
  fenced(**qp);
  pool->park(*qp, 0);
  EXPECT_EQ(rail->recv_pool().ledger().posted, 0u);
  ASSERT_TRUE(pool->take(Qpn{0}));
  EXPECT_EQ(rail->recv_pool().ledger().depth, 8u) << "the buffers are used again";
}

TEST_F(QpPoolTest, ClearDestroysWarmAndParked) {
  start();
  ASSERT_TRUE(pool->refill());
  auto qp = pool->take(Qpn{0});
  fenced(**qp);
  pool->park(*qp, 0);
  pool->clear();
  EXPECT_EQ(pool->counts().existing(), 0u);
  EXPECT_EQ(rail->reserved_qps(), 0u);
}

}  // namespace
}  // namespace mend::conn
