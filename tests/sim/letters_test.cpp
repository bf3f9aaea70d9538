// The letters of docs/protocol.md section 4 that need no random schedule: each fault by itself, and
// the assertion that it happened.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

using conn::kMillisecond;
using conn::kSecond;
using conn::MsgType;

// Some of everything in both directions.
void mixed(World& world, std::size_t a, std::size_t b) {
  Traffic& traffic = world.traffic();
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    traffic.put(from, to, 200);
    traffic.send(from, to, 24);
    traffic.get(from, to, 100);
    traffic.add(from, to);
    traffic.send(from, to, 300);
  }
}

void connect(World& world, std::size_t a = 0, std::size_t b = 1) {
  world.traffic().send(a, b, 8);
  world.traffic().send(b, a, 8);
  ASSERT_TRUE(world.finish_traffic());
}

void kill_first_qp(World& world, std::size_t node) {
  const auto live = world.tap().live_qps(node);
  ASSERT_FALSE(live.empty());
  world.tap().kill_qp(live.front());
}

// (e): each handshake message lost once, doubled, reordered, or repeated long after.
struct Handshake {
  MsgType type;
  const char* name;
};
constexpr std::array<Handshake, 4> kHandshakes = {{{MsgType::Req, "REQ"},
                                                   {MsgType::Rep, "REP"},
                                                   {MsgType::Commit, "COMMIT"},
                                                   {MsgType::Nudge, "NUDGE"}}};

TEST(Letters, HandshakeMessagesLostDoubledLateOrRepeatedAnEpochLater) {
  const std::array<UdFate, 4> fates = {
      {{0, 0, 0}, {2, 0, 0}, {1, 30 * kMillisecond, 0}, {1, 0, 700 * kMillisecond}}};
  for (const Handshake& message : kHandshakes)
    for (const UdFate& fate : fates)
      for (const bool first_connect : {true, false}) {
        SCOPED_TRACE(fmt::format("{}: {} copies, {} ns late, again after {} ns, {}", message.name,
                                 fate.copies, fate.delay_ns, fate.again_after,
                                 first_connect ? "first connect" : "recovery"));
        World world(Options{});
        if (!first_connect) connect(world);
        int hits = 0;
        world.tap().on_datagram = [&](std::size_t, const conn::CtlMessage& sent) {
          if (sent.type != message.type || hits != 0) return UdFate{};
          ++hits;
          return fate;
        };
        if (first_connect)
          world.traffic().send(1, 0, 8);  // the follower opens: NUDGE too
        else
          kill_first_qp(world, 1);
        mixed(world, 0, 1);
        world.run_for(2 * kSecond);
        EXPECT_EQ(world.verdict(), "");
        EXPECT_EQ(hits, 1);
        EXPECT_GE(world.sum("recoveries"), first_connect ? 0 : 1);
      }
}

TEST(Letters, GoodbyeLost) {
  for (const MsgType type : {MsgType::Bye, MsgType::ByeAck}) {
    World world(Options{});
    connect(world);
    int hits = 0;
    world.tap().on_datagram = [&](std::size_t, const conn::CtlMessage& sent) {
      if (sent.type != type) return UdFate{};
      ++hits;
      return UdFate{0, 0, 0};
    };
    EXPECT_EQ(world.verdict(), "");
    EXPECT_GE(hits, 1);
  }
}

// (d): a flap that the device's own retries outlast changes no epoch.
TEST(Letters, ShortFlapIsAbsorbedByTheDevice) {
  World world(Options{});
  connect(world);
  world.tap().drop_event = [](std::size_t, ibv_event_type type) {
    return type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE;
  };
  ASSERT_TRUE(world.fabric().set_port(0, 1, false));
  mixed(world, 0, 1);
  world.run_for(50 * kMillisecond);
  EXPECT_FALSE(world.traffic().all_done());
  world.fabric().set_port(0, 1, true);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_EQ(world.sum("recoveries"), 0);
}

TEST(Letters, LongFlap) {
  World world(Options{});
  connect(world);
  ASSERT_TRUE(world.fabric().set_port(0, 1, false));
  mixed(world, 0, 1);
  world.run_for(5 * kSecond);
  EXPECT_FALSE(world.traffic().all_done());
  world.fabric().set_port(0, 1, true);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 1);
}

