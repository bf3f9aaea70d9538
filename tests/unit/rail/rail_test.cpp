// Rails: what a port must offer, what is granted, the 2 x rule and the CQ bound when QPs are added.
#include "plugin/conn/rail.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/sizing.h"
#include "tests/unit/rail/rail_kit.h"

namespace mend::conn {
namespace {

using RailTest = RailKit;

TEST_F(RailTest, TellsWhatItOffers) {
  fake.inline_limit = 128;
  open();
  EXPECT_EQ(rail->info().name, "fake0:1");
  EXPECT_EQ(rail->info().speed_mbps, 100000u);
  EXPECT_EQ(rail->info().max_inline_payload, 128u - 16u);
  EXPECT_EQ(rail->info().max_message, std::uint64_t{1} << 30);
  EXPECT_EQ(rail->sizes().send_depth, 16u);
  EXPECT_TRUE(rail->port_active());
  EXPECT_EQ(fake.live["qp"], 0) << "the probe is gone";
}

TEST_F(RailTest, NoInlineIsFine) {
  fake.inline_limit = 0;
  open();
  EXPECT_EQ(rail->info().max_inline_payload, 0u);
}

TEST_F(RailTest, EverythingIsGivenBack) {
  open();
  rail.reset();
  nic.reset();
  for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
}

TEST_F(RailTest, PortThatIsDownIsNamed) {
  fake.port.state = IBV_PORT_DOWN;
  const auto made = try_open();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ENETDOWN);
  EXPECT_EQ(made.error().message, "fake0:1 is not active (state DOWN)");
}

TEST_F(RailTest, WrongGidIndexIsNamed) {
  params.gid_index = 5;
  const auto made = try_open();
  ASSERT_FALSE(made);
  EXPECT_TRUE(has(made.error().message, "fake0:1: GID index 5 is not usable"))
      << made.error().message;
}

TEST_F(RailTest, WrongPkeyIsNamed) {
  params.pkey = 0x77;
  const auto made = try_open();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, EINVAL);
}

TEST_F(RailTest, MtuIsTheSmallerOne) {
  params.mtu = 1024;
  open();
  EXPECT_EQ(rail->port().mtu, IBV_MTU_1024);
  params.mtu = 0;
  open();
  EXPECT_EQ(rail->port().mtu, IBV_MTU_4096);
}

TEST_F(RailTest, MemlockTooLowNamesTheRegistration) {
  fake.fail("reg_mr", ENOMEM);
  const auto made = try_open();
  ASSERT_FALSE(made);
  EXPECT_TRUE(has(made.error().message, "registering")) << made.error().message;
}

// Each creation of the set-up fails once: an error with a message, nothing left behind.
class RailSetUpFailure : public RailKit, public testing::WithParamInterface<const char*> {};

TEST_P(RailSetUpFailure, LeavesNothingBehind) {
  fake.fail(GetParam(), EPERM, 100);
  const auto made = try_open();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code == EPERM || made.error().code == ENOMEM, true) << made.error().code;
  EXPECT_FALSE(made.error().message.empty());
  nic.reset();
  for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
}
INSTANTIATE_TEST_SUITE_P(Calls, RailSetUpFailure,
                         testing::Values("query_device", "alloc_pd", "query_port", "create_srq",
                                         "create_cq", "create_qp", "reg_mr"));

TEST_F(RailTest, TwoTimesRuleGrowsTheBuffers) {
  params.srq_depth = 4;
  open(20);
  EXPECT_EQ(rail->recv_pool().depth(), 4u);
  for (std::uint32_t qps = 1; qps <= 20; ++qps) {
    ASSERT_TRUE(rail->reserve_qps(1));
    EXPECT_GE(rail->recv_pool().depth(), two_times(qps));
    EXPECT_EQ(fake.posted_receives(rail->srq()), rail->recv_pool().depth());
    EXPECT_GE(rail->sizes().cq_entries,
              cq_depth(qps, 16 + kReservedSendWrs, rail->recv_pool().depth()));
  }
  rail->release_qps(20);
  EXPECT_EQ(rail->reserved_qps(), 0u);
}

