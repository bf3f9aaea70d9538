#include <gtest/gtest.h>

#include "plugin/conn/wire_version.h"
#include "tests/unit/transport/fabric_kit.h"

namespace mend::test {
namespace {

// What every orderly run must show.
void expect_clean(Fabric& fabric, std::uint32_t ranks) {
  for (std::uint32_t i = 0; i < ranks; ++i) {
    EXPECT_EQ(fabric[i].stat("dup_rx"), 0);
    EXPECT_EQ(fabric[i].stat("srq_lost"), 0);
    EXPECT_TRUE(fabric[i].gave_up.empty());
  }
}

TEST(Transport, FirstMessageConnectsAndArrives) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  fabric[0].send(1, 8, 1);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 1; }));
  EXPECT_EQ(fabric[1].inbox[0].from, 0u);
  EXPECT_EQ(fabric[1].inbox[0].bytes, pattern(8, 1));
  fabric.close_all();
  EXPECT_EQ(fabric[0].stat("connections"), 1);
  EXPECT_EQ(fabric[0].stat("sends"), 1);
  EXPECT_EQ(fabric[1].stat("recvs"), 1);
  expect_clean(fabric, 2);
}

TEST(Transport, FollowerOpensByNudging) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  fabric[1].send(0, 100, 2);
  ASSERT_TRUE(fabric.until([&] { return fabric[0].inbox.size() == 1; }));
  EXPECT_EQ(fabric[0].inbox[0].bytes, pattern(100, 2));
  fabric.close_all();
  expect_clean(fabric, 2);
}

TEST(Transport, BothOpenAtOnceAndManyMessagesKeepOrder) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  constexpr std::uint64_t kMessages = 3000;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    fabric[0].send(1, i % 700, i);
    fabric[1].send(0, (i * 7) % 900, i + 1000000);
    if (i % 64 == 0) {
      fabric[0].progress();
      fabric[1].progress();
    }
  }
  ASSERT_TRUE(fabric.until(
      [&] { return fabric[0].inbox.size() == kMessages && fabric[1].inbox.size() == kMessages; }));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(fabric[1].inbox[i].bytes, pattern(i % 700, i)) << i;
    ASSERT_EQ(fabric[0].inbox[i].bytes, pattern((i * 7) % 900, i + 1000000)) << i;
  }
  fabric.close_all();
  expect_clean(fabric, 2);
}

// A receiver that has its messages and does not call MPI any more: its service thread tells the
// sender, whose log would otherwise keep them, and whose window would fill, until it comes back.
TEST(Transport, AcknowledgesWhileTheApplicationComputes) {
  conn::Params params;
  params.heartbeat_interval_ms = 60000;  // which carry acknowledgements as well
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  // Connected, and whatever was owed for that is written.
  fabric[0].send(1, 8, 1);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 1; }));
  ASSERT_TRUE(fabric.until([&] { return fabric[0].transport->flushed(); }));
  int tested = 0;
  for (std::size_t round = 1; round <= 100 && tested < 3; ++round) {
    // Fewer than a quarter of the window, so that none is acknowledged for their number.
    for (std::uint64_t i = 0; i < 5; ++i) fabric[0].send(1, 100, i);
    while (fabric[1].inbox.size() < 1 + 5 * round) {
      fabric[0].progress();
      fabric[1].progress();
    }
    // If this thread lost its core just now, nothing is owed any more and nothing is tested.
    tested += fabric[1].to(0).quiet() ? 0 : 1;
    fabric.until_by(
        {0}, [&] { return fabric[0].transport->flushed(); }, 5000);  // without 1
    EXPECT_TRUE(fabric[0].to(1).quiet());
    EXPECT_TRUE(fabric[1].to(0).quiet());
  }
  EXPECT_EQ(tested, 3);
  EXPECT_GE(fabric[1].to(0).stats().acks_written, 3u);
  fabric.close_all();
  expect_clean(fabric, 2);
}

TEST(Transport, LargestFragments) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  const std::size_t largest = conn::Params{}.max_send_size;
  for (std::uint64_t i = 0; i < 200; ++i) fabric[0].send(1, largest - i % 2, i);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 200; }));
  for (std::uint64_t i = 0; i < 200; ++i)
    ASSERT_EQ(fabric[1].inbox[i].bytes, pattern(largest - i % 2, i)) << i;
  fabric.close_all();
  expect_clean(fabric, 2);
}

