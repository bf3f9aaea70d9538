// Thousands of seeded runs of two machines against a hostile world; a failing seed reproduces
// exactly.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/conn/fsm_world.h"

namespace mend::conn::test {
namespace {

struct Tally {
  unsigned runs = 0, failed = 0, faults = 0, recoveries = 0;
  std::size_t most_actions = 0;
  std::string first;
};

Tally run_seeds(unsigned seeds, const WorldOptions& options) {
  Tally tally;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    World world(seed, options);
    const std::string wrong = world.run();
    ++tally.runs;
    tally.faults += world.faults_done();
    if (world.epochs() > 1) tally.recoveries += world.epochs() - 1;
    tally.most_actions = std::max(tally.most_actions, world.most_actions());
    if (wrong.empty()) continue;
    if (tally.failed++ == 0) tally.first = "seed " + std::to_string(seed) + ": " + wrong;
  }
  return tally;
}

TEST(FsmWorld, ConnectsWithoutFaults) {
  WorldOptions options;
  options.faults = 0;
  const Tally tally = run_seeds(500, options);
  EXPECT_EQ(tally.failed, 0u) << tally.first;
}

TEST(FsmWorld, EitherSideAloneOpens) {
  for (const unsigned leader : {0u, 4u}) {
    WorldOptions options;
    options.sends[0] = leader;
    options.sends[1] = 4 - leader;
    const Tally tally = run_seeds(500, options);
    EXPECT_EQ(tally.failed, 0u) << tally.first;
  }
}

TEST(FsmWorld, RecoversFromEveryFault) {
  const Tally tally = run_seeds(3000, WorldOptions{});
  EXPECT_EQ(tally.failed, 0u) << tally.first;
  EXPECT_GT(tally.faults, tally.runs) << "the faults did not happen";
  EXPECT_GT(tally.recoveries, tally.runs) << "nothing was recovered";
  EXPECT_LE(tally.most_actions, Actions::kCapacity);
}

TEST(FsmWorld, RecoversWithoutHeartbeats) {
  WorldOptions options;
  options.heartbeats = false;
  const Tally tally = run_seeds(1500, options);
  EXPECT_EQ(tally.failed, 0u) << tally.first;
}

TEST(FsmWorld, ManyFaultsInARow) {
  WorldOptions options;
  options.faults = 25;
  const Tally tally = run_seeds(1000, options);
  EXPECT_EQ(tally.failed, 0u) << tally.first;
}

TEST(FsmWorld, ClosesInGoodOrder) {
  WorldOptions options;
  options.close = true;
  const Tally tally = run_seeds(1500, options);
  EXPECT_EQ(tally.failed, 0u) << tally.first;
}

// Each rule that the driver can break is missed: the checks above are not vacuous.
struct Broken {
  Sabotage sabotage;
  const char* name;
  const char* expected;  // the invariant that falls
};
void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class FsmSabotage : public testing::TestWithParam<Broken> {};

TEST_P(FsmSabotage, IsNoticed) {
  WorldOptions options;
  options.sabotage = GetParam().sabotage;
  if (options.sabotage == Sabotage::LostCommit) {
    options.sends[1] = 2;
    options.sends[0] = 0;
    options.heartbeats = false;
  }
  const Tally tally = run_seeds(100, options);
  EXPECT_GT(tally.failed, 0u);
  EXPECT_NE(tally.first.find(GetParam().expected), std::string::npos) << tally.first;
}

INSTANTIATE_TEST_SUITE_P(
    Rules, FsmSabotage,
    testing::Values(Broken{Sabotage::SampleBeforeDrain, "F1SampleBeforeDrain", "I1:"},
                    Broken{Sabotage::NoFence, "F1NoFence", "I1:"},
                    Broken{Sabotage::SameQpn, "F4SameQpn", "I1:"},
                    Broken{Sabotage::EarlyPost, "F5EarlyPost", "L1:"},
                    Broken{Sabotage::LostCommit, "CommitNotRepeated", "L1:"}),
    [](const testing::TestParamInfo<Broken>& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace mend::conn::test
