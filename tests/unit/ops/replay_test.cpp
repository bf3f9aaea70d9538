// What survives a lost QP: the cross product of failure points over one sequence of operations, and
// the rules by name.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::AmoCall;
using ops::RdmaOp;

enum class Op { Put, Send, Get, Amo };
constexpr Op kScript[] = {Op::Put, Op::Put, Op::Send, Op::Get, Op::Amo, Op::Put, Op::Send};
constexpr int kOps = static_cast<int>(std::size(kScript));

// The script on side A, its memory on both sides, and how often everything was called back.
struct Script {
  Pair pair;
  std::uint64_t source[kOps] = {};
  std::uint64_t target[kOps] = {};  // on B: written by puts, read by the get
  std::uint64_t landing[kOps] = {};
  RdmaOp rdma[kOps];
  AmoCall amo;
  std::uint64_t counter = 1000;
  int done[kOps] = {};

  Script() {
    for (int i = 0; i < kOps; ++i) {
      source[i] = 0x1111u * static_cast<unsigned>(i + 1);
    }
    target[3] = 0xfeedface;
  }

  void submit() {
    for (int i = 0; i < kOps; ++i) {
      switch (kScript[i]) {
        case Op::Put:
        case Op::Get:
          submit_rdma(i);
          break;
        case Op::Send:
          pair.a.send("send " + std::to_string(i));
          break;
        case Op::Amo:
          amo.remote = reinterpret_cast<std::uint64_t>(&counter);
          amo.operand = 5;
          amo.user[0] = &done[i];
          amo.done = [](AmoCall& call) { ++*static_cast<int*>(call.user[0]); };
          pair.a.channel->atomic(amo);
          break;
      }
    }
  }

  void submit_rdma(int i) {
    const bool put = kScript[i] == Op::Put;
    rdma[i].dir = put ? RdmaOp::Dir::Put : RdmaOp::Dir::Get;
    rdma[i].local = put ? &source[i] : &landing[i];
    rdma[i].local_keys = &pair.a.keys;
    rdma[i].remote = reinterpret_cast<std::uint64_t>(&target[i]);
    rdma[i].length = sizeof(target[i]);
    rdma[i].user[0] = &done[i];
    rdma[i].done = [](RdmaOp& op) { ++*static_cast<int*>(op.user[0]); };
    pair.a.channel->rdma(rdma[i]);
  }

  void expect_complete() {
    EXPECT_EQ(pair.b.received, (std::vector<Message>{{7, "send 2"}, {7, "send 6"}}));
    for (int i = 0; i < kOps; ++i) {
      if (kScript[i] != Op::Send) {
        EXPECT_EQ(done[i], 1) << "operation " << i;
      }
      if (kScript[i] == Op::Put) {
        EXPECT_EQ(target[i], source[i]) << i;
      }
    }
    EXPECT_EQ(landing[3], 0xfeedface);
    EXPECT_EQ(counter, 1005u) << "the atomic ran not exactly once";
    EXPECT_EQ(amo.result, 1000u);
    EXPECT_TRUE(pair.a.channel->quiet());
    EXPECT_TRUE(pair.b.channel->quiet());
    EXPECT_EQ(pair.a.channel->stats().dup_rx + pair.b.channel->stats().dup_rx, 0u);
    EXPECT_EQ(pair.a.frags->counters().live, 0u);
    EXPECT_EQ(pair.b.frags->counters().live, 0u);
    const ops::RecvLedger ledger = pair.b.recv_pool->ledger();
    EXPECT_EQ(ledger.posted, ledger.depth);
  }
};

// executed: how many requests the responder executed; completed: of how many the requester saw the
// completion; peer_acked: whether B counted them (and acknowledged) before the link broke.
struct Case {
  int executed, completed;
  bool peer_acked;
};

bool is_sequenced(int i) { return kScript[i] == Op::Send || kScript[i] == Op::Amo; }

