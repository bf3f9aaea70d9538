// Texts and rates of the ABI, which logs and other libraries depend on.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace {

// A value that the enumeration does not name, as a newer program may pass.
template <typename Enum>
Enum beyond(int value) {
  return static_cast<Enum>(value);
}

TEST(Strings, KnownAndUnknownValues) {
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous");
  EXPECT_STREQ(ibv_wc_status_str(beyond<ibv_wc_status>(99)), "unknown");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED), "last WQE reached");
  EXPECT_STREQ(ibv_event_type_str(beyond<ibv_event_type>(-1)), "unknown");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
}

TEST(Strings, RatesRoundTrip) {
  int known = 0;
  for (int i = 0; i < 32; ++i) {
    const auto rate = static_cast<ibv_rate>(i);
    const int mbps = ibv_rate_to_mbps(rate);
    if (mbps < 0) continue;
    ++known;
    EXPECT_EQ(mbps_to_ibv_rate(mbps), rate);
    const int mult = ibv_rate_to_mult(rate);
    if (mult > 0) {
      EXPECT_EQ(mult_to_ibv_rate(mult), rate);
    }
  }
  EXPECT_EQ(known, 23);
  EXPECT_EQ(mult_to_ibv_rate(-1), IBV_RATE_MAX);
  EXPECT_EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_MAX), -1);
}

}  // namespace
