// A shared receive queue that runs low because its process does not call MPI: more buffers where
// the user has not fixed their number, a line that names who holds them where he has, and in no
// case a message less.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "plugin/verbs/log.h"
#include "tests/unit/transport/fabric_kit.h"

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

std::uint64_t srq_depth(Rank& rank) {
  return nlohmann::json::parse(rank.transport->stats_json())["srq_depth"];
}

class SrqTest : public testing::Test {
 protected:
  SrqTest() {
    g_warnings.clear();
    set_log_sink(&keep_warnings);
  }
  ~SrqTest() override { set_log_sink(nullptr); }

  static constexpr std::uint64_t kMessages = 120;

  // Rank 0 sends, rank 1 is elsewhere until done() or the limit.
  static bool flood(Fabric& fabric, const std::function<bool()>& done) {
    fabric[0].send(1, 8, 0);
    if (!fabric.until([&] { return fabric[1].inbox.size() == 1; })) return false;
    for (std::uint64_t i = 1; i < kMessages; ++i) fabric[0].send(1, 200, i);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done() && std::chrono::steady_clock::now() < limit) {
      fabric[0].progress();
      std::this_thread::yield();
    }
    return done();
  }
  static void expect_all(Fabric& fabric) {
    ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == kMessages; }));
    for (std::uint64_t i = 1; i < kMessages; ++i)
      ASSERT_EQ(fabric[1].inbox[i].bytes, pattern(200, i)) << i;
    fabric.close_all();
    EXPECT_EQ(nlohmann::json::parse(fabric[1].transport->stats_json())["dup_rx"], 0);
  }
};

TEST_F(SrqTest, GrowsWhenItRunsLow) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  const std::uint64_t first = srq_depth(fabric[1]);
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
  {
    const std::lock_guard guard(g_mutex);
    EXPECT_NE(g_warnings[0].find("fewer than 4 of 16 receive buffers are free"), std::string::npos)
        << g_warnings[0];
    EXPECT_NE(g_warnings[0].find("btl_mend_srq_depth"), std::string::npos) << g_warnings[0];
  }
  expect_all(fabric);
  EXPECT_EQ(srq_depth(fabric[1]), 16u);
  EXPECT_EQ(starving_lines(), 1u) << "it is told now and then, not for each message";
}

}  // namespace
}  // namespace mend::test
