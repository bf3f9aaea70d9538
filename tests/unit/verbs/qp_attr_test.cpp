// Transitions: exactly the attributes the verbs demand, and what a device that is slow or refuses
// gets.
#include "plugin/verbs/qp_attr.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "plugin/verbs/objects.h"
#include "tests/unit/verbs/fake_device.h"

namespace mend::verbs {
namespace {

QpParams sample() {
  QpParams params;
  params.port = 2;
  params.pkey_index = 3;
  params.qkey = 0x1234;
  params.path.port = 2;
  params.path.dlid = 77;
  params.path.global = true;
  params.path.dgid = Gid{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  params.path.sgid_index = 5;
  params.path.service_level = 4;
  params.path.traffic_class = 106;
  params.mtu = IBV_MTU_2048;
  params.dest_qpn = Qpn{0x4321};
  params.rq_psn = Psn{0xff123456};
  params.sq_psn = Psn{0xffabcdef};
  params.max_dest_rd_atomic = 7;
  params.max_rd_atomic = 6;
  params.min_rnr_timer = 13;
  params.timeout = 14;
  params.retry_count = 5;
  params.rnr_retry = 6;
  return params;
}

TEST(QpAttr, RcInit) {
  const QpChange change = rc_init(sample());
  EXPECT_EQ(change.mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(change.attr.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(change.attr.port_num, 2);
  EXPECT_EQ(change.attr.pkey_index, 3);
  EXPECT_EQ(change.attr.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_WRITE));
}

TEST(QpAttr, RcRtr) {
  const QpChange change = rc_rtr(sample());
  EXPECT_EQ(change.mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(change.attr.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(change.attr.dest_qp_num, 0x4321u);
  EXPECT_EQ(change.attr.rq_psn, 0x123456u) << "24 bits";
  EXPECT_EQ(change.attr.max_dest_rd_atomic, 7);
  EXPECT_EQ(change.attr.min_rnr_timer, 13);
  EXPECT_EQ(change.attr.ah_attr.is_global, 1);
  EXPECT_EQ(change.attr.ah_attr.dlid, 77);
  EXPECT_EQ(change.attr.ah_attr.sl, 4);
  EXPECT_EQ(change.attr.ah_attr.port_num, 2);
  EXPECT_EQ(change.attr.ah_attr.grh.sgid_index, 5);
  EXPECT_EQ(change.attr.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(change.attr.ah_attr.grh.dgid.raw[15], 9);
}

TEST(QpAttr, RcRts) {
  const QpChange change = rc_rts(sample());
  EXPECT_EQ(change.mask, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(change.attr.sq_psn, 0xabcdefu);
  EXPECT_EQ(change.attr.timeout, 14);
  EXPECT_EQ(change.attr.retry_cnt, 5);
  EXPECT_EQ(change.attr.rnr_retry, 6);
  EXPECT_EQ(change.attr.max_rd_atomic, 6);
}

TEST(QpAttr, Ud) {
  EXPECT_EQ(ud_init(sample()).mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  EXPECT_EQ(ud_init(sample()).attr.qkey, 0x1234u);
  EXPECT_EQ(ud_rtr().mask, IBV_QP_STATE);
  EXPECT_EQ(ud_rts(sample()).mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
  EXPECT_EQ(to_error().mask, IBV_QP_STATE);
  EXPECT_EQ(to_error().attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(to_reset().mask, IBV_QP_STATE);
  EXPECT_EQ(to_reset().attr.qp_state, IBV_QPS_RESET);
}

TEST(QpAttr, LocalPathHasNoGrh) {
  QpParams params = sample();
  params.path.global = false;
  const ibv_ah_attr attr = path_attr(params.path);
  EXPECT_EQ(attr.is_global, 0);
  EXPECT_EQ(attr.grh.dgid.raw[15], 0);
}

class QpAttrDevice : public testing::Test {
 protected:
  void SetUp() override {
    auto devices = DeviceList::query(fake.api);
    ASSERT_TRUE(devices);
    context = std::move(*open_device(fake.api, (*devices)[0]));
    caps = *query_caps(fake.api, context.get());
    pd = std::move(*alloc_pd(fake.api, context.get()));
    cq = std::move(*create_cq(fake.api, context.get(), caps, {.depth = 16}));
    qp = std::move(
        create_qp(fake.api, pd.get(), caps,
                  {.send_cq = cq.get(), .recv_cq = cq.get(), .send_depth = 4, .recv_depth = 4})
            ->qp);
  }
  test::FakeDevice fake;
  Context context;
  Pd pd;
  DeviceCaps caps;
  Cq cq;
  Qp qp;
};

TEST_F(QpAttrDevice, RefusalNamesQpStateAndReason) {
  fake.fail("modify_qp", EINVAL);
  const auto moved = modify(fake.api, qp.get(), rc_init(sample()));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, EINVAL);
  EXPECT_EQ(moved.error().message, "modify_qp 0x100 on fake0 to INIT: Invalid argument");
}

TEST_F(QpAttrDevice, ConfirmStateSees) {
  ASSERT_TRUE(modify(fake.api, qp.get(), rc_init(sample())));
  EXPECT_TRUE(confirm_state(fake.api, qp.get(), IBV_QPS_INIT, std::chrono::milliseconds(0)));
}

TEST_F(QpAttrDevice, ConfirmStateGivesUpInTime) {
  const auto start = std::chrono::steady_clock::now();
  const auto seen = confirm_state(fake.api, qp.get(), IBV_QPS_ERR, std::chrono::milliseconds(5));
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, ETIMEDOUT);
  EXPECT_NE(seen.error().message.find("still RESET after 5 ms, not ERR"), std::string::npos);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(5));
}

TEST_F(QpAttrDevice, ConfirmStateReportsTheDevicesError) {
  fake.fail("query_qp", EIO);
  const auto seen = confirm_state(fake.api, qp.get(), IBV_QPS_ERR, std::chrono::milliseconds(5));
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, EIO);
}

}  // namespace
}  // namespace mend::verbs
