#include "ops/poller.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

// An upcall that waits for more messages must see them, in order.
TEST(Poller, UpcallMayReenterAndGoesOnWithTheNextEntry) {
  Pair pair;
  pair.open();
  pair.b.on_message = [](Side& side) {
    if (side.received.size() == 1) {
      side.poller->progress();  // delivers 1, 2, 3 inside the upcall of 0
      EXPECT_EQ(side.received.size(), 4u);
    }
  };
  for (int i = 0; i < 4; ++i) {
    pair.a.send(std::to_string(i));
  }
  pair.b.progress();
  ASSERT_EQ(pair.b.received.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(pair.b.received[static_cast<std::size_t>(i)].text, std::to_string(i));
  }
  EXPECT_EQ(pair.b.recv_pool->ledger().posted, pair.b.recv_pool->ledger().depth);
}

TEST(Poller, UpcallMaySend) {
  Pair pair({.window = 4});
  pair.open();
  pair.b.on_message = [](Side& side) { side.send("echo " + side.received.back().text); };
  for (int i = 0; i < 50; ++i) {
    pair.a.send(std::to_string(i));
  }
  pair.pump();
  ASSERT_EQ(pair.a.received.size(), 50u);
  EXPECT_EQ(pair.a.received[49].text, "echo 49");
}

TEST(Poller, CallbacksRunOldestFirstAcrossTypes) {
  static std::string order;
  order.clear();
  Pair pair;
  pair.open();
  pair.a.qp().hold_completions = true;
  char bytes[8] = {};
  std::uint64_t word = 0;
  ops::RdmaOp put;
  put.local = bytes;
  put.local_keys = &pair.a.keys;
  put.remote = reinterpret_cast<std::uint64_t>(&word);
  put.length = 8;
  put.done = [](ops::RdmaOp&) { order += "put "; };
  pair.a.channel->rdma(put);
  pair.fabric.complete_held(pair.a.qp(), 1);
  ops::Frag* frag = pair.a.frags->get();
  frag->sent = [](ops::Frag& sent) {
    order += "sent ";
    ops::release_hold(sent, ops::kHoldUser);
  };
  pair.a.channel->send(*frag, 0, true);  // posted: due now
  ops::AmoCall amo;
  amo.remote = reinterpret_cast<std::uint64_t>(&word);
  amo.done = [](ops::AmoCall&) { order += "amo "; };
  pair.a.channel->atomic(amo);
  pair.b.progress();
  pair.a.progress();
  EXPECT_EQ(order, "sent put amo ");
  EXPECT_FALSE(pair.a.poller->callbacks_due());
}

TEST(Poller, BeaconReportsItsStatusAndACancelledOneNothing) {
  Pair pair;
  pair.open();
  std::atomic<int> status{0};
  std::atomic<int> other{0};
  const std::uint64_t first = pair.a.poller->make_beacon_wr_id(&status);
  const std::uint64_t second = pair.a.poller->make_beacon_wr_id(&other);
  EXPECT_NE(first, second);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  for (const std::uint64_t id : {second, first}) {
    wr.wr_id = id;
    pair.a.qp().waiting.clear();
    ASSERT_EQ(ibv_post_send(&pair.a.qp().base, &wr, &bad), 0);
  }
  pair.a.poller->cancel_beacon(second);
  const std::uint64_t third = pair.a.poller->make_beacon_wr_id(&other);  // the same slot
  pair.a.poller->drain_for_fence();
  EXPECT_EQ(status.load(), IBV_WC_SUCCESS + 1);
  EXPECT_EQ(other.load(), 0) << "a cancelled beacon's completion reached its successor";
  EXPECT_EQ(pair.a.poller->stale_completions(), 1u);
  pair.a.poller->cancel_beacon(third);
}

TEST(Poller, CompletionsOfUnknownQpsAreCountedAndTheirBuffersKept) {
  Pair pair;
  pair.open();
  pair.b.poller->remove_lane(Qpn{pair.b.qp().base.qp_num});
  pair.a.send("nobody");
  pair.b.progress();
  EXPECT_EQ(pair.b.poller->stale_completions(), 1u);
  EXPECT_TRUE(pair.b.received.empty());
  EXPECT_EQ(pair.b.recv_pool->ledger().posted, pair.b.recv_pool->ledger().depth);
}

TEST(Poller, ShortMessageIsAFault) {
  Pair pair;
  pair.open();
  ibv_send_wr wr{};
  ibv_sge sge{};
  char bytes[15] = {};
  sge.addr = reinterpret_cast<std::uint64_t>(bytes);
  sge.length = sizeof(bytes);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(&pair.a.qp().base, &wr, &bad), 0);
  pair.b.progress();
  ASSERT_EQ(pair.b.faults.size(), 1u);
  EXPECT_EQ(pair.b.faults[0], std::pair(ops::Fault::ShortMessage, std::uint64_t{15}));
  EXPECT_EQ(pair.b.recv_pool->ledger().posted, pair.b.recv_pool->ledger().depth);
}

TEST(Poller, ForgetDropsWhatIsQueuedForAContext) {
  Pair pair;
  pair.open();
  for (int i = 0; i < 3; ++i) {
    pair.a.send("x");
  }
  pair.b.poller->drain_for_fence();
  EXPECT_EQ(pair.b.recv_pool->ledger().stashed, 3u);
  pair.b.poller->forget(*pair.b.channel, &pair.b);
  EXPECT_EQ(pair.b.recv_pool->ledger().stashed, 0u);
  EXPECT_EQ(pair.b.recv_pool->ledger().posted, pair.b.recv_pool->ledger().depth);
  pair.b.progress();
  EXPECT_TRUE(pair.b.received.empty());
}

}  // namespace
}  // namespace mend::test
