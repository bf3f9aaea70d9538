// The explorer's promise: the same seed gives the same run.
#include <gtest/gtest.h>

#include "tests/sim/chaos.h"

namespace mend::sim {
namespace {

TEST(Repeat, SameSeedSameRun) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Plan plan = plan_of(seed, ~0u);
    const Outcome first = run_chaos(seed, plan);
    const Outcome second = run_chaos(seed, plan);
    EXPECT_EQ(first.complaints, "") << seed;
    EXPECT_EQ(first.hits, second.hits) << seed;
    EXPECT_EQ(first.executed, second.executed) << seed;
    EXPECT_EQ(first.recoveries, second.recoveries) << seed;
    EXPECT_EQ(first.replayed, second.replayed) << seed;
    EXPECT_EQ(first.time, second.time) << seed;
  }
}

}  // namespace
}  // namespace mend::sim
