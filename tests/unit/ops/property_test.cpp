// Random traffic in both directions over links that break at random points: everything arrives
// exactly once and in order, every buffer and fragment is accounted for. A failing seed reproduces
// exactly.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::AmoCall;
using ops::RdmaOp;

struct Put {
  RdmaOp op;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  int done = 0;
};

// What one side submitted and what must have come of it.
struct Plan {
  std::vector<Message> sends;
  std::deque<Put> puts;
  std::deque<AmoCall> calls;
  std::uint64_t counter = 0;  // at the peer
  int amo_done = 0;
};

class Storm {
 public:
  explicit Storm(unsigned seed) : random_(seed), pair_(pick(seed)) {
    pair_.open();
    for (int step = 0; step < 400; ++step) {
      act();
      check_ledgers();
    }
    settle();
  }

 private:
  static Options pick(unsigned seed) {
    Options options;
    options.window = 2u << (seed % 4);
    options.send_depth = 1u << (seed % 5);
    options.signal_every = 1 + seed % 7;
    options.max_inline = seed % 3 == 0 ? 0 : 64;
    options.recv_depth = 4u << (seed % 3);
    options.srq = seed % 4 != 3;
    return options;
  }

  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }

  void act() {
    Side& side = below(2) == 0 ? pair_.a : pair_.b;
    Plan& plan = &side == &pair_.a ? a_ : b_;
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        submit_send(side, plan);
        break;
      case 3:
        submit_put(side, plan);
        break;
      case 4:
        submit_atomic(side, plan);
        break;
      case 5:
        side.qp().automatic = !side.qp().automatic;
        break;
      case 6:
        side.qp().hold_completions = !side.qp().hold_completions;
        break;
      case 7:
        pair_.fabric.execute_one(side.qp());
        break;
      case 8:
        pair_.fabric.complete_held(side.qp(), below(4));
        break;
      case 9:
        if (below(4) == 0) {
          break_link(side);
        }
        break;
      default:
        for (unsigned i = below(100); i > 0; --i) {
          side.progress();
        }
    }
  }

  void submit_send(Side& side, Plan& plan) {
    std::string text = std::to_string(plan.sends.size()) + std::string(below(200), '.');
    const auto tag = static_cast<std::uint8_t>(below(256));
    side.send(text, tag);
    plan.sends.push_back(Message{tag, std::move(text)});
  }

  void submit_put(Side& side, Plan& plan) {
    Put& put = plan.puts.emplace_back();
    put.from = random_();
    put.op.dir = below(3) == 0 ? RdmaOp::Dir::Get : RdmaOp::Dir::Put;
    const bool get = put.op.dir == RdmaOp::Dir::Get;
    put.op.local = get ? &put.to : &put.from;
    put.op.remote = reinterpret_cast<std::uint64_t>(get ? &put.from : &put.to);
    put.op.local_keys = &side.keys;
    put.op.length = 8;
    put.op.user[0] = &put;
    put.op.done = [](RdmaOp& op) { ++static_cast<Put*>(op.user[0])->done; };
    side.channel->rdma(put.op);
  }

  void submit_atomic(Side& side, Plan& plan) {
    AmoCall& call = plan.calls.emplace_back();
    call.remote = reinterpret_cast<std::uint64_t>(&plan.counter);
    call.operand = 1;
    call.user[0] = &plan.amo_done;
    call.done = [](AmoCall& done) { ++*static_cast<int*>(done.user[0]); };
    side.channel->atomic(call);
  }

  void break_link(Side& side) {
    pair_.fabric.fail(side.qp(), IBV_WC_RETRY_EXC_ERR);
    if (below(2) == 0) {
      pair_.a.progress();
    }
    if (below(2) == 0) {
      pair_.b.progress();
    }
    pair_.recover();
    ASSERT_EQ(pair_.a_verdict, ops::ReplayVerdict::Ok);
    ASSERT_EQ(pair_.b_verdict, ops::ReplayVerdict::Ok);
  }

  void check_ledgers() {
    for (const Side* side : {&pair_.a, &pair_.b}) {
      const ops::RecvLedger ledger = side->recv_pool->ledger();
      ASSERT_EQ(ledger.posted + ledger.delivered + ledger.stashed + ledger.idle, ledger.depth);
      ASSERT_EQ(ledger.delivered, 0u);
      if (side->options.srq) {
        std::size_t in_cq = 0;  // completed, not polled: still counted as posted
        for (const ibv_wc& wc : side->cq.entries) {
          in_cq += wc.wr_id >> 60 == 0 ? 1u : 0u;
        }
        ASSERT_EQ(side->srq.posted.size() + in_cq, ledger.posted);
      }
    }
  }

  void settle() {
    for (Side* side : {&pair_.a, &pair_.b}) {
      side->qp().automatic = true;
      side->qp().hold_completions = false;
      pair_.fabric.complete_held(side->qp(), 1000);
    }
    pair_.pump(3000);
    expect_complete(a_, pair_.a, pair_.b);
    expect_complete(b_, pair_.b, pair_.a);
  }

  static void expect_complete(const Plan& plan, Side& side, const Side& other) {
    EXPECT_TRUE(side.lost.empty() || side.lost.back().epoch < side.channel->epoch())
        << "a link that nobody broke: status " << side.lost.back().status << " vendor "
        << side.lost.back().vendor_err;
    EXPECT_EQ(other.received, plan.sends);
    for (const Put& put : plan.puts) {
      EXPECT_EQ(put.done, 1);
      EXPECT_EQ(put.to, put.from);
    }
    EXPECT_EQ(plan.amo_done, static_cast<int>(plan.calls.size()));
    EXPECT_EQ(plan.counter, plan.calls.size());
    std::uint64_t sum = 0;
    for (const AmoCall& call : plan.calls) {
      sum += call.result;
    }
    EXPECT_EQ(sum, plan.calls.size() * (plan.calls.size() - (plan.calls.empty() ? 0 : 1)) / 2);
    EXPECT_TRUE(side.channel->quiet());
    EXPECT_EQ(side.channel->stats().dup_rx, 0u);
    EXPECT_EQ(side.channel->stats().faults, 0u);
    EXPECT_EQ(side.channel->held_bytes(), 0u);
    EXPECT_LE(side.frags->counters().live, side.options.signal_every)
        << "only unsignalled stragglers";
  }

 public:
  std::uint64_t replayed() const {
    return pair_.a.channel->stats().replayed + pair_.b.channel->stats().replayed;
  }

 private:
  std::mt19937_64 random_;
  Plan a_;
  Plan b_;
  Pair pair_;
};

TEST(Property, RandomTrafficOverBreakingLinks) {
  std::uint64_t replayed = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Storm run(seed);
    replayed += run.replayed();
    if (::testing::Test::HasFailure()) {
      break;
    }
  }
  EXPECT_GT(replayed, 1000u) << "the faults hit nothing";
}

}  // namespace
}  // namespace mend::test