TEST_F(RailTest, TwoTimesRuleIsNamedWhenTheDeviceCannot) {
  fake.limits.max_srq_wr = 16;
  open(100);
  ASSERT_TRUE(rail->reserve_qps(8));
  const auto refused = rail->reserve_qps(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(rail->reserved_qps(), 8u) << "a refusal reserves nothing";
  EXPECT_TRUE(has(refused.error().message, "fake0:1: no room for QP 9")) << refused.error().message;
  EXPECT_TRUE(has(refused.error().message, "2 per queue pair")) << refused.error().message;
}

TEST_F(RailTest, CqGrowsWithQps) {
  open();
  const auto before = rail->sizes().cq_entries;
  ASSERT_TRUE(rail->reserve_qps(30));
  EXPECT_GT(rail->sizes().cq_entries, before);
  EXPECT_EQ(static_cast<std::uint32_t>(rail->cq()->cqe), rail->sizes().cq_entries);
}

TEST_F(RailTest, CqThatCannotGrowRefusesTheQp) {
  open();
  fake.can_resize = false;
  const auto refused = rail->reserve_qps(1000);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error().message, "resize_cq on fake0")) << refused.error().message;
}

TEST_F(RailTest, DeviceWithoutSrq) {
  fake.limits.max_srq = 0;
  open();
  EXPECT_EQ(rail->srq(), nullptr);
  EXPECT_EQ(rail->sizes().per_qp_recv, 8u);
  EXPECT_TRUE(rail->recv_pool().per_qp());
  ASSERT_TRUE(rail->reserve_qps(10));
  EXPECT_GE(rail->sizes().cq_entries, cq_depth(10, 16 + kReservedSendWrs + 8, 0));
}

TEST_F(RailTest, PortComesBackWithAnotherGid) {
  open();
  fake.port.state = IBV_PORT_DOWN;
  ASSERT_TRUE(rail->refresh_port());
  EXPECT_FALSE(rail->port_active());
  EXPECT_EQ(rail->port().gid.index, 1u) << "what the peers know stays until a new one is there";
  fake.port.state = IBV_PORT_ACTIVE;
  fake.gids = {
      {3, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9}, verbs::GidType::RoceV2}};
  ASSERT_TRUE(rail->refresh_port());
  EXPECT_TRUE(rail->port_active());
  EXPECT_EQ(rail->port().gid.index, 3u);
  EXPECT_EQ(rail->qp_params({}).path.sgid_index, 3);
}

TEST_F(RailTest, PortActiveBeforeItsGidIsNotActive) {
  open();
  fake.gids.clear();
  EXPECT_FALSE(rail->refresh_port());
  EXPECT_FALSE(rail->port_active());
}

TEST_F(RailTest, ParametersReachTheQp) {
  params.ib_timeout = 14;
  params.ib_retry_count = 3;
  params.ib_rnr_retry = 5;
  params.ib_min_rnr_timer = 9;
  params.service_level = 2;
  params.traffic_class = 106;
  open();
  const auto qp = rail->qp_params(RemotePort{verbs::Gid{9}, 44});
  EXPECT_EQ(qp.timeout, 14);
  EXPECT_EQ(qp.retry_count, 3);
  EXPECT_EQ(qp.rnr_retry, 5);
  EXPECT_EQ(qp.min_rnr_timer, 9);
  EXPECT_EQ(qp.path.service_level, 2);
  EXPECT_EQ(qp.path.traffic_class, 106);
  EXPECT_EQ(qp.path.dlid, 44);
  EXPECT_TRUE(qp.path.global);
}

TEST_F(RailTest, InfinibandSubnetNeedsNoGrh) {
  fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  fake.port.lid = 5;
  const verbs::Gid mine{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1};
  fake.gids = {{0, mine, verbs::GidType::Ib}};
  open();
  const verbs::Gid near{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2}, far{0xfe, 0xc0, 1, 0, 0, 0, 0, 0, 2};
  EXPECT_FALSE(rail->qp_params({near, 7}).path.global);
  EXPECT_TRUE(rail->qp_params({far, 7}).path.global);
  EXPECT_FALSE(rail->qp_params({verbs::Gid{}, 7}).path.global);
}

}  // namespace
}  // namespace mend::conn
