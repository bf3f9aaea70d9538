// A thousand idle connections cost nothing measurable: no datagram, no request, and no timer but
// one look per heartbeat_idle.
#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

// 46 processes, everybody connected to everybody: 1,035 connections.
TEST(Idle, AThousandConnectionsAreSilent) {
  constexpr std::size_t kNodes = 46;
  Options options;
  options.nodes = kNodes;
  options.params.srq_depth = 128;
  options.params.heartbeat_idle_s = 2;
  World world(options);
  ASSERT_EQ(world.error(), "");
  for (std::size_t a = 0; a < kNodes; ++a)
    for (std::size_t b = a + 1; b < kNodes; ++b) world.traffic().send(a, b, 16);
  ASSERT_TRUE(world.finish_traffic(200 * conn::kSecond));
  ASSERT_EQ(world.sum("connections"), static_cast<std::int64_t>(kNodes * (kNodes - 1)));
  world.run_for(20 * conn::kSecond);  // heartbeats end, parked queue pairs go

  std::uint64_t messages = 0, requests = 0, timers = 0;
  world.tap().on_datagram = [&](std::size_t, const conn::CtlMessage&) {
    ++messages;
    return UdFate{};
  };
  world.tap().on_request = [&](const Request&) {
    ++requests;
    return Fate::Pass;
  };
  for (std::size_t i = 0; i < kNodes; ++i) timers -= world.service(i).timers_run();
  world.run_for(60 * conn::kSecond);
  for (std::size_t i = 0; i < kNodes; ++i) timers += world.service(i).timers_run();
  EXPECT_EQ(messages, 0u);
  EXPECT_EQ(requests, 0u);
  // One look each per heartbeat_idle, to see that nothing was missed: half a look per second and
  // connection here, a tenth with the default.
  EXPECT_LE(timers, kNodes * (kNodes - 1) * 31);
  // And they still work.
  world.traffic().send(3, 40, 16);
  EXPECT_TRUE(world.finish_traffic());
  EXPECT_GE(requests, 1u) << "what is sent is counted";
}

}  // namespace
}  // namespace mend::sim
