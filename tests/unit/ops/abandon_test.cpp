// A connection that is given up: everything accepted is called back exactly once, with success if
// it was done before and as failed else, and never while the device may still touch its memory.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::AmoCall;
using ops::Frag;
using ops::RdmaOp;

struct Count {
  int good = 0;
  int failed = 0;
  friend bool operator==(const Count&, const Count&) = default;
};

// One request of every kind on side A, with what became of each.
struct Requests {
  explicit Requests(Pair& the_pair) : pair(the_pair) {}

  void submit() {
    send();
    rdma(put, RdmaOp::Dir::Put, puts);
    rdma(get, RdmaOp::Dir::Get, gets);
    amo.remote = reinterpret_cast<std::uint64_t>(&target);
    amo.operand = 1;
    amo.user[0] = &amos;
    amo.done = [](AmoCall& call) { note(call.user[0], call.failed); };
    pair.a.channel->atomic(amo);
  }

  void send() {
    frag = pair.a.frags->get();
    frag->length = 8;
    void* counts = &sends;
    std::memcpy(frag->user, &counts, sizeof(counts));
    frag->sent = [](Frag& f) {
      void* back = nullptr;
      std::memcpy(&back, f.user, sizeof(back));
      note(back, f.failed);
      f.failed = false;
      ops::release_hold(f, ops::kHoldUser);
    };
    pair.a.channel->send(*frag, 7, true);
  }

  void rdma(RdmaOp& op, RdmaOp::Dir dir, Count& counts) {
    op.dir = dir;
    op.local = &local;
    op.local_keys = &pair.a.keys;
    op.remote = reinterpret_cast<std::uint64_t>(&target);
    op.length = sizeof(target);
    op.user[0] = &counts;
    op.done = [](RdmaOp& done) { note(done.user[0], done.failed); };
    pair.a.channel->rdma(op);
  }

  static void note(void* counts, bool failed) {
    auto& count = *static_cast<Count*>(counts);
    ++(failed ? count.failed : count.good);
  }

  std::array<Count, 4> seen() const { return {sends, puts, gets, amos}; }

  Pair& pair;
  Frag* frag = nullptr;
  RdmaOp put, get;
  AmoCall amo;
  std::uint64_t local = 5, target = 9;
  Count sends, puts, gets, amos;
};

constexpr Count kGood{1, 0}, kFailed{0, 1}, kNothing{0, 0};
using All = std::array<Count, 4>;

TEST(Abandon, WithoutAQpEverythingFailsAtOnce) {
  Pair pair;
  Requests requests(pair);
  requests.submit();
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kNothing, kNothing, kNothing, kNothing}));
  pair.a.channel->abandon();
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kFailed, kFailed, kFailed, kFailed}));
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Abandon, WhatComesLaterFailsToo) {
  Pair pair;
  pair.a.channel->abandon();
  for (int i = 0; i < 3; ++i) {
    Requests requests(pair);
    requests.submit();
    pair.a.progress();
    EXPECT_EQ(requests.seen(), (All{kFailed, kFailed, kFailed, kFailed}));
  }
  EXPECT_EQ(pair.a.wanted, 0);  // nobody is asked for a connection
  EXPECT_TRUE(pair.a.channel->quiet());
}

// Memory that the device may still read or write is not given back before the fence.
TEST(Abandon, NothingFailsWhileAQpMayTouchIt) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  Requests requests(pair);
  requests.submit();
  pair.a.channel->abandon();
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kGood, kNothing, kNothing, kNothing}));  // sent: the copy is ours
  pair.fence(pair.a);
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kGood, kFailed, kFailed, kFailed}));
  EXPECT_TRUE(pair.a.channel->quiet());
}

// A queue pair that could not be brought to RESET may do anything with what was posted.
TEST(Abandon, NothingFailsWhenTheFenceFailed) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  Requests requests(pair);
  requests.submit();
  pair.a.progress();
  pair.a.channel->stop_posting();
  pair.a.poller->remove_lane(Qpn{pair.a.qp().base.qp_num});
  pair.a.channel->detach(false);
  pair.a.channel->abandon();
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kGood, kNothing, kNothing, kNothing}));
}

TEST(Abandon, WhatWasDoneStaysDone) {
  Pair pair;
  pair.open();
  Requests requests(pair);
  requests.submit();
  pair.pump();
  EXPECT_EQ(requests.seen(), (All{kGood, kGood, kGood, kGood}));
  pair.fence(pair.a);
  pair.a.channel->abandon();
  pair.a.progress();
  EXPECT_EQ(requests.seen(), (All{kGood, kGood, kGood, kGood}));
  EXPECT_EQ(requests.target, 6u);
}

// The fragments go back to their pool, whether somebody wants to hear of them or not.
TEST(Abandon, KeepsNoFragments) {
  Pair pair;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 10; ++i) pair.a.send("lost");
    Requests requests(pair);
    requests.submit();
    pair.a.channel->abandon();
    pair.a.progress();
    EXPECT_EQ(requests.sends, kFailed);
  }
  EXPECT_LE(pair.a.chunks_registered, 2);
}

}  // namespace
}  // namespace mend::test
