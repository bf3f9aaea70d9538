// Who reports a loss first, in a job that goes on without lost processes: the first report decides,
// so a process that is cut off waits for the others (docs/protocol.md 1.10). The same outage is
// played twice, once in a job that ends with its first loss, where nobody waits; the difference is
// what the rule is worth.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

using conn::kMillisecond;
using conn::kNever;
using conn::kSecond;
using conn::MsgType;

constexpr TimeNs kStep = 10 * kMillisecond;
// heartbeat_interval x (heartbeat_misses + 1) of the options below; and who hears nobody waits so
// long, by its role towards the lost process. Who hears somebody waits for its turn only.
constexpr TimeNs kNoticed = 2 * kSecond;
constexpr TimeNs kLeader = kNoticed + 2 * kSecond, kFollower = kNoticed + 3 * kSecond;
constexpr TimeNs kLeadersTurn = 0, kFollowersTurn = 1 * kSecond;

Options goes_on(std::size_t nodes, bool survives = true) {
  Options options;
  options.nodes = nodes;
  options.params.max_outage_s = 3;
  options.params.heartbeat_interval_ms = 500;
  options.params.heartbeat_misses = 3;
  options.params.survives_losses = survives;
  return options;
}

void all_to_all(World& world, const std::function<bool(std::size_t, std::size_t)>& wanted) {
  for (std::size_t a = 0; a < world.size(); ++a)
    for (std::size_t b = 0; b < world.size(); ++b)
      if (a != b && wanted(a, b)) world.traffic().send(a, b, 16);
}

void connect(World& world) {
  ASSERT_EQ(world.error(), "");
  all_to_all(world, [](std::size_t, std::size_t) { return true; });
  ASSERT_TRUE(world.finish_traffic());
}

// When each process made its first report, counted from now on; kNever: not within `limit`.
std::vector<TimeNs> first_reports(World& world, TimeNs limit) {
  std::vector<TimeNs> reports(world.size(), kNever);
  const TimeNs began = world.now();
  while (world.now() - began < limit) {
    world.run_for(kStep);
    for (std::size_t i = 0; i < world.size(); ++i)
      if (reports[i] == kNever && !world.gave_up(i).empty()) reports[i] = world.now() - began;
  }
  return reports;
}

// Nothing reaches the process any more, nor anybody from it.
void cut(World& world, std::size_t node) {
  world.tap().on_request = [node](const Request& request) {
    return request.node == node || request.peer == node ? Fate::LoseRequest : Fate::Pass;
  };
  world.tap().on_datagram = [node](std::size_t, const conn::CtlMessage& sent) {
    const bool lost = sent.src_rank == node || sent.dst_rank == node;
    return UdFate{lost ? 0u : 1u, 0, 0};
  };
}

// One process is cut off while everybody sends to everybody, or to it, after a time without
// traffic.
std::vector<TimeNs> cut_off(const Options& options, std::size_t node, TimeNs idle_before = 0) {
  World world(options);
  connect(world);
  world.run_for(idle_before);
  cut(world, node);
  all_to_all(world, [&](std::size_t a, std::size_t b) {
    return idle_before == 0 || a == node || b == node;
  });
  return first_reports(world, 12 * kSecond);
}

void expect_waits(const std::vector<TimeNs>& at_once, const std::vector<TimeNs>& waited,
                  const std::vector<TimeNs>& waits) {
  for (std::size_t i = 0; i < waits.size(); ++i) {
    ASSERT_NE(at_once[i], kNever) << i;
    ASSERT_NE(waited[i], kNever) << i;
    EXPECT_NEAR(static_cast<double>(waited[i]) - static_cast<double>(at_once[i]),
                static_cast<double>(waits[i]), static_cast<double>(5 * kStep))
        << i;
  }
}

TEST(Verdict, WhoIsCutOffReportsLast) {
  const auto at_once = cut_off(goes_on(3, false), 0);
  const auto waited = cut_off(goes_on(3), 0);
  expect_waits(at_once, waited, {kLeader, kFollowersTurn, kFollowersTurn});
  EXPECT_GT(waited[0], waited[1]);
  EXPECT_GT(waited[0], waited[2]);
}

