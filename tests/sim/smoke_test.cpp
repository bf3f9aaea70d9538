// That the simulation itself works: without faults, traffic arrives and nothing is recovered.
#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

void mixed_traffic(World& world, std::size_t a, std::size_t b) {
  Traffic& traffic = world.traffic();
  traffic.put(a, b, 200);
  traffic.put(a, b, 64);
  traffic.send(a, b, 24);
  traffic.get(a, b, 100);
  traffic.add(a, b);
  traffic.put(a, b, 300);
  traffic.send(a, b, 400);
}

TEST(Simulation, TrafficArrivesInBothDirections) {
  Options options;
  options.nodes = 3;
  World world(options);
  ASSERT_EQ(world.error(), "");
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b)
      if (a != b) mixed_traffic(world, a, b);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_GE(world.judge().executed(), 6u * 9u);
  EXPECT_EQ(world.sum("recoveries"), 0);
}

}  // namespace
}  // namespace mend::sim