// Both sides tell about the same length of an outage, whoever had something under way: one that
// only waited used to count from when the other asked it to recover.
TEST(Letters, BothSidesTellHowLongAFlapTook) {
  constexpr TimeNs kDown = 5 * kSecond;
  constexpr auto kMost = static_cast<std::int64_t>((kDown + 3 * kSecond) / 1000);
  for (std::size_t sender = 0; sender < 2; ++sender) {
    World world(Options{});
    connect(world);
    ASSERT_TRUE(world.fabric().set_port(0, 1, false));
    world.traffic().send(sender, 1 - sender, 16);
    world.run_for(kDown);
    world.fabric().set_port(0, 1, true);
    EXPECT_EQ(world.verdict(), "");
    for (std::size_t node = 0; node < 2; ++node) {
      EXPECT_GE(world.stat(node, "recoveries"), 1);
      EXPECT_GE(world.stat(node, "max_outage_us"), static_cast<std::int64_t>(kDown / 1000)) << node;
      EXPECT_LE(world.stat(node, "max_outage_us"), kMost) << node;
    }
  }
}

// The other end of a link that goes down is told nothing: it counts from the heartbeat that stays
// away, or from the end of its device's patience.
TEST(Letters, TheEndThatIsNotToldCountsFromTheSilence) {
  constexpr TimeNs kDown = 5 * kSecond;
  for (std::size_t sender = 0; sender < 2; ++sender) {
    World world(Options{});
    connect(world);
    world.tap().drop_event = [](std::size_t node, ibv_event_type type) {
      return node == 1 && (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE);
    };
    ASSERT_TRUE(world.fabric().set_port(0, 1, false));
    world.traffic().send(sender, 1 - sender, 16);
    world.run_for(kDown);
    world.fabric().set_port(0, 1, true);
    EXPECT_EQ(world.verdict(), "");
    const std::int64_t told = world.stat(0, "max_outage_us");
    const std::int64_t silent = world.stat(1, "max_outage_us");
    EXPECT_GE(told, static_cast<std::int64_t>(kDown / 1000)) << sender;
    EXPECT_GE(silent, told - 1'500'000) << sender;
    EXPECT_LE(silent, told + 1'000'000) << sender;
  }
}

// Nothing had to be recovered; the outage that a queue pair has now does not begin with the flap.
void expect_flap_forgotten(World& world) {
  ASSERT_EQ(world.sum("recoveries"), 0);
  ASSERT_TRUE(world.fabric().add_faults("kill-qp:side=local:at=1ms"));
  world.run_for(kSecond);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 1);
  for (std::size_t node = 0; node < 2; ++node)
    EXPECT_LT(world.stat(node, "max_outage_us"), 2'000'000) << node;
}

// A flap that breaks nothing is no outage, and does not make the next one longer.
TEST(Letters, AFlapThatBrokeNothingIsForgotten) {
  World world(Options{});
  connect(world);
  ASSERT_TRUE(world.fabric().set_port(0, 1, false));
  world.run_for(2 * kSecond);
  world.fabric().set_port(0, 1, true);
  mixed(world, 0, 1);
  world.run_for(3 * kSecond);
  expect_flap_forgotten(world);
}

TEST(Letters, AFlapWhileNobodyTalksIsForgottenAsWell) {
  World world(Options{});
  connect(world);
  world.run_for(30 * kSecond);
  ASSERT_TRUE(world.fabric().set_port(0, 1, false));
  world.run_for(2 * kSecond);
  world.fabric().set_port(0, 1, true);
  world.run_for(30 * kSecond);
  expect_flap_forgotten(world);
}

// (f): the new queue pair breaks again while replaying, k times.
TEST(Letters, BreaksAgainWhileReplaying) {
  for (int k = 1; k <= 6; ++k) {
    World world(Options{});
    connect(world);
    int hits = 0;
    world.tap().on_request = [&](const Request& request) {
      if (hits == k || request.opcode != IBV_WR_SEND || world.percent(50)) return Fate::Pass;
      ++hits;
      return world.percent(50) ? Fate::LoseRequest : Fate::LoseAck;
    };
    mixed(world, 0, 1);
    mixed(world, 1, 0);
    ASSERT_TRUE(world.finish_traffic());
    world.tap().on_request = nullptr;
    EXPECT_EQ(world.verdict(), "");
    EXPECT_EQ(hits, k);
    EXPECT_GE(world.sum("recoveries"), 1);
    EXPECT_GE(world.sum("replayed"), 1);
  }
}

