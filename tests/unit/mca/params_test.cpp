// Every parameter: what is legal reaches the transport, what is not is refused with name, value and
// range.
#include "plugin/mca/params.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/unit/mca/fake_transport.h"
#include "tests/unit/mca/opal_session.h"

namespace mend::test {
namespace {

struct Bad {
  const char* setting;
  const char* name;
  const char* legal;  // part of the text that names the legal values
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.setting; }

class BadParameter : public testing::TestWithParam<Bad> {};

TEST_P(BadParameter, IsRefusedByName) {
  const Bad& bad = GetParam();
  reset_fake();
  Session session({bad.setting});
  EXPECT_EQ(session.count(), 0);
  EXPECT_EQ(fake().alive, 0);
  const std::string setting = bad.setting;
  const std::string value = setting.substr(setting.find('=') + 1);
  EXPECT_NE(session.said().find(std::string("btl_mend_") + bad.name + "\n"), std::string::npos)
      << session.said();
  EXPECT_NE(session.said().find("Value:      " + value + "\n"), std::string::npos)
      << session.said();
  EXPECT_NE(session.said().find(bad.legal), std::string::npos) << session.said();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadParameter,
    testing::Values(
        Bad{"gid_index=256", "gid_index", "0 to 255"},
        Bad{"gid_index=-2", "gid_index", "-1 (choose"}, Bad{"pkey=65536", "pkey", "1 to 65535"},
        Bad{"mtu=1000", "mtu", "256, 512, 1024, 2048, 4096"}, Bad{"mtu=8192", "mtu", "256 to 4096"},
        Bad{"service_level=16", "service_level", "0 to 15"},
        Bad{"traffic_class=-1", "traffic_class", "0 to 255"},
        Bad{"ib_timeout=32", "ib_timeout", "0 to 31"},
        Bad{"ib_retry_count=8", "ib_retry_count", "0 to 7"},
        Bad{"ib_rnr_retry=8", "ib_rnr_retry", "0 to 7"},
        Bad{"ib_min_rnr_timer=32", "ib_min_rnr_timer", "0 to 31"},
        Bad{"max_inline=257", "max_inline", "0 to 256"},
        Bad{"send_queue_depth=7", "send_queue_depth", "8 to 32768"},
        Bad{"srq_depth=1", "srq_depth", "or 0 (automatic)"},
        Bad{"srq_low_watermark=-5", "srq_low_watermark", "1 to 1048576"},
        Bad{"window=1", "window", "2 to 4096 messages"}, Bad{"window=5000", "window", "2 to 4096"},
        Bad{"qp_pool_size=1025", "qp_pool_size", "0 to 1024"},
        Bad{"qp_linger_ms=-1", "qp_linger_ms", "milliseconds"},
        Bad{"heartbeat_interval_ms=9", "heartbeat_interval_ms", "10 to 3600000 milliseconds"},
        Bad{"heartbeat_misses=0", "heartbeat_misses", "1 to 1000"},
        Bad{"heartbeat_idle_s=-1", "heartbeat_idle_s", "seconds"},
        Bad{"max_outage_s=-1", "max_outage_s", "0 (wait for ever)"},
        Bad{"reconnect_backoff_min_ms=0", "reconnect_backoff_min_ms", "1 to 60000"},
        Bad{"reconnect_backoff_max_ms=5", "reconnect_backoff_max_ms", "at least"},
        Bad{"numa_policy=far", "numa_policy", "near, spread or none"},
        Bad{"standby=maybe", "standby", "on or off"},
        Bad{"max_send_size=100", "max_send_size", "1024 to 4194304 bytes"},
        Bad{"eager_limit=64", "eager_limit", "256 to"},
        Bad{"eager_limit=40000", "eager_limit", "to 32768 bytes"},
        Bad{"rndv_eager_limit=40000", "rndv_eager_limit", "to 32768 bytes"},
        Bad{"rdma_pipeline_frag_size=1", "rdma_pipeline_frag_size", "4096 to"}));

TEST(Parameters, IncludeAndExcludeExcludeEachOther) {
  reset_fake();
  Session session({"if_include=mlx5_0", "if_exclude=mlx5_1:2"});
  EXPECT_EQ(session.count(), 0);
  EXPECT_NE(session.said().find("btl_mend_if_exclude"), std::string::npos);
  EXPECT_NE(session.said().find("mlx5_0"), std::string::npos);
}

TEST(Parameters, DefaultsAreLegalAndSaidNothingAbout) {
  reset_fake();
  Session session;
  EXPECT_EQ(session.count(), 1);
  EXPECT_EQ(session.said(), "");
  EXPECT_EQ(fake().params.verbs_library, "auto");
  EXPECT_EQ(fake().params.ib_timeout, 15);
  EXPECT_EQ(fake().params.window, 128);
  EXPECT_EQ(fake().params.held_bytes_per_peer, 64ull << 20);
  EXPECT_EQ(fake().params.standby, "on");
}

TEST(Parameters, ReachTheTransport) {
  reset_fake();
  Session session({"window=64", "ib_timeout=20", "mtu=2048", "max_send_size=65536", "standby=off",
                   "numa_policy=spread", "if_include=a:1,b", "verbs_library=softhca",
                   "held_bytes=1048576", "prewarm=true", "max_inline=0", "max_outage_s=0",
                   "softhca_path=/somewhere/libsofthca.so", "srq_depth=2", "gid_index=3"});
  ASSERT_EQ(session.count(), 1) << session.said();
  const conn::Params& p = fake().params;
  EXPECT_EQ(p.window, 64);
  EXPECT_EQ(p.ib_timeout, 20);
  EXPECT_EQ(p.mtu, 2048);
  EXPECT_EQ(p.max_send_size, 65536u);
  EXPECT_EQ(p.standby, "off");
  EXPECT_EQ(p.numa_policy, "spread");
  EXPECT_EQ(p.if_include, "a:1,b");
  EXPECT_EQ(p.verbs_library, "softhca");
  EXPECT_EQ(p.softhca_path, "/somewhere/libsofthca.so");
  EXPECT_EQ(p.held_bytes_per_peer, 1048576u);
  EXPECT_TRUE(p.prewarm);
  EXPECT_EQ(p.max_inline, 0);
  EXPECT_EQ(p.max_outage_s, 0);
  EXPECT_EQ(p.srq_depth, 2);
  EXPECT_EQ(p.gid_index, 3);
  EXPECT_EQ(session.module()->btl_max_send_size, 65536u);
}

TEST(Parameters, SmallFragmentsAreNeverLargerThanLargeOnes) {
  reset_fake();
  Session session({"max_send_size=1024", "eager_limit=1024", "rndv_eager_limit=1024"});
  ASSERT_EQ(session.count(), 1) << session.said();
  EXPECT_LE(fake().params.small_frag_size, 1024u);
}

// Every parameter of the component has a help text; ranges are in the text where there are any.
TEST(Parameters, AllHaveHelpTexts) {
  register_component();
  int seen = 0;
  for (int i = 0; i < mca_base_var_get_count(); ++i) {
    const mca_base_var_t* var = nullptr;
    if (mca_base_var_get(i, &var) != OPAL_SUCCESS || var == nullptr) continue;
    const std::string name = var->mbv_full_name;
    if (!name.starts_with("btl_mend_")) continue;
    ++seen;
    EXPECT_GT(std::string(var->mbv_description == nullptr ? "" : var->mbv_description).size(), 15u)
        << name;
  }
  EXPECT_GE(seen, 45);
}

}  // namespace
}  // namespace mend::test
