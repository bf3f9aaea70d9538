// The fence on devices that behave and on devices that do not: what was received counts, nothing
// comes after.
#include "plugin/conn/fence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "ops/channel.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "tests/unit/rail/rail_kit.h"

namespace mend::conn {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLimit{500};
constexpr int kAlways = 1000000;

class FenceTest : public RailKit {
 protected:
  void start() {
    open(4);
    pool = std::make_unique<QpPool>(*rail, params);
    // As the service thread does, at once: what comes later than 10 ms after the flush is missed
    // the first time, and on a busy machine a thread of the test's own came later.
    fake.last_wqe_hook = [](void* context, std::uint32_t qpn) {
      static_cast<FenceTest*>(context)->pool->on_last_wqe(Qpn{qpn});
    };
    fake.hook_context = this;
    channel =
        std::make_unique<ops::Channel>(rail->poller(), ops::ChannelConfig{}, ops::ChannelEvents{});
    auto taken = pool->take(Qpn{0});
    ASSERT_TRUE(taken) << taken.error().message;
    qp = *taken;
    rail->poller().add_lane(qp->qpn, Epoch{1}, *channel, deliver, this);
    ops::Lane lane;
    lane.qp = qp->qp.get();
    lane.qpn = qp->qpn;
    lane.epoch = Epoch{1};
    channel->attach(lane);
    ASSERT_TRUE(pool->to_rtr(*qp, connected_to(Qpn{0x9999})));
    ASSERT_TRUE(pool->to_rts(*qp, connected_to(Qpn{0x9999})));
  }
  static void deliver(void* context, std::uint8_t, std::span<const std::byte>) {
    ++static_cast<FenceTest*>(context)->delivered;
  }
  void receive(std::uint32_t seq) {
    ops::DataHeader header{};
    header.seq = seq;
    header.epoch_lo = 1;
    ASSERT_TRUE(fake.push_receive(qp->qpn.value, std::as_bytes(std::span(&header, 1))));
  }
  void expect_patience(int skip) {
    start();
    fake.raises_last_wqe = false;
    const int before = fake.calls("modify_qp");
    fake.fail("modify_qp", ENOMEM, 3, skip);
    const FenceReport report = fence(*rail, *qp, kLimit);
    EXPECT_EQ(report.outcome, FenceOutcome::Fenced) << report.reason;
    EXPECT_EQ(fake.calls("modify_qp") - before, 5) << "two steps and three refusals";
  }
  void TearDown() override {
    if (channel) {
      rail->poller().remove_lane(qp->qpn);
      channel->detach();
      rail->poller().forget(*channel, this);
      channel.reset();
    }
    pool.reset();
    rail.reset();
    nic.reset();
    for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
  }

  std::unique_ptr<QpPool> pool;
  std::unique_ptr<ops::Channel> channel;
  RcQp* qp = nullptr;
  int delivered = 0;
};

TEST_F(FenceTest, ReachesResetOverErrWithBeaconAndEvent) {
  start();
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::Fenced) << report.reason;
  EXPECT_TRUE(report.beacon_seen);
  EXPECT_TRUE(report.last_wqe_seen);
  EXPECT_EQ(nic->last_wqe(), LastWqe::Delivered);
  EXPECT_EQ(qp->stage, QpStage::Fenced);
  ASSERT_GE(fake.modifies.size(), 2u);
  EXPECT_EQ(fake.modifies[fake.modifies.size() - 2].to, IBV_QPS_ERR);
  EXPECT_EQ(fake.modifies.back().to, IBV_QPS_RESET);
}

// Rule F1: what sits in the CQ when the fence begins was executed, so it counts.
TEST_F(FenceTest, WhatWasReceivedCounts) {
  start();
  receive(0);
  receive(1);
  EXPECT_EQ(channel->progress_now().rx_next, Seq{0});
  ASSERT_TRUE(fence(*rail, *qp, kLimit).fenced());
  EXPECT_EQ(channel->progress_now().rx_next, Seq{2});
  EXPECT_EQ(delivered, 0) << "never from the fencing thread";
  rail->poller().progress();
  EXPECT_EQ(delivered, 2);
  const auto ledger = rail->recv_pool().ledger();
  EXPECT_EQ(ledger.posted, ledger.depth) << "no buffer lost";
  EXPECT_EQ(fake.posted_receives(rail->srq()), ledger.depth);
}

