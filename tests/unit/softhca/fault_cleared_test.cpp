// Schedules that are cleared while they hold requests back: what was decided about a request stays
// decided, and it is executed once. Once the rules were forgotten with the schedule, and a request
// that had been executed before its answer was executed again. The fabrics here keep no log of
// requests: as on a device in real use, nothing but the rules keeps the injector in place.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "tests/unit/softhca/fault_kit.h"

namespace {

using kit::Datagrams;
using kit::FaultyPair;
using kit::World;

constexpr std::string_view kConf = "[softhca0]\n";
constexpr uint64_t kLongEnough = 500'000'000;  // for everything that is late in here
// Three requests that succeed.
constexpr const char* kDone = "1:0 2:0 3:0";

// What becomes of send 1, fetch-and-add 2 and send 3 under a rule that was cleared when they had
// been posted.
struct Case {
  const char* name;
  const char* rule;
  const char* sent;      // completions of the sender; "": none before its queue pair goes to ERR
  const char* received;  // of the receiver
  uint64_t added;        // to the counter
  bool srq = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.rule; }

class FaultCleared : public testing::TestWithParam<Case> {};

TEST_P(FaultCleared, RequestsHeldBackAreExecutedOnce) {
  const Case& c = GetParam();
  World world(kConf, false);
  FaultyPair p(world, c.srq);
  p.faults(c.rule);
  if (c.srq) {
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(kit::post_srq(p.b, 100 + i, 32768, 64), 0);
  } else {
    p.receive(8);
  }
  EXPECT_EQ(p.send(1), 0);
  EXPECT_EQ(p.fetch_add(2, 0, 1024, 1), 0);
  EXPECT_EQ(p.send(3), 0);
  std::string received = p.received();
  EXPECT_GT(p.hits(), 0U);
  const std::string early = FaultyPair::describe(kit::poll(p.a.cq, 64, world.wait(), 0));
  EXPECT_TRUE(early != kDone || received != "100:0 101:0") << "nothing was held back";
  world.sim().clear_faults();
  EXPECT_EQ(p.hits(), 0U);

  world.sim().advance(kLongEnough);
  std::string sent = early;
  const auto append = [](std::string& all, const std::string& more) {
    all += (all.empty() || more.empty() ? "" : " ") + more;
  };
  append(sent, FaultyPair::describe(kit::poll(p.a.cq, 64, world.wait(), 0)));
  if (c.sent[0] == '\0') {
    EXPECT_EQ(sent, "");
    EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(p.completions(3), "1:5 2:5 3:5");
  } else {
    EXPECT_EQ(sent, c.sent);
  }
  append(received, p.received());
  EXPECT_EQ(received, c.received);
  EXPECT_EQ(kit::value_at(p.b, 1024), c.added);
}

INSTANTIATE_TEST_SUITE_P(
    EveryKind, FaultCleared,
    testing::Values(Case{"LateCqeOfASend", "late-cqe:n=1:delay=20ms", kDone, "100:0 101:0", 1},
                    Case{"LateCqeOfAnAtomic", "late-cqe:n=2:delay=20ms", kDone, "100:0 101:0", 1},
                    Case{"DropAckOnce", "drop-ack:n=1:times=1", kDone, "100:0 101:0", 1},
                    Case{"DropAckOfAnAtomic", "drop-ack:n=2:times=1", kDone, "100:0 101:0", 1},
                    Case{"DropAckWithAWindow", "drop-ack:n=1:times=1:window=2", kDone,
                         "100:0 101:0", 1},
                    Case{"DropAckForGood", "drop-ack:n=1", "1:12 2:5 3:5", "100:0", 0},
                    Case{"DropAckForGoodWithAWindow", "drop-ack:n=1:window=2", "1:12 2:5 3:5",
                         "100:0 101:0", 1},
                    Case{"NoCqe", "no-cqe:n=1", "", "", 0},
                    Case{"NoCqeExecuted", "no-cqe:n=1:executed=yes", "", "100:0", 0},
                    Case{"KillOfThePeerExecuted", "kill-qp:n=1:side=peer:executed=yes",
                         "1:12 2:5 3:5", "100:0", 0, true},
                    Case{"Drop", "drop:n=1", kDone, "100:0 101:0", 1},
                    Case{"DropForGood", "drop:n=1:times=all", "1:12 2:5 3:5", "", 0},
                    Case{"Rnr", "rnr:n=1:times=4", kDone, "100:0 101:0", 1},
                    Case{"LateFetch", "late-fetch:n=1:delay=20ms", kDone, "100:0 101:0", 1},
                    Case{"Ghost", "ghost:n=1:delay=100ms", "1:12 2:5 3:5", "100:0", 0},
                    Case{"LateRecv", "late-recv:n=1:delay=20ms:rank=1", kDone, "100:0 101:0", 1}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(FaultClearedKinds, AWriteWhoseCompletionIsLateIsNotRepeated) {
  World world(kConf, false);
  FaultyPair p(world);
  p.faults("late-cqe:n=1:delay=20ms");
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.write(1, 0, 1024), 0);
  EXPECT_TRUE(p.b.holds(1024, 64, 1)) << "executed before its completion";
  EXPECT_EQ(p.hits(), 1U);
  world.sim().clear_faults();
  p.b.fill(1024, 64, 9);  // the owner goes on with it
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_TRUE(p.b.holds(1024, 64, 9)) << "written again";
}

TEST(FaultClearedKinds, LateBytesArriveOnce) {
  World world(kConf, false);
  FaultyPair p(world);
  p.faults("late-place:n=1:delay=20ms");
  p.a.fill(0, 64, 1);
  EXPECT_EQ(p.write(1, 0, 1024), 0);
  EXPECT_EQ(p.completions(1), "1:0");
  EXPECT_FALSE(p.b.holds(1024, 64, 1));
  EXPECT_EQ(p.hits(), 1U);
  world.sim().clear_faults();
  world.sim().advance(20'000'000);
  EXPECT_TRUE(p.b.holds(1024, 64, 1));
  p.b.fill(1024, 64, 9);
  world.sim().advance(kLongEnough);
  EXPECT_TRUE(p.b.holds(1024, 64, 9));
}

TEST(FaultClearedKinds, ALateFlushComesOnce) {
  World world(kConf, false);
  FaultyPair p(world);
  p.faults("late-flush:delay=20ms; drop:n=1:times=all");
  EXPECT_EQ(p.write(1, 0, 0, 8), 0);
  EXPECT_EQ(p.write(2, 0, 0, 8), 0);
  EXPECT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 1'000'000));
  EXPECT_EQ(p.hits(), 2U);
  world.sim().clear_faults();
  EXPECT_EQ(p.completions(2), "1:5 2:5");
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), kLongEnough));
}