// (j): many peers at once; each connection breaks.
TEST(Letters, EveryPeerBreaksAtOnce) {
  Options options;
  options.nodes = 8;
  World world(options);
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = a + 1; b < 8; ++b) mixed(world, a, b);
  ASSERT_TRUE(world.finish_traffic());
  for (std::size_t node = 0; node < 8; ++node)
    for (ibv_qp* qp : world.tap().live_qps(node)) world.tap().kill_qp(qp);
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = a + 1; b < 8; ++b) mixed(world, a, b);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 28);
}

// (m), (n), (o): completions after the fence began, no LAST_WQE, LAST_WQE before the completions.
TEST(Letters, CompletionsComeAfterTheFenceBegan) {
  for (const bool with_event : {true, false}) {
    World world(Options{});
    connect(world);
    int dropped = 0;
    if (!with_event)
      world.tap().drop_event = [&](std::size_t, ibv_event_type type) {
        dropped += type == IBV_EVENT_QP_LAST_WQE_REACHED ? 1 : 0;
        return type == IBV_EVENT_QP_LAST_WQE_REACHED;
      };
    mixed(world, 0, 1);
    for (std::size_t node : {0u, 1u})
      world.tap().hold_completions(node, world.now() + 8 * kMillisecond);
    kill_first_qp(world, 0);
    kill_first_qp(world, 1);
    world.tap().raise(0, IBV_EVENT_QP_FATAL, world.tap().any_qp(0));
    world.run_for(1 * kSecond);
    EXPECT_EQ(world.verdict(), "");
    EXPECT_GE(world.sum("recoveries"), 1);
    EXPECT_GE(world.tap().held_polls(), 1u);
    EXPECT_EQ(dropped == 0, with_event);
  }
}

// (q): every step of a new queue pair fails, one at a time.
TEST(Letters, EachStepOfANewQueuePairFails) {
  for (const Call step : {Call::CreateQp, Call::ToInit, Call::ToRtr, Call::ToRts, Call::CreateAh})
    for (const int error : {ENOMEM, EINVAL, EIO})
      for (std::size_t node : {0u, 1u}) {
        SCOPED_TRACE(
            fmt::format("step {}, errno {}, process {}", static_cast<int>(step), error, node));
        Options options;
        options.params.qp_pool_size = 0;
        World world(options);
        int hits = 0;
        world.tap().on_call = [&](std::size_t at, Call call) {
          if (at != node || call != step || hits == 2) return 0;
          ++hits;
          return error;
        };
        mixed(world, 0, 1);
        EXPECT_EQ(world.verdict(), "");
        EXPECT_EQ(hits, 2);
      }
}

// (z): the windows of both directions are full when the connection breaks.
TEST(Letters, WindowFullBothWays) {
  Options options;
  options.params.window = 4;
  World world(options);
  connect(world);
  for (std::size_t node : {0u, 1u}) world.nap(node, 20 * kMillisecond);
  for (int i = 0; i < 40; ++i) {
    world.traffic().send(0, 1, 30);
    world.traffic().send(1, 0, 30);
  }
  world.run_for(10 * kMillisecond);
  EXPECT_GE(world.channel(0, 1).stats().window_full, 1u);
  EXPECT_GE(world.channel(1, 0).stats().window_full, 1u);
  kill_first_qp(world, 0);
  kill_first_qp(world, 1);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 1);
}

// (s): more arrives than there are receive buffers, and nobody polls.
TEST(Letters, ReceiveBuffersRunOut) {
  Options options;
  options.nodes = 5;
  options.params.srq_depth = 12;
  options.params.window = 16;
  World world(options);
  for (std::size_t from = 1; from < 5; ++from) connect(world, 0, from);
  world.nap(0, 300 * kMillisecond);
  for (int i = 0; i < 30; ++i)
    for (std::size_t from = 1; from < 5; ++from) world.traffic().send(from, 0, 30);
  world.run_for(200 * kMillisecond);
  EXPECT_GE(world.judge().not_ready(), 1u);
  kill_first_qp(world, 0);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 1);
}

