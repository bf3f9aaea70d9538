// What a device tells by itself and what a peer's past tells: an address that moves, shared queues
// that die, a process that is not the one it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "plugin/conn/modex.h"
#include "plugin/verbs/async_events.h"
#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

using Clock = std::chrono::steady_clock;

// One message each way.
bool talk(Fabric& fabric, std::uint64_t number) {
  fabric[0].send(1, 100, number);
  fabric[1].send(0, 100, number);
  return fabric.until([&] {
    return fabric[0].inbox.size() == number && fabric[1].inbox.size() == number &&
           fabric[0].transport->flushed() && fabric[1].transport->flushed();
  });
}

struct Path {
  ibv_context* context = nullptr;
  std::uint8_t source_index = 0;
  ibv_gid target{};
};

std::vector<Path> paths(const VerbsSpy& spy) {
  std::vector<Path> all;
  for (ibv_qp* qp : spy.in_rts(IBV_QPT_RC)) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(spy.query(qp, attr, init), 0);
    all.push_back({qp->context, attr.ah_attr.grh.sgid_index, attr.ah_attr.grh.dgid});
  }
  return all;
}

// The port of one process gets another GID in use: its queue pair names the old one, and so does
// the other side's, whatever still works.
TEST(Events, AGidThatMovesIsFollowedByBothSides) {
  VerbsSpy spy;
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  ASSERT_TRUE(talk(fabric, 1));
  const auto before = paths(spy);
  ASSERT_EQ(before.size(), 2u);
  ibv_context* const moved = before[0].context;
  spy.hide_gid(moved, before[0].source_index);
  spy.inject(IBV_EVENT_GID_CHANGE, moved);
  ASSERT_TRUE(fabric.until(
      [&] { return fabric[0].stat("recoveries") >= 1 && fabric[1].stat("recoveries") >= 1; }));
  ASSERT_TRUE(talk(fabric, 2));
  const auto after = paths(spy);
  ASSERT_EQ(after.size(), 2u);
  EXPECT_GT(spy.hidden(), 0);
  for (const Path& now : after) {
    const bool self = now.context == moved;
    const auto old = std::find_if(before.begin(), before.end(),
                                  [&](const Path& path) { return path.context == now.context; });
    ASSERT_NE(old, before.end());
    EXPECT_EQ(now.source_index != old->source_index, self);
    EXPECT_EQ(std::memcmp(&now.target, &old->target, sizeof now.target) != 0, !self)
        << "the other side talks to the new address";
  }
  fabric.close_all();
}

class Dead : public testing::TestWithParam<ibv_event_type> {};

// The device, or a queue that all connections of the rail share: none of them can go on, and the
// message says why. The other process is told.
TEST_P(Dead, IsNamedAndGivenUpSoon) {
  VerbsSpy spy;
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  ASSERT_TRUE(talk(fabric, 1));
  const auto qps = spy.in_rts(IBV_QPT_RC);
  ASSERT_EQ(qps.size(), 2u);
  const auto start = Clock::now();
  spy.inject(GetParam(), qps[0]->context, qps[0]);
  ASSERT_TRUE(
      fabric.until([&] { return fabric[0].gave_up.size() + fabric[1].gave_up.size() == 2; }, 5000));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(spy.injected_left(), 0);
  const char* name = verbs::event_name(GetParam());
  const bool first = contains(fabric[0].gave_up[0], name);
  EXPECT_NE(first, contains(fabric[1].gave_up[0], name)) << fabric[0].gave_up[0] << "\n"
                                                         << fabric[1].gave_up[0];
  const std::string& told = fabric[first ? 1 : 0].gave_up[0];
  EXPECT_TRUE(contains(told, "peer")) << told;
  fabric.close_all();
}

// In a job that goes on without lost processes it is this process itself that is reported; nothing
// of what it sent will be acknowledged, so closing does not wait for that.
TEST_P(Dead, InASurvivingJobIsNotWaitedForWhenClosing) {
  VerbsSpy spy;
  conn::Params params = quick();
  params.survives_losses = true;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  ASSERT_TRUE(talk(fabric, 1));
  ibv_qp* victim = spy.in_rts(IBV_QPT_RC)[0];
  spy.inject(GetParam(), victim->context, victim);
  const auto owner = [&]() -> Rank* {
    for (std::uint32_t i = 0; i < 2; ++i)
      if (!fabric[i].gave_up.empty() &&
          contains(fabric[i].gave_up[0], verbs::event_name(GetParam())))
        return &fabric[i];
    return nullptr;
  };
  ASSERT_TRUE(fabric.until([&] { return owner() != nullptr; }, 5000));
  Rank& dead = *owner();
  dead.send(1 - dead.rank, 8, 2);
  ASSERT_FALSE(dead.transport->flushed());
  const auto start = Clock::now();
  dead.transport->close();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30)) << "max_outage_s is 120";
}

INSTANTIATE_TEST_SUITE_P(Events, Dead,
                         testing::Values(IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR,
                                         IBV_EVENT_SRQ_ERR),
                         [](const auto& one) { return std::string(verbs::event_name(one.param)); });

// Process 0 still knows the process that was at process 1's place before: it is told so, and does
// not wait for max_outage.
TEST(Events, ARestartedPeerIsNotTakenForItsPredecessor) {
  Fabric fabric(2, quick(), false);
  ASSERT_EQ(fabric.error(), "");
  fabric.introduce(1, 0);
  auto predecessor = conn::parse_modex(fabric[1].transport->modex());
  ASSERT_TRUE(predecessor);
  predecessor->boot ^= 1;
  auto peer = fabric[0].transport->add_peer(7, 1, "here", conn::encode_modex(*predecessor));
  ASSERT_TRUE(peer) << peer.error().message;
  fabric[0].peers[1] = *peer;
  const std::int64_t dropped = fabric[1].stat("ctl_dropped");
  const auto start = Clock::now();
  fabric[0].send(1, 8, 1);
  ASSERT_TRUE(fabric.until([&] { return fabric[0].gave_up.size() == 1; }, 5000));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_TRUE(contains(fabric[0].gave_up[0], "peer")) << fabric[0].gave_up[0];
  EXPECT_GT(fabric[1].stat("ctl_dropped"), dropped);
  EXPECT_TRUE(fabric[1].inbox.empty());
  EXPECT_TRUE(fabric[1].gave_up.empty());
  fabric.close_all();
}

}  // namespace
}  // namespace mend::test
