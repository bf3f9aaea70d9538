// What is done for others while something takes its time: a process that computes answers
// heartbeats, and a process whose connections all break repairs some of them at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

using conn::kMillisecond;
using conn::kSecond;
using conn::MsgType;

TEST(Patience, HeartbeatsAreAnsweredWhileTheApplicationComputes) {
  World world(Options{});
  world.traffic().send(0, 1, 8);
  world.traffic().send(1, 0, 8);
  ASSERT_TRUE(world.finish_traffic());
  int asked = 0;
  int answered = 0;
  world.tap().saw_message = [&](std::size_t node, const conn::CtlMessage& sent) {
    asked += node == 0 && sent.type == MsgType::Hb ? 1 : 0;
    answered += node == 1 && sent.type == MsgType::HbAck ? 1 : 0;
  };
  world.nap(1, 6 * kSecond);
  world.traffic().send(0, 1, 8);
  world.run_for(5 * kSecond);
  EXPECT_FALSE(world.traffic().all_done()) << "it did not call MPI";
  EXPECT_GE(asked, 4);
  EXPECT_GE(answered, asked - 1) << "the last may be under way";
  EXPECT_EQ(world.stat(0, "heartbeat_misses"), 0);
  EXPECT_EQ(world.sum("recoveries"), 0);
  EXPECT_EQ(world.verdict(), "");
}

// Those between REQ and COMMIT, by the peer's rank; every REP takes its time.
TEST(Patience, ThirtyTwoHandshakesAreUnderWayAtMost) {
  constexpr std::size_t kPeers = 40;
  constexpr std::size_t kMost = 32;
  Options options;
  options.nodes = kPeers + 1;
  options.introduce = false;
  options.params.srq_depth = 512;
  World world(options);
  ASSERT_EQ(world.error(), "");
  for (std::size_t peer = 1; peer <= kPeers; ++peer) {
    world.introduce(0, peer);
    world.introduce(peer, 0);
  }
  ASSERT_EQ(world.error(), "");
  std::set<std::uint32_t> under_way;
  std::set<std::uint32_t> ever;
  std::size_t most = 0;
  world.tap().on_datagram = [&](std::size_t node, const conn::CtlMessage& sent) {
    if (node == 0 && sent.type == MsgType::Req) under_way.insert(sent.dst_rank);
    if (node == 0 && sent.type == MsgType::Commit) under_way.erase(sent.dst_rank);
    if (node == 0) ever.insert(sent.dst_rank);
    most = std::max(most, under_way.size());
    return UdFate{1, sent.type == MsgType::Rep ? 5 * kMillisecond : 0, 0};
  };
  for (std::size_t peer = 1; peer <= kPeers; ++peer) world.traffic().send(0, peer, 8);
  ASSERT_TRUE(world.finish_traffic());
  EXPECT_EQ(most, kMost);
  EXPECT_EQ(ever.size(), kPeers);
  EXPECT_EQ(world.stat(0, "connections"), static_cast<std::int64_t>(kPeers));
  EXPECT_EQ(world.verdict(), "");
}

}  // namespace
}  // namespace mend::sim