TEST(FaultClearedKinds, DatagramsArriveOnce) {
  for (const auto& [rule, arrived] :
       {std::pair{"late:n=1:delay=20ms", "21"}, std::pair{"dup:n=1:delay=20ms", "121"},
        std::pair{"reorder:n=1:delay=20ms", "21"}, std::pair{"drop:n=1", "2"},
        std::pair{"late-fetch:n=1:delay=20ms", "12"}}) {
    World world(kConf, false);
    Datagrams d(world);
    ASSERT_TRUE(world.sim().add_faults(rule));
    d.post('1');
    EXPECT_EQ(world.sim().fault_hits(), 1U) << rule;
    world.sim().clear_faults();
    d.complete();
    d.send('2');
    std::string all = d.arrived();
    world.sim().advance(kLongEnough);
    EXPECT_EQ(all + d.arrived(), arrived) << rule;
  }
}

TEST(FaultClearedKinds, ADatagramWhoseCompletionIsLateArrivesOnce) {
  World world(kConf, false);
  Datagrams d(world);
  ASSERT_TRUE(world.sim().add_faults("late-cqe:n=1:delay=20ms"));
  d.post('1');
  EXPECT_EQ(d.arrived(), "1") << "executed before its completion";
  EXPECT_EQ(world.sim().fault_hits(), 1U);
  world.sim().clear_faults();
  d.complete();
  d.send('2');
  EXPECT_EQ(d.arrived(), "2");
}

}  // namespace