TEST_F(FenceTest, DeviceWithoutLastWqeIsLearnedOnce) {
  fake.raises_last_wqe = false;
  start();
  FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_TRUE(report.fenced());
  EXPECT_TRUE(report.beacon_seen);
  EXPECT_FALSE(report.last_wqe_seen);
  EXPECT_EQ(nic->last_wqe(), LastWqe::Missing);

  // The fastest of some: any one may lose its core for a time slice.
  std::uint64_t fastest = report.microseconds;
  Qpn last = qp->qpn;
  for (int i = 0; i < 10; ++i) {
    auto next = pool->take(last);
    ASSERT_TRUE(next);
    last = (*next)->qpn;
    ASSERT_TRUE(pool->to_rtr(**next, connected_to(Qpn{1})));
    report = fence(*rail, **next, kLimit);
    EXPECT_TRUE(report.fenced());
    fastest = std::min<std::uint64_t>(fastest, report.microseconds);
    pool->park(*next, 0);
  }
  EXPECT_LT(fastest, 8000u) << "not waited for again";
}

TEST_F(FenceTest, LostBeaconStillFences) {
  fake.loses_beacons = true;
  fake.raises_last_wqe = false;
  start();
  receive(0);
  const auto begin = std::chrono::steady_clock::now();
  const FenceReport report = fence(*rail, *qp, milliseconds(30));
  EXPECT_TRUE(report.fenced());
  EXPECT_FALSE(report.beacon_seen);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "bounded";
  EXPECT_EQ(channel->progress_now().rx_next, Seq{1});
}

TEST_F(FenceTest, CompletionsLeftAfterResetCount) {
  fake.reset_keeps_completions = true;
  start();
  receive(0);
  ASSERT_TRUE(fence(*rail, *qp, kLimit).fenced());
  EXPECT_EQ(channel->progress_now().rx_next, Seq{1});
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(rail->cq(), 1, &wc), 0);
}

TEST_F(FenceTest, QpThatBrokeByItself) {
  start();
  receive(0);
  fake.break_qp(qp->qpn.value);
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_TRUE(report.fenced()) << report.reason;
  EXPECT_TRUE(report.beacon_seen);
  EXPECT_EQ(channel->progress_now().rx_next, Seq{1});
}

TEST_F(FenceTest, NothingToFenceInReset) {
  start();
  ASSERT_TRUE(fence(*rail, *qp, kLimit).fenced());
  const std::size_t changes = fake.modifies.size();
  EXPECT_TRUE(fence(*rail, *qp, kLimit).fenced());
  EXPECT_EQ(fake.modifies.size(), changes);
}

TEST_F(FenceTest, RefusedErrFails) {
  start();
  fake.fail("modify_qp", EINVAL, kAlways);
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::Failed);
  EXPECT_TRUE(has(report.reason, "to ERR")) << report.reason;
  EXPECT_EQ(qp->stage, QpStage::Stuck);
}

TEST_F(FenceTest, RefusedResetFails) {
  start();
  fake.raises_last_wqe = false;
  fake.fail("modify_qp", ENOMEM, kAlways, 1);
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::Failed);
  EXPECT_TRUE(has(report.reason, "to RESET")) << report.reason;
}

// One refusal ended the job; what a device refuses for a moment is tried again.
TEST_F(FenceTest, ErrRefusedForAMomentIsTriedAgain) { expect_patience(0); }
TEST_F(FenceTest, ResetRefusedForAMomentIsTriedAgain) { expect_patience(1); }

TEST_F(FenceTest, DeadDeviceCountsAsFenced) {
  start();
  fake.fail("modify_qp", EIO);
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::DeviceGone);
  EXPECT_TRUE(report.fenced());
  EXPECT_TRUE(nic->fatal());
}

TEST_F(FenceTest, AnyErrorOfADeviceKnownDeadCountsAsFenced) {
  start();
  nic->set_fatal();
  fake.fail("modify_qp", ENODEV);
  EXPECT_EQ(fence(*rail, *qp, kLimit).outcome, FenceOutcome::DeviceGone);
}

// The state is asked for after each step; a query that fails for want of something is repeated.
TEST_F(FenceTest, AStateThatCannotBeAskedForAtOnceIsAskedForAgain) {
  start();
  fake.fail("query_qp", ENOMEM, 3);
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::Fenced) << report.reason;
  EXPECT_GE(fake.calls("query_qp"), 4);
}

TEST_F(FenceTest, AStateThatIsNeverSeenIsNoFence) {
  start();
  fake.stuck_state = true;
  const FenceReport report = fence(*rail, *qp, kLimit);
  EXPECT_EQ(report.outcome, FenceOutcome::Failed);
  EXPECT_NE(report.reason.find("not ERR"), std::string::npos) << report.reason;
  fake.stuck_state = false;
}

TEST_F(FenceTest, AnIoErrorOfTheQueryMeansADeadDevice) {
  start();
  fake.fail("query_qp", EIO);
  EXPECT_EQ(fence(*rail, *qp, kLimit).outcome, FenceOutcome::DeviceGone);
  EXPECT_TRUE(nic->fatal());
}

}  // namespace
}  // namespace mend::conn