TEST(Verdict, WhoIsCutOffReportsLastAsFollowerToo) {
  const auto at_once = cut_off(goes_on(3, false), 2);
  const auto waited = cut_off(goes_on(3), 2);
  expect_waits(at_once, waited, {kLeadersTurn, kLeadersTurn, kFollower});
  EXPECT_GT(waited[2], waited[0]);
  EXPECT_GT(waited[2], waited[1]);
}

// Neither hears anybody; if both reported at once, each would end the other.
TEST(Verdict, OfTwoThatHearNobodyElseOneStays) {
  for (const std::size_t node : {0u, 1u}) {
    SCOPED_TRACE(node);
    const auto at_once = cut_off(goes_on(2, false), node);
    const auto waited = cut_off(goes_on(2), node);
    expect_waits(at_once, waited, {kLeader, kFollower});
  }
}

// An application that waits for the lost process leaves the connections of the others without
// traffic for longer than heartbeats last.
TEST(Verdict, WhoIsCutOffReportsLastAlsoAmongIdleProcesses) {
  for (const std::size_t node : {0u, 2u}) {
    SCOPED_TRACE(node);
    Options options = goes_on(3);
    options.params.heartbeat_idle_s = 10;
    options.params.survives_losses = false;
    const auto at_once = cut_off(options, node, 25 * kSecond);
    options.params.survives_losses = true;
    const auto waited = cut_off(options, node, 25 * kSecond);
    std::vector<TimeNs> waits(3, kNoticed + (node == 0 ? kFollowersTurn : kLeadersTurn));
    waits[node] = node == 0 ? kLeader : kFollower;
    expect_waits(at_once, waited, waits);
    for (std::size_t other = 0; other < 3; ++other) {
      if (other == node) continue;
      EXPECT_GE(waited[node], waited[other] + kSecond - 5 * kStep) << other;
    }
  }
}

// An idle connection looks now and then whether it still is; shortly before that it passed for one
// whose peer had just been heard, at the process that was cut off.
TEST(Verdict, AnIdleConnectionIsNoSignOfLifeWheneverTheCutComes) {
  for (TimeNs idle = 25 * kSecond; idle < 35 * kSecond; idle += kSecond / 4) {
    SCOPED_TRACE(testing::Message() << "cut after " << idle);
    Options options = goes_on(3);
    options.params.heartbeat_idle_s = 10;
    World world(options);
    connect(world);
    world.run_for(idle);
    cut(world, 0);
    all_to_all(world, [](std::size_t one, std::size_t other) { return one + other == 1; });
    const auto waited = first_reports(world, 12 * kSecond);
    EXPECT_NE(waited[1], kNever);
    EXPECT_GT(waited[0], waited[1]);
  }
}

// Nothing but the way between these two is gone.
Fate between_0_and_1(const Request& request) {
  return request.node + request.peer == 1 ? Fate::LoseRequest : Fate::Pass;
}

// One whose peer has given it up may hear all others and still be the one that is reported.
TEST(Verdict, WhoWasRefusedWaits) {
  const auto play = [](bool survives) {
    World world(goes_on(3, survives));
    connect(world);
    // 1 learns of it first and says so when its time is up.
    world.tap().on_request = between_0_and_1;
    int refused = 0;
    world.tap().on_datagram = [&](std::size_t, const conn::CtlMessage& sent) {
      if (sent.src_rank + sent.dst_rank != 1) return UdFate{};
      refused += sent.type == MsgType::Rej && sent.src_rank == 1 ? 1 : 0;
      return UdFate{sent.type == MsgType::Rej ? 1u : 0u, 0, 0};
    };
    world.traffic().send(1, 0, 16);
    world.at(500 * kMillisecond, [&] { world.traffic().send(0, 1, 16); });
    for (int i = 1; i < 20; ++i)
      world.at(static_cast<TimeNs>(i) * 500 * kMillisecond, [&] {
        world.traffic().send(0, 2, 16);
        world.traffic().send(2, 1, 16);
      });
    auto reports = first_reports(world, 12 * kSecond);
    EXPECT_EQ(refused, 1);
    EXPECT_NE(world.gave_up(0).front().find("The other process says why"), std::string::npos)
        << world.gave_up(0).front();
    return reports;
  };
  const auto at_once = play(false);
  const auto waited = play(true);
  EXPECT_EQ(waited[2], kNever) << "it lost nobody";
  expect_waits({at_once[0], at_once[1]}, {waited[0], waited[1]}, {kLeader, kFollowersTurn});
}