std::uint64_t expected_in_doubt(const Case& c) {
  std::uint64_t count = 0;
  for (int i = c.completed; i < kOps; ++i) {
    bool followed = false;
    for (int j = i + 1; j < c.executed; ++j) {
      followed = followed || is_sequenced(j);
    }
    count += kScript[i] == Op::Put && !followed ? 1 : 0;
  }
  return count;
}

std::uint64_t expected_replayed(const Case& c) {
  std::uint64_t count = expected_in_doubt(c);
  for (int i = 0; i < kOps; ++i) {
    count += is_sequenced(i) && i >= c.executed ? 1 : 0;
    count += kScript[i] == Op::Get && i >= c.completed ? 1 : 0;
  }
  return count;
}

void run_case(const Case& c) {
  Script script;
  Pair& pair = script.pair;
  pair.open();
  pair.a.qp().automatic = false;
  pair.a.qp().hold_completions = true;
  script.submit();
  ASSERT_EQ(pair.a.qp().posted, static_cast<unsigned>(kOps));
  for (int i = 0; i < c.executed; ++i) {
    ASSERT_TRUE(pair.fabric.execute_one(pair.a.qp()));
  }
  pair.fabric.complete_held(pair.a.qp(), static_cast<std::size_t>(c.completed));
  if (c.peer_acked) {
    for (int i = 0; i < 200; ++i) {
      pair.b.progress();
    }
    for (int i = 0; i < 200; ++i) {
      pair.a.progress();
    }
  }
  pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.a.progress();
  if (c.completed < kOps) {
    ASSERT_EQ(pair.a.lost.size(), 1u);
    ASSERT_EQ(pair.a.lost[0].status, IBV_WC_RETRY_EXC_ERR);
  }
  pair.recover();
  ASSERT_EQ(pair.a_verdict, ops::ReplayVerdict::Ok);
  ASSERT_EQ(pair.b_verdict, ops::ReplayVerdict::Ok);
  const ops::ChannelStats stats = pair.a.channel->stats();
  EXPECT_EQ(stats.in_doubt, expected_in_doubt(c));
  EXPECT_EQ(stats.replayed, expected_replayed(c));
  pair.pump();
  script.expect_complete();
}

TEST(Replay, TruthTable) {
  int cases = 0;
  std::uint64_t replays = 0;
  for (int executed = 0; executed <= kOps; ++executed) {
    for (int completed = 0; completed <= executed; ++completed) {
      for (const bool acked : {false, true}) {
        SCOPED_TRACE("executed " + std::to_string(executed) + " completed " +
                     std::to_string(completed) + (acked ? " acked" : ""));
        run_case({executed, completed, acked});
        replays += expected_replayed({executed, completed, acked});
        ++cases;
        if (::testing::Test::HasFatalFailure()) {
          return;
        }
      }
    }
  }
  EXPECT_EQ(cases, 72);
  EXPECT_GT(replays, 100u) << "the table tests nothing";
}

// The link breaks again while replaying, after k of the replayed requests.
TEST(Replay, FailsAgainInReplay) {
  for (int first = 0; first <= kOps; ++first) {
    for (int second = 0; second <= kOps; ++second) {
      SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
      Script script;
      Pair& pair = script.pair;
      pair.open();
      pair.a.qp().automatic = false;
      pair.a.qp().hold_completions = true;
      script.submit();
      for (int i = 0; i < first; ++i) {
        pair.fabric.execute_one(pair.a.qp());
      }
      pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
      pair.fence(pair.a);
      pair.fence(pair.b);
      pair.connect();
      pair.a.qp().automatic = false;
      pair.a.qp().hold_completions = true;
      pair.start();
      for (int i = 0; i < second; ++i) {
        pair.fabric.execute_one(pair.a.qp());
      }
      pair.fabric.fail(pair.a.qp(), IBV_WC_RNR_RETRY_EXC_ERR);
      pair.a.progress();
      pair.recover();
      pair.pump();
      script.expect_complete();
    }
  }
}

