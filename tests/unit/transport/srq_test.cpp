// A shared receive queue that runs low because its process does not call MPI: more buffers where
// the user has not fixed their number, a line that names who holds them where he has, and in no
// case a message less.
#include <gtest/gtest.h>

#include <mutex>

#include "plugin/verbs/log.h"
#include "tests/unit/stall_gauge.h"
#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

std::mutex g_mutex;
std::vector<std::string> g_warnings;

void keep_warnings(LogLevel level, std::string_view text) {
  const std::lock_guard guard(g_mutex);
  if (level == LogLevel::Warn) g_warnings.emplace_back(text);
}

std::size_t starving_lines() {
  const std::lock_guard guard(g_mutex);
  std::size_t count = 0;
  for (const std::string& line : g_warnings) count += line.starts_with("SRQ starving on ") ? 1 : 0;
  return count;
}

std::int64_t srq_depth(Rank& rank) { return rank.stat("srq_depth"); }

class SrqTest : public testing::Test {
 protected:
  void SetUp() override {
    g_warnings.clear();
    set_log_sink(&keep_warnings);
  }
  void TearDown() override { set_log_sink(nullptr); }

  static constexpr std::uint64_t kMessages = 120;

  // Rank 0 sends, rank 1 is elsewhere until done() or the limit.
  static bool flood(Fabric& fabric, const std::function<bool()>& done) {
    fabric[0].send(1, 8, 0);
    // Acknowledged as well: the connection is Active, and another epoch counts as a recovery.
    const auto settled = [&] {
      return fabric[1].inbox.size() == 1 && fabric[0].transport->flushed();
    };
    if (!fabric.until(settled)) return false;
    for (std::uint64_t i = 1; i < kMessages; ++i) fabric[0].send(1, 200, i);
    return fabric.until_by({0}, done, 10000);
  }
  static void expect_all(Fabric& fabric) {
    ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == kMessages; }));
    for (std::uint64_t i = 1; i < kMessages; ++i)
      ASSERT_EQ(fabric[1].inbox[i].bytes, pattern(200, i)) << i;
    fabric.close_all();
    EXPECT_EQ(fabric[1].stat("dup_rx"), 0);
  }
};

TEST_F(SrqTest, GrowsWhenItRunsLow) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  const std::int64_t first = srq_depth(fabric[1]);
  ASSERT_TRUE(flood(fabric, [&] { return srq_depth(fabric[1]) > first; }))
      << "still " << srq_depth(fabric[1]) << " receive buffers";
  EXPECT_EQ(starving_lines(), 0u);
  expect_all(fabric);
  EXPECT_LE(srq_depth(fabric[1]), 4 * first);
}

TEST_F(SrqTest, NamesTheHoldersWhereTheirNumberIsFixed) {
  conn::Params params;
  params.srq_depth = 16;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  ASSERT_TRUE(flood(fabric, [] { return starving_lines() > 0; }));
  // What lasts is told to the user; a burst is not (BurstsAreNobodysTrouble). A process that stood
  // still for long does not know whether it lasted, and begins anew.
  StallGauge gauge;
  bool stalled = false;
  for (int tries = 0; tries < 5; ++tries) {
    fabric.until_by(
        {0}, [] { return false; }, 2600);
    const bool now = gauge.longest() >= std::chrono::milliseconds(200);
    stalled |= now;
    if (!now) break;
  }
  {
    const std::lock_guard guard(g_mutex);
    EXPECT_NE(g_warnings[0].find("fewer than 4 of 16 receive buffers are free"), std::string::npos)
        << g_warnings[0];
    EXPECT_NE(g_warnings[0].find("btl_mend_srq_depth"), std::string::npos) << g_warnings[0];
  }
  expect_all(fabric);
  EXPECT_EQ(srq_depth(fabric[1]), 16);
  if (!stalled) {
    EXPECT_EQ(starving_lines(), 1u) << "it is told now and then, not for each message";
  }
  ASSERT_EQ(fabric[1].warnings.size(), 1u) << "to the user as well, when MPI is called";
  EXPECT_TRUE(fabric[1].warnings[0].starts_with("SRQ starving on ")) << fabric[1].warnings[0];
  EXPECT_TRUE(fabric[0].warnings.empty());
}

TEST_F(SrqTest, BurstsAreNobodysTrouble) {
  conn::Params params;
  params.srq_depth = 16;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  StallGauge gauge;
  ASSERT_TRUE(flood(fabric, [] { return starving_lines() > 0; }));
  expect_all(fabric);
  if (gauge.longest() >= std::chrono::seconds(1)) GTEST_SKIP() << "the machine made it last";
  EXPECT_TRUE(fabric[1].warnings.empty()) << fabric[1].warnings[0];
}

// The fence stashes what the dying queue pair had received, which is every buffer there is: the
// handshake and the acknowledgements must need none, or nobody moves again.
TEST_F(SrqTest, RecoversWhileTheStashHoldsEveryBuffer) {
  VerbsSpy spy;
  conn::Params params;
  params.srq_depth = 16;
  params.reconnect_backoff_min_ms = 1;
  params.ib_timeout = 8;  // its peer, told to wait, has nothing under way: only silence is noticed
  params.heartbeat_interval_ms = 50;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  ASSERT_TRUE(flood(fabric, [] { return starving_lines() > 0; }));
  const Epoch before = fabric[1].to(0).epoch();
  const auto victims = spy.in_rts(IBV_QPT_RC);
  ASSERT_FALSE(victims.empty());
  spy.break_qp(victims.front());
  const auto recovered = [&] {
    return fabric[0].to(1).epoch() > before && fabric[1].to(0).epoch() > before &&
           fabric[0].to(1).posting() && fabric[1].to(0).posting();
  };
  ASSERT_TRUE(fabric.until_by({0}, recovered, 10000)) << "while rank 1 is elsewhere";
  EXPECT_EQ(fabric[1].inbox.size(), 1u);
  EXPECT_TRUE(fabric.until([&] { return fabric[0].stat("recoveries") >= 1; }));
  expect_all(fabric);
}

}  // namespace
}  // namespace mend::test