TEST(Transport, PutGetAndAtomics) {
  Fabric fabric(2);
  ASSERT_EQ(fabric.error(), "");
  constexpr std::size_t kBytes = 1 << 20;
  auto source = pattern(kBytes, 3);
  std::vector<std::byte> target(kBytes), back(kBytes);
  alignas(8) std::uint64_t counter = 40;
  conn::Region local, remote, landing;
  ASSERT_TRUE(fabric[0].transport->register_region(source.data(), kBytes, kAllAccess, local));
  ASSERT_TRUE(fabric[0].transport->register_region(back.data(), kBytes, kAllAccess, landing));
  ASSERT_TRUE(fabric[1].transport->register_region(target.data(), kBytes, kAllAccess, remote));

  int done = 0;
  ops::RdmaOp put = transfer(ops::RdmaOp::Dir::Put, source, local, target.data(), remote, done);
  fabric[0].to(1).rdma(put);
  ASSERT_TRUE(fabric.until([&] { return done == 1; }));
  EXPECT_EQ(target, source);

  ops::RdmaOp get = transfer(ops::RdmaOp::Dir::Get, back, landing, target.data(), remote, done);
  fabric[0].to(1).rdma(get);
  ASSERT_TRUE(fabric.until([&] { return done == 2; }));
  EXPECT_EQ(back, source);

  ops::AmoCall add;
  add.op = ops::AmoOp::Add;
  add.remote = reinterpret_cast<std::uintptr_t>(&counter);
  add.operand = 2;
  add.user[0] = &done;
  add.done = [](ops::AmoCall& call) { ++*static_cast<int*>(call.user[0]); };
  fabric[0].to(1).atomic(add);
  ASSERT_TRUE(fabric.until([&] { return done == 3; }));
  EXPECT_EQ(counter, 42u);
  EXPECT_EQ(add.result, 40u);

  fabric.close_all();
  expect_clean(fabric, 2);
  fabric[0].transport->deregister_region(local);
  fabric[0].transport->deregister_region(landing);
  fabric[1].transport->deregister_region(remote);
}

TEST(Transport, SixRanksAllToAll) {
  constexpr std::uint32_t kRanks = 6;
  Fabric fabric(kRanks);
  ASSERT_EQ(fabric.error(), "");
  for (int round = 0; round < 50; ++round)
    for (std::uint32_t a = 0; a < kRanks; ++a)
      for (std::uint32_t b = 0; b < kRanks; ++b)
        if (a != b) fabric[a].send(b, 64, a * 1000 + static_cast<std::uint64_t>(round));
  ASSERT_TRUE(fabric.until([&] {
    for (std::uint32_t a = 0; a < kRanks; ++a)
      if (fabric[a].inbox.size() != 50 * (kRanks - 1)) return false;
    return true;
  }));
  for (std::uint32_t a = 0; a < kRanks; ++a) {
    std::map<std::uint32_t, std::uint64_t> next;
    for (const Inbox& message : fabric[a].inbox)
      ASSERT_EQ(message.bytes, pattern(64, message.from * 1000 + next[message.from]++));
  }
  fabric.close_all();
  expect_clean(fabric, kRanks);
}

// A process that was not added here asks for a connection: the layer above is told, adds it, and
// its message arrives.
TEST(Transport, UnknownPeerIsReportedAndServedAfterwards) {
  Fabric fabric(2, {}, false);
  ASSERT_EQ(fabric.error(), "");
  fabric.introduce(0, 1);
  fabric[0].send(1, 16, 5);
  ASSERT_TRUE(fabric.until([&] { return !fabric[1].unknown.empty(); }));
  EXPECT_EQ(fabric[1].unknown[0], 0u);
  fabric.introduce(1, 0);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 1; }));
  EXPECT_EQ(fabric[1].inbox[0].bytes, pattern(16, 5));
  fabric.close_all();
  expect_clean(fabric, 2);
}

// The layer above may fail to look it up, for want of memory or because its address is not there
// yet; whoever waits would do so for ever.
TEST(Transport, UnknownPeerIsReportedAgainWhileItAsks) {
  Fabric fabric(2, quick(), false);
  ASSERT_EQ(fabric.error(), "");
  fabric.introduce(0, 1);
  fabric[0].send(1, 16, 5);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].unknown.size() >= 3; }));
  fabric.introduce(1, 0);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 1; }));
  const std::size_t asked = fabric[1].unknown.size();
  fabric.until([] { return false; }, 300);
  EXPECT_EQ(fabric[1].unknown.size(), asked);
  fabric.close_all();
  expect_clean(fabric, 2);
}

TEST(Transport, OtherVersionIsRefusedInALineWithPeerVersionsAndRemedy) {
  Fabric fabric(2, {}, false);
  ASSERT_EQ(fabric.error(), "");
  auto modex = fabric[1].transport->modex();
  modex[0] = std::byte{99};
  const auto peer = fabric[0].transport->add_peer(7, 1, "node7", modex);
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, EPROTONOSUPPORT);
  const std::string here = "here " + std::to_string(conn::kModexVersion);
  for (const char* part : {"process 1 on node7", "wire version 99", here.c_str(),
                           "install the same mend on every node"})
    EXPECT_TRUE(contains(peer.error().message, part)) << part << " in: " << peer.error().message;
  EXPECT_FALSE(contains(peer.error().message, "\n"));
}

TEST(Transport, DamagedAddressIsRefusedWithItsName) {
  Fabric fabric(2, {}, false);
  ASSERT_EQ(fabric.error(), "");
  auto modex = fabric[1].transport->modex();
  modex.resize(modex.size() - 1);
  const auto peer = fabric[0].transport->add_peer(7, 1, "node7", modex);
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, ENOTSUP);
  EXPECT_TRUE(contains(peer.error().message, "process 1 on node7")) << peer.error().message;
  EXPECT_TRUE(contains(peer.error().message, "damaged")) << peer.error().message;
}

}  // namespace
}  // namespace mend::test