TEST(Letters, ApplicationSilentForAMinuteWhileThePeerRecovers) {
  World world(Options{});
  connect(world);
  world.nap(1, 60 * kSecond);
  kill_first_qp(world, 0);
  mixed(world, 0, 1);
  world.run_for(59 * kSecond);
  EXPECT_FALSE(world.traffic().all_done());
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.sum("recoveries"), 1);
}

// (r): the only device of a process dies: it gives up on its peers, by name and once each; the
// others go on.
TEST(Letters, DeviceFatalIsNamedAndHarmsNobodyElse) {
  Options options;
  options.nodes = 3;
  World world(options);
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = a + 1; b < 3; ++b) mixed(world, a, b);
  ASSERT_TRUE(world.finish_traffic());
  ASSERT_TRUE(world.fabric().add_faults("device-fatal:rank=0:at=1ms"));
  world.run_for(2 * kMillisecond);
  world.traffic().send(0, 1, 16);
  world.run_for(5 * kSecond);
  EXPECT_EQ(world.fabric().fault_hits("device-fatal"), 1u);
  ASSERT_FALSE(world.gave_up(0).empty());
  EXPECT_NE(world.gave_up(0).front().find("softhca0"), std::string::npos)
      << world.gave_up(0).front();
  EXPECT_LE(world.gave_up(0).size(), 2u);
  EXPECT_TRUE(world.gave_up(2).empty());
  const std::uint64_t before = world.traffic().finished();
  mixed(world, 1, 2);
  world.run_for(1 * kSecond);
  EXPECT_EQ(world.traffic().finished(), before + 10);
  EXPECT_EQ(world.traffic().complaints(), std::vector<std::string>{});
}

// An outage longer than max_outage is given up once, and not before.
TEST(Letters, DeadlineGivesUpOnce) {
  Options options;
  options.params.max_outage_s = 10;
  World world(options);
  connect(world);
  ASSERT_TRUE(world.fabric().set_port(0, 1, false));
  world.traffic().send(0, 1, 16);
  world.run_for(9 * kSecond);
  EXPECT_TRUE(world.gave_up(0).empty());
  world.run_for(20 * kSecond);
  EXPECT_EQ(world.gave_up(0).size(), 1u);
}

// A send queue that stops at an unsignalled SEND: heartbeats flow, no completion is awaited,
// nothing moves. Found by the explorer; the probe must tell.
TEST(Letters, SendQueueThatStopsWithoutAnyCompletionAwaited) {
  World world(Options{});
  connect(world);
  ASSERT_TRUE(world.fabric().add_faults("no-cqe:qp=rc:rank=0:op=send:n=1:limit=1"));
  world.traffic().send(0, 1, 16);
  world.traffic().send(0, 1, 17);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_EQ(world.fabric().fault_hits("no-cqe"), 1u);
  EXPECT_GE(world.sum("recoveries"), 1);
}

TEST(Letters, FinalizeDuringRecovery) {
  for (const std::size_t node : {0u, 1u}) {
    World world(Options{});
    connect(world);
    mixed(world, 0, 1);
    kill_first_qp(world, node);
    world.close_and_check();
    EXPECT_EQ(world.traffic().complaints(), std::vector<std::string>{});
    EXPECT_TRUE(world.traffic().all_done());
    EXPECT_GE(world.sum("recoveries"), 1);
  }
}

TEST(Letters, FirstAndLastMessage) {
  for (const Fate fate : {Fate::LoseRequest, Fate::LoseAck, Fate::Refuse}) {
    World world(Options{});
    int hits = 0;
    world.tap().on_request = [&](const Request& request) {
      if (request.opcode != IBV_WR_SEND || hits != 0) return Fate::Pass;
      ++hits;
      return fate;
    };
    world.traffic().send(0, 1, 8);
    EXPECT_EQ(world.verdict(), "");
    EXPECT_EQ(hits, 1);
    // What was executed and has been counted by the peer needs no second queue pair to say goodbye.
    EXPECT_GE(world.sum("recoveries"), fate == Fate::LoseAck ? 0 : 1);
  }
}

}  // namespace
}  // namespace mend::sim
