// Case (u) of docs/protocol.md section 4: a failure at every index of
// [put, put, send, get, atomic, put, send], before or after the request was executed, with the
// acknowledgement of what went before seen or not, noticed by one side or by both, with traffic the
// other way or without.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace mend::sim {
namespace {

constexpr unsigned kOps = 7;
constexpr TimeNs kQuiet = 300 * conn::kMillisecond;

struct Case {
  unsigned index = 0;
  bool executed = false;
  bool ack_seen = false;
  bool both_sides = false;
  bool traffic_back = false;
  std::string name() const {
    return fmt::format("index {}, {} execution, acks {}, {}, {}", index,
                       executed ? "after" : "before", ack_seen ? "seen" : "not seen",
                       both_sides ? "both sides" : "one side",
                       traffic_back ? "traffic back" : "one direction");
  }
};

void submit(Traffic& traffic, unsigned index) {
  constexpr std::size_t kFrom = 0, kTo = 1;
  switch (index) {
    case 2:
      return traffic.send(kFrom, kTo, 20);
    case 3:
      return traffic.get(kFrom, kTo, 120);
    case 4:
      return traffic.add(kFrom, kTo);
    case 6:
      return traffic.send(kFrom, kTo, 400);
    default:
      return traffic.put(kFrom, kTo, 60 + index * 40);
  }
}

bool is_payload(World& world, const Request& request) {
  if (request.node != 0) return false;
  return request.opcode != IBV_WR_RDMA_WRITE ||
         world.traffic().put_at(request.peer, request.remote_addr) != nullptr;
}

// Lets the request number `index` fail; hits says how often that happened.
void arm_failure(World& world, const Case& c, int& seen, int& hits) {
  world.tap().on_request = [&world, c, &seen, &hits](const Request& request) {
    if (!is_payload(world, request) || seen++ != static_cast<int>(c.index)) return Fate::Pass;
    ++hits;
    if (c.both_sides)
      world.at(1, [&world] {
        for (ibv_qp* qp : world.tap().live_qps(1)) world.tap().kill_qp(qp);
      });
    return c.executed ? Fate::LoseAck : Fate::LoseRequest;
  };
}

void run_case(const Case& c, std::uint64_t seed) {
  SCOPED_TRACE(c.name() + fmt::format(", seed {}", seed));
  Options options;
  options.seed = seed;
  World world(options);
  ASSERT_EQ(world.error(), "");
  world.traffic().send(0, 1, 8);
  world.traffic().send(1, 0, 8);
  ASSERT_TRUE(world.finish_traffic());
  int seen = 0, hits = 0;
  arm_failure(world, c, seen, hits);
  for (unsigned i = 0; i < kOps; ++i) {
    submit(world.traffic(), i);
    if (c.traffic_back && i % 2 == 0) world.traffic().send(1, 0, 30 + i);
    if (c.ack_seen && i < c.index) world.run_for(kQuiet);
  }
  world.run_for(50 * conn::kMillisecond);  // a loss that nobody waits for shows only now
  EXPECT_EQ(world.verdict(), "");
  EXPECT_EQ(hits, 1);
  EXPECT_GE(world.sum("recoveries"), 1);
  EXPECT_EQ(world.sum("dup_rx"), 0);
}

TEST(CrossProduct, EveryOperationFailsInEveryWay) {
  std::uint64_t seed = 1;
  for (unsigned index = 0; index < kOps; ++index)
    for (unsigned bits = 0; bits < 16; ++bits)
      run_case({index, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0}, seed++);
}

// The same without the injector must not look like a recovery: the assertions above mean something.
TEST(CrossProduct, WithoutInjectorNothingIsRecovered) {
  World world(Options{});
  for (unsigned i = 0; i < kOps; ++i) submit(world.traffic(), i);
  EXPECT_EQ(world.verdict(), "");
  EXPECT_EQ(world.sum("recoveries"), 0);
  EXPECT_EQ(world.sum("replayed"), 0);
}

}  // namespace
}  // namespace mend::sim