// F1: a receive that is in the CQ when the QP dies counts, is delivered from the stash, and is not
// replayed.
TEST(Replay, ReceivesInTheCqCountBeforeTheSample) {
  Pair pair;
  pair.open();
  for (int i = 0; i < 5; ++i) {
    pair.a.send(std::to_string(i));
  }
  pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.fence(pair.b);
  EXPECT_TRUE(pair.b.received.empty()) << "the fence must not deliver";
  EXPECT_EQ(pair.b.recv_pool->ledger().stashed, 5u);
  pair.fence(pair.a);
  pair.open();
  EXPECT_EQ(pair.b_progress.rx_next, Seq{5});
  EXPECT_EQ(pair.a.channel->stats().replayed, 0u);
  pair.a.send("5");
  pair.pump();
  ASSERT_EQ(pair.b.received.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(pair.b.received[static_cast<std::size_t>(i)].text, std::to_string(i));
  }
}

// F3: a completion of an epoch that is over changes nothing.
TEST(Replay, LateCompletionOfAnOldEpochIsIgnored) {
  Pair pair({.signal_every = 1, .max_inline = 0});
  pair.open();
  const std::uint32_t old_qpn = pair.a.qp().base.qp_num;
  pair.a.qp().automatic = false;
  pair.a.send("x");
  const std::uint64_t old_id = pair.a.qp().waiting[0].wr.wr_id;
  pair.recover();
  pair.a.qp().automatic = false;
  ibv_wc late{};
  late.wr_id = old_id;
  late.qp_num = old_qpn;
  late.status = IBV_WC_SUCCESS;
  pair.a.channel->on_send_completion(late);
  late.status = IBV_WC_RETRY_EXC_ERR;
  pair.a.channel->on_send_completion(late);
  EXPECT_FALSE(pair.a.channel->events_pending());
  EXPECT_EQ(pair.a.channel->stats().other_epoch, 2u);
  EXPECT_EQ(pair.a.frags->counters().live, 1u);
}

// F7.
TEST(Replay, ImpossibleProgressIsNamed) {
  Pair pair;
  pair.open();
  for (int i = 0; i < 4; ++i) {
    pair.a.send("x");
  }
  pair.pump();
  pair.fence(pair.a);
  pair.fence(pair.b);
  pair.connect();
  EXPECT_EQ(pair.a.channel->start(Seq{3}), ops::ReplayVerdict::DataLoss);
  EXPECT_EQ(pair.a.channel->start(Seq{5}), ops::ReplayVerdict::Corrupt);
  EXPECT_EQ(pair.a.channel->start(Seq{4}), ops::ReplayVerdict::Ok);
}

TEST(Replay, NewSubmissionsQueueBehindTheReplay) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  pair.a.send("0");
  pair.a.send("1");
  pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.a.progress();
  pair.a.send("2");
  pair.fence(pair.a);
  pair.a.send("3");
  pair.fence(pair.b);
  pair.connect();
  pair.a.send("4");
  pair.start();
  pair.a.send("5");
  pair.pump();
  ASSERT_EQ(pair.b.received.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(pair.b.received[static_cast<std::size_t>(i)].text, std::to_string(i));
  }
  EXPECT_EQ(pair.a.channel->stats().replayed, 2u);
}

// (z) of the protocol's cases: both windows are full when the link breaks.
TEST(Replay, WindowFullBothWays) {
  Pair pair({.window = 4});
  pair.open();
  for (int i = 0; i < 50; ++i) {
    pair.a.send("a" + std::to_string(i));
    pair.b.send("b" + std::to_string(i));
  }
  for (int round = 0; round < 12; ++round) {
    pair.a.progress();
    if (round % 3 == 0) {
      pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
      pair.recover();
    }
    pair.b.progress();
  }
  pair.pump();
  ASSERT_EQ(pair.a.received.size(), 50u);
  ASSERT_EQ(pair.b.received.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(pair.a.received[static_cast<std::size_t>(i)].text, "b" + std::to_string(i));
    EXPECT_EQ(pair.b.received[static_cast<std::size_t>(i)].text, "a" + std::to_string(i));
  }
}

}  // namespace
}  // namespace mend::test