// Nothing but the way between two is gone: both hear the third, and the end of one will do.
TEST(Verdict, OfTwoWhoBothHearOthersOneReportsFirst) {
  const auto play = [](bool survives) {
    World world(goes_on(3, survives));
    connect(world);
    world.tap().on_request = between_0_and_1;
    world.tap().on_datagram = [](std::size_t, const conn::CtlMessage& sent) {
      return UdFate{sent.src_rank + sent.dst_rank == 1 ? 0u : 1u, 0, 0};
    };
    all_to_all(world, [](std::size_t, std::size_t) { return true; });
    for (int i = 1; i < 20; ++i)
      world.at(static_cast<TimeNs>(i) * 500 * kMillisecond, [&] {
        world.traffic().send(0, 2, 16);
        world.traffic().send(1, 2, 16);
        world.traffic().send(2, 0, 16);
        world.traffic().send(2, 1, 16);
      });
    return first_reports(world, 12 * kSecond);
  };
  const auto at_once = play(false), waited = play(true);
  EXPECT_EQ(waited[2], kNever) << "it lost nobody";
  expect_waits({at_once[0], at_once[1]}, {waited[0], waited[1]}, {kLeadersTurn, kFollowersTurn});
}

// The peers are as well as before; reporting them would end the whole job but for this process.
TEST(Verdict, WhoseOwnDeviceIsDeadReportsItselfAndNobodyElse) {
  World world(goes_on(3));
  connect(world);
  ASSERT_TRUE(world.fabric().add_faults("device-fatal:rank=1:at=1ms"));
  world.run_for(2 * kMillisecond);
  all_to_all(world, [](std::size_t, std::size_t) { return true; });
  world.run_for(1 * kSecond);
  EXPECT_EQ(world.fabric().fault_hits("device-fatal"), 1u);
  ASSERT_EQ(world.own_ends(1).size(), 1u);
  EXPECT_NE(world.own_ends(1)[0].find("DEVICE_FATAL"), std::string::npos) << world.own_ends(1)[0];
  world.run_for(20 * kSecond);
  EXPECT_TRUE(world.gave_up(1).empty()) << world.gave_up(1)[0];
  EXPECT_EQ(world.own_ends(1).size(), 1u);
  for (const std::size_t other : {0u, 2u}) {
    EXPECT_TRUE(world.own_ends(other).empty());
    ASSERT_EQ(world.gave_up(other).size(), 1u) << "that one, which nobody ended here";
    EXPECT_NE(world.gave_up(other)[0].find("-> 1 on"), std::string::npos)
        << world.gave_up(other)[0];
  }
}

// Whom the runtime has ended meanwhile is no news any more.
TEST(Verdict, NothingIsReportedOfWhomTheRuntimeEndedFirst) {
  World world(goes_on(2));
  connect(world);
  cut(world, 1);
  world.traffic().send(0, 1, 16);
  world.run_for(3 * kSecond + kNoticed);
  EXPECT_TRUE(world.gave_up(0).empty());
  world.transport(0).give_up_peer(world.peer(0, 1));
  world.run_for(10 * kSecond);
  EXPECT_TRUE(world.gave_up(0).empty()) << world.gave_up(0).front();
  EXPECT_TRUE(world.transport(0).flushed());
}

}  // namespace
}  // namespace mend::sim
