// Senders are slowed before a storm of receiver-not-ready: a process that does not call MPI, whose
// receive buffers are fixed in number, tells its peers when they run low. The device's log says how
// often it was asked in vain.
#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

using conn::kMillisecond;
using conn::kSecond;

constexpr std::size_t kBuffers = 16;

Options few_buffers(std::size_t nodes) {
  Options options;
  options.nodes = nodes;
  options.params.window = 64;
  options.params.send_queue_depth = 128;
  options.params.srq_depth = kBuffers;
  options.params.heartbeat_interval_ms = 0;  // what is told is told out of turn
  return options;
}

void send_from_all(World& world, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t from = 1; from < world.size(); ++from) world.traffic().send(from, 0, 64);
}

void connect(World& world) {
  ASSERT_EQ(world.error(), "");
  send_from_all(world, 1);
  ASSERT_TRUE(world.finish_traffic());
  world.run_for(20 * kMillisecond);
}

// Process 0 goes away; the others send until its buffers run low, and a while later much more.
// How often the device had none.
std::uint64_t refusals(World& world) {
  world.nap(0, 2 * kSecond);
  send_from_all(world, 15 / (world.size() - 1));
  world.run_for(20 * kMillisecond);
  const std::uint64_t before = world.judge().not_ready();
  send_from_all(world, 40);
  world.run_for(kSecond);
  return world.judge().not_ready() - before;
}

// How many of so many messages the device takes while process 0 is away.
std::uint64_t at_once(World& world, std::size_t count) {
  world.nap(0, kSecond);
  const std::uint64_t before = world.judge().executed();
  send_from_all(world, count);
  world.run_for(20 * kMillisecond);
  return world.judge().executed() - before;
}

TEST(Slowing, SendersStopBeforeTheDeviceRefuses) {
  World heeded(few_buffers(2));
  connect(heeded);
  EXPECT_EQ(refusals(heeded), 0u);
  EXPECT_GE(heeded.stat(1, "slowed"), 1);
  EXPECT_EQ(heeded.verdict(), "");
}

// Nobody tells that buffers are short.
void silence(World& world) {
  world.tap().drop_event = [](std::size_t, ibv_event_type type) {
    return type == IBV_EVENT_SRQ_LIMIT_REACHED;
  };
  world.tap().on_datagram = [](std::size_t, const conn::CtlMessage& sent) {
    const bool tells = sent.type == conn::MsgType::Hb || sent.type == conn::MsgType::HbAck;
    return UdFate{tells ? 0u : 1u, 0, 0};
  };
}

TEST(Slowing, WithoutItTheDeviceRefusesAgainAndAgain) {
  World unheeded(few_buffers(2));
  silence(unheeded);
  connect(unheeded);
  EXPECT_GT(refusals(unheeded), 100u);
  EXPECT_EQ(unheeded.sum("slowed"), 0);
  EXPECT_EQ(unheeded.verdict(), "");
}

TEST(Slowing, SeveralSendersShareWhatIsLeft) {
  World world(few_buffers(4));
  connect(world);
  EXPECT_EQ(refusals(world), 0u);
  for (std::size_t from = 1; from < 4; ++from) EXPECT_GE(world.stat(from, "slowed"), 1) << from;
  EXPECT_EQ(world.verdict(), "");
}

// The stash of the fence holds every buffer there is, and more is in flight: neither the handshake
// nor the replay may wait for one.
TEST(Slowing, RecoversWhileTheStashHoldsEveryBuffer) {
  World world(few_buffers(2));
  silence(world);
  connect(world);
  EXPECT_GT(refusals(world), 0u);
  world.nap(0, kSecond);
  const Epoch before = world.channel(0, 1).epoch();
  world.tap().kill_qp(world.tap().live_qps(1).front());
  world.run_for(kSecond / 2);
  EXPECT_GT(world.channel(0, 1).epoch(), before);
  EXPECT_TRUE(world.channel(0, 1).posting());
  EXPECT_TRUE(world.channel(1, 0).posting());
  EXPECT_FALSE(world.traffic().all_done());
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.stat(1, "replayed"), 1);
  EXPECT_GE(world.sum("recoveries"), 2);
}

// Once the buffers are back, as much may be under way as before.
TEST(Slowing, EndsWhenTheBuffersAreBack) {
  World world(few_buffers(2));
  connect(world);
  EXPECT_EQ(refusals(world), 0u);
  ASSERT_TRUE(world.finish_traffic());
  world.run_for(300 * kMillisecond);
  EXPECT_EQ(at_once(world, 11), 11u);
  EXPECT_EQ(world.verdict(), "");
}

// The word that they are back is lost: the peer's silence ends it as well.
TEST(Slowing, EndsByItselfWhenNothingIsHeardAnyMore) {
  World world(few_buffers(2));
  connect(world);
  EXPECT_EQ(refusals(world), 0u);
  std::size_t lost = 0;
  world.tap().on_datagram = [&](std::size_t node, const conn::CtlMessage& sent) {
    if (node != 0 || sent.type != conn::MsgType::Hb) return UdFate{};
    ++lost;
    return UdFate{0, 0, 0};
  };
  ASSERT_TRUE(world.finish_traffic());
  world.run_for(3 * kSecond);
  EXPECT_GE(lost, 1u);
  EXPECT_EQ(at_once(world, 11), 11u);
  EXPECT_EQ(world.verdict(), "");
}

}  // namespace
}  // namespace mend::sim
