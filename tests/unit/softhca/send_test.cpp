// RC send and receive: data, completions, queue accounting, RNR and retry time. Simulation, so that
// times are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "softhca/engine/context.h"
#include "softhca/engine/process.h"
#include "softhca/rules/timers.h"
#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::Send;
using kit::World;

struct Pair {
  explicit Pair(World& world, const QpOptions& options = {}, const Node::Options& node = {})
      : a(world.open(), node), b(world.open(), node), qa(a, options), qb(b, options) {
    kit::connect(qa, qb);
  }
  Node a, b;
  Qp qa, qb;
};

TEST(Send, EverySizeArrivesWhole) {
  World world;
  Pair p(world, {}, {.bytes = 300'000});
  unsigned seed = 1;
  for (const uint32_t n : {0U,    1U,    7U,    8U,    9U,    15U,   16U,    17U,    63U,  64U,
                           65U,   79U,   80U,   81U,   127U,  128U,  192U,   193U,   255U, 256U,
                           1000U, 4079U, 4080U, 4096U, 4097U, 8191U, 65536U, 262144U}) {
    p.a.fill(0, n, ++seed);
    p.b.fill(0, n + 64, 0);
    ASSERT_EQ(kit::post_recv(p.qb, 100 + n, 16, n + 16), 0);
    ASSERT_EQ(kit::post(p.qa, {.wr_id = n, .length = n}), 0);
    const ibv_wc sent = kit::poll_one(p.a.cq, world.wait());
    ASSERT_EQ(sent.status, IBV_WC_SUCCESS) << n;
    EXPECT_EQ(sent.wr_id, n);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.qp_num, p.qa.num());
    const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS) << n;
    EXPECT_EQ(got.wr_id, 100 + n);
    EXPECT_EQ(got.opcode, IBV_WC_RECV);
    EXPECT_EQ(got.byte_len, n);
    EXPECT_EQ(got.qp_num, p.qb.num());
    EXPECT_EQ(got.wc_flags & IBV_WC_WITH_IMM, 0U);
    EXPECT_TRUE(p.b.holds(16, n, seed)) << n;
    EXPECT_EQ(p.b.buf[16 + n], static_cast<unsigned char>((16 + n) * 7 + (16 + n) / 251))
        << "wrote behind the message";
  }
}

TEST(Send, InlineDataIsTakenAtPost) {
  World world;
  Pair p(world, {.inline_data = 64});
  p.a.fill(0, 64, 5);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.length = 64, .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED}), 0);
  p.a.fill(0, 64, 9);
  ASSERT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(p.b.holds(0, 64, 5));
  EXPECT_EQ(kit::post(p.qa, {.length = 4096, .flags = IBV_SEND_INLINE}), EINVAL);
}

TEST(Send, ImmediateDataTravels) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.length = 8, .opcode = IBV_WR_SEND_WITH_IMM, .imm = 0xdeadbeef}), 0);
  const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  EXPECT_EQ(got.imm_data, 0xdeadbeefU);
  EXPECT_NE(got.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(got.opcode, IBV_WC_RECV);
}

TEST(Send, OrderIsPostOrder) {
  World world;
  Pair p(world);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(kit::post_recv(p.qb, i, i * 64, 64), 0);
  for (uint64_t i = 0; i < 16; ++i) {
    p.a.fill(i * 64, 64, static_cast<unsigned>(i));
    ASSERT_EQ(kit::post(p.qa, {.wr_id = i, .offset = i * 64, .length = 64}), 0);
  }
  const auto sent = kit::poll(p.a.cq, 16, world.wait());
  const auto got = kit::poll(p.b.cq, 16, world.wait());
  ASSERT_EQ(sent.size(), 16U);
  ASSERT_EQ(got.size(), 16U);
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(got[i].wr_id, i);
    EXPECT_TRUE(p.b.holds(i * 64, 64, static_cast<unsigned>(i)));
  }
}

TEST(Send, UnsignaledCompletesOnlyOnError) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 1, .flags = 0}), 0);
  ASSERT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 1'000'000));
  ASSERT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 2, .flags = 0}), 0);
  const ibv_wc wc = kit::poll_one(p.a.cq, world.wait());
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Send, SigAllSignalsEverything) {
  World world;
  Pair p(world, {.sig_all = true});
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 1, .flags = 0}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).wr_id, 1U);
}

// A slot of the send queue is free only when its own or a later completion of the QP is polled.
TEST(Send, SendQueueSlotsFreeAtPoll) {
  World world;
  Pair p(world, {.send_wr = 4, .recv_wr = 32});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(p.qa.get(), &attr, IBV_QP_CAP, &init), 0);
  const uint32_t depth = init.cap.max_send_wr;
  ASSERT_GE(depth, 4U);
  for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(kit::post_recv(p.qb, i, 0, 64), 0);
  for (uint64_t i = 0; i < depth; ++i) {
    const bool last = i == depth - 1;
    ASSERT_EQ(kit::post(p.qa, {.wr_id = i, .flags = last ? unsigned{IBV_SEND_SIGNALED} : 0U}), 0)
        << i;
  }
  world.wait()(1'000'000);
  EXPECT_EQ(kit::post(p.qa, {.wr_id = 99}), ENOMEM) << "all delivered, but nothing polled yet";
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).wr_id, depth - 1);
  for (uint64_t i = 0; i < depth; ++i)
    ASSERT_EQ(kit::post(p.qa, {.wr_id = i, .flags = 0}), 0) << "one completion frees all before it";
  EXPECT_EQ(kit::post(p.qa, {.wr_id = 99}), ENOMEM) << "unsignaled work never frees its slot";
}

TEST(Send, ReceiveQueueHasAnEnd) {
  World world;
  Pair p(world, {.recv_wr = 4});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(p.qb.get(), &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < init.cap.max_recv_wr; ++i)
    ASSERT_EQ(kit::post_recv(p.qb, i, 0, 64), 0) << i;
  EXPECT_EQ(kit::post_recv(p.qb, 99, 0, 64), ENOMEM);
}

TEST(Send, StatesThatTakeWork) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a), qb(b);
  EXPECT_EQ(kit::post_recv(qa, 1, 0, 8), EINVAL) << "RESET takes no receive";
  EXPECT_EQ(kit::post(qa, {}), EINVAL);
  ASSERT_EQ(qa.to_init(), 0);
  EXPECT_EQ(kit::post_recv(qa, 1, 0, 8), 0);
  EXPECT_EQ(kit::post(qa, {}), EINVAL);
  ASSERT_EQ(qb.to_init(), 0);
  ASSERT_EQ(qa.to_rtr(qb.num(), kit::gid_of(b.ctx, 0)), 0);
  EXPECT_EQ(kit::post(qa, {}), EINVAL) << "RTR sends nothing";
  ASSERT_EQ(qa.to_rts(), 0);
  EXPECT_EQ(qa.state(), IBV_QPS_RTS);
  EXPECT_EQ(kit::post(qa, {}), 0);
}

TEST(Send, ReceiverInRtrAccepts) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a), qb(b);
  ASSERT_EQ(qa.to_init(), 0);
  ASSERT_EQ(qb.to_init(), 0);
  ASSERT_EQ(qa.to_rtr(qb.num(), kit::gid_of(b.ctx, 0)), 0);
  ASSERT_EQ(qb.to_rtr(qa.num(), kit::gid_of(a.ctx, 0)), 0);
  ASSERT_EQ(qa.to_rts(), 0);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::next_event(b.ctx, world.wait()), IBV_EVENT_COMM_EST);
}

TEST(Send, TooSmallReceiveBufferBreaksBothSides) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 7, 0, 8), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 3, .length = 9}), 0);
  const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  EXPECT_EQ(got.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(got.wr_id, 7U);
  const ibv_wc sent = kit::poll_one(p.a.cq, world.wait());
  EXPECT_EQ(sent.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(sent.wr_id, 3U);
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.qb.state(), IBV_QPS_ERR);
}

TEST(Send, BadLocalKeyIsALocalProtectionError) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 7, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 3, .lkey = 0xffffff}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.qb.state(), IBV_QPS_RTS) << "the peer has seen nothing";
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 1'000'000));
}

TEST(Send, ReceiveIntoUnregisteredMemoryFailsThere) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 7, 0, 64, 0xffffff), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 3}), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_OP_ERR);
}

TEST(Send, FlushGivesBackEveryWorkRequestInOrder) {
  World world;
  Pair p(world);
  ASSERT_EQ(p.qb.to(IBV_QPS_ERR), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(kit::post_recv(p.qa, 10 + i, 0, 64), 0);
  ASSERT_EQ(p.qa.to(IBV_QPS_ERR), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 1}), 0) << "ERR takes work and flushes it";
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 2, .flags = 0}), 0);
  ASSERT_EQ(kit::post_recv(p.qa, 13, 0, 64), 0);
  const auto got = kit::poll(p.a.cq, 6, world.wait());
  ASSERT_EQ(got.size(), 6U);
  std::vector<uint64_t> sends, recvs;
  for (const ibv_wc& wc : got) {
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.qp_num, p.qa.num());
    (wc.wr_id < 10 ? sends : recvs).push_back(wc.wr_id);
  }
  EXPECT_EQ(sends, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(recvs, (std::vector<uint64_t>{10, 11, 12, 13}));
}

TEST(Send, WorkBehindAFailureIsFlushed) {
  World world;
  Pair p(world);
  ASSERT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(kit::post(p.qa, {.wr_id = i}), 0);
  const auto got = kit::poll(p.a.cq, 3, world.wait());
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(got[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(got[2].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(got[2].wr_id, 3U);
}

TEST(Send, ResetForgetsWorkAndCompletions) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post_recv(p.qb, 2, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 1}), 0);
  world.wait()(1'000'000);
  ASSERT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 1'000'000)) << "RESET also cleans the CQ";
  ASSERT_EQ(p.qa.to(IBV_QPS_RESET), 0);
  kit::connect(p.qa, p.qb);
  ASSERT_EQ(kit::post_recv(p.qb, 3, 0, 64), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 4}), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).wr_id, 3U);
}

TEST(Send, RnrWaitsByTheRespondersTimer) {
  for (const uint8_t code : {uint8_t{1}, uint8_t{12}, uint8_t{20}}) {
    World world;
    Pair p(world, {.rnr_retry = 2, .min_rnr_timer = code});
    const uint64_t start = world.now();
    ASSERT_EQ(kit::post(p.qa, {.wr_id = 5}), 0);
    const ibv_wc wc = kit::poll_one(p.a.cq, world.wait(), 3'000'000'000, 1000);
    EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
    const uint64_t took = world.now() - start;
    const uint64_t expected = 2 * softhca::rnr_timer_ns(code);
    EXPECT_GE(took, expected) << int{code};
    EXPECT_LE(took, expected + expected / 4 + 10'000) << int{code};
    EXPECT_EQ(p.qa.state(), IBV_QPS_ERR);
    EXPECT_EQ(p.qb.state(), IBV_QPS_RTS) << "RNR is the sender's failure";
  }
}

TEST(Send, RnrRetrySevenIsForever) {
  World world;
  Pair p(world, {.rnr_retry = 7, .min_rnr_timer = 14});
  p.a.fill(0, 8, 3);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 5}), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 500'000'000));
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(p.b.holds(0, 8, 3));
}

TEST(Send, RetryTimeOfASilentPeer) {
  struct Case {
    uint8_t timeout, retry;
  };
  for (const Case& c : {Case{8, 0}, Case{8, 1}, Case{10, 3}, Case{14, 7}}) {
    for (const ibv_qp_state peer_state : {IBV_QPS_RESET, IBV_QPS_ERR}) {
      World world;
      Pair p(world, {.timeout = c.timeout, .retry_cnt = c.retry});
      ASSERT_EQ(p.qb.to(peer_state), 0);
      ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 64), peer_state == IBV_QPS_RESET ? EINVAL : 0);
      const uint64_t start = world.now();
      ASSERT_EQ(kit::post(p.qa, {.wr_id = 9}), 0);
      const ibv_wc wc = kit::poll_one(p.a.cq, world.wait(), 5'000'000'000, 10'000);
      EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
      const uint64_t took = world.now() - start;
      const uint64_t expected = softhca::retry_timeout_ns(c.timeout, c.retry);
      EXPECT_GE(took, expected);
      EXPECT_LE(took, 4 * expected + 10'000) << "the specification allows up to four times";
    }
  }
}

TEST(Send, TimeoutZeroNeverGivesUp) {
  World world;
  Pair p(world, {.timeout = 0});
  ASSERT_EQ(p.qb.to(IBV_QPS_RESET), 0);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 9}), 0);
  EXPECT_TRUE(kit::quiet(p.a.cq, world.wait(), 10'000'000'000));
}

TEST(Send, PeerThatComesBackInTimeIsServed) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.timeout = 14, .retry_cnt = 7}), qb(b);
  ASSERT_EQ(qa.to_init(), 0);
  ASSERT_EQ(qb.to_init(), 0);
  ASSERT_EQ(qa.to_rtr(qb.num(), kit::gid_of(b.ctx, 0)), 0);
  ASSERT_EQ(qa.to_rts(), 0);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post(qa, {}), 0) << "the peer is still in INIT";
  EXPECT_TRUE(kit::quiet(a.cq, world.wait(), 100'000'000));
  ASSERT_EQ(qb.to_rtr(qa.num(), kit::gid_of(a.ctx, 0)), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Send, PairingIsChecked) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a), qb(b), other(b);
  ASSERT_EQ(qa.to_init(), 0);
  ASSERT_EQ(qb.to_init(), 0);
  ASSERT_EQ(qa.to_rtr(qb.num(), kit::gid_of(b.ctx, 0)), 0);
  ASSERT_EQ(qb.to_rtr(other.num(), kit::gid_of(b.ctx, 0)), 0);
  ASSERT_EQ(qa.to_rts(), 0);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
}

TEST(Send, PsnAheadIsNeverAccepted) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.sq_psn = 1001}), qb(b, {.rq_psn = 1000});
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
}

TEST(Send, PsnBehindIsAcknowledgedAndDropped) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.sq_psn = 0xffffff}), qb(b, {.rq_psn = 0x000000});
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post(qa, {.wr_id = 1}), 0);
  EXPECT_EQ(kit::poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS) << "taken for a duplicate";
  EXPECT_TRUE(kit::quiet(b.cq, world.wait(), 1'000'000));
  ASSERT_EQ(kit::post(qa, {.wr_id = 2}), 0) << "now the numbers meet";
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Send, ScatterAndGather) {
  World world;
  Pair p(world, {.sge = 4});
  p.a.fill(0, 4096, 77);
  ibv_sge from[3]{{p.a.at(0), 10, p.a.mr->lkey},
                  {p.a.at(10), 0, p.a.mr->lkey},
                  {p.a.at(10), 990, p.a.mr->lkey}};
  ibv_sge to[4]{{p.b.at(0), 3, p.b.mr->lkey},
                {p.b.at(3), 500, p.b.mr->lkey},
                {p.b.at(503), 400, p.b.mr->lkey},
                {p.b.at(903), 200, p.b.mr->lkey}};
  ibv_recv_wr rwr{.wr_id = 1, .next = nullptr, .sg_list = to, .num_sge = 4};
  ibv_recv_wr* bad_r = nullptr;
  ASSERT_EQ(ibv_post_recv(p.qb.get(), &rwr, &bad_r), 0);
  ibv_send_wr swr{};
  swr.sg_list = from;
  swr.num_sge = 3;
  swr.opcode = IBV_WR_SEND;
  swr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad_s = nullptr;
  ASSERT_EQ(ibv_post_send(p.qa.get(), &swr, &bad_s), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.byte_len, 1000U);
  EXPECT_TRUE(p.b.holds(0, 1000, 77));
  swr.num_sge = 5;
  EXPECT_EQ(ibv_post_send(p.qa.get(), &swr, &bad_s), EINVAL);
  EXPECT_EQ(bad_s, &swr);
}

TEST(Send, ListStopsAtTheFirstBadRequest) {
  World world;
  Pair p(world);
  ibv_sge sge{p.a.at(0), 8, p.a.mr->lkey};
  ibv_send_wr third{}, second{}, first{};
  for (ibv_send_wr* wr : {&first, &second, &third}) {
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->opcode = IBV_WR_SEND;
    wr->send_flags = IBV_SEND_SIGNALED;
  }
  first.next = &second;
  second.next = &third;
  second.num_sge = 9;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 8), 0);
  ASSERT_EQ(kit::post_recv(p.qb, 2, 0, 8), 0);
  EXPECT_EQ(ibv_post_send(p.qa.get(), &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(kit::poll(p.b.cq, 2, world.wait(), 1'000'000).size(), 1U);
}

// Whoever holds the receiver's lock is alive but does not go on: a process that was stopped.
TEST(Send, AReceiverThatStaysLockedIsNoAnswerForNow) {
  World world;
  Pair p(world);
  Node stopped(world.open());
  softhca::Peer* receiver = nullptr;
  ASSERT_NE(softhca::context_of(p.a.ctx)->proc->find_qp(p.qb.num(), &receiver), nullptr);
  ASSERT_EQ(kit::post_recv(p.qb, 7, 0, 64), 0);
  receiver->hdr->lock.word = softhca::context_of(stopped.ctx)->proc->word();
  EXPECT_EQ(kit::post(p.qa, {}), 0);
  ASSERT_EQ(world.sim().log().size(), 1U);
  EXPECT_EQ(world.sim().log()[0].outcome, static_cast<uint8_t>(softhca::Outcome::NoAnswer));
  receiver->hdr->lock.word = softhca::kFreeWord;
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).wr_id, 7U);
}

}  // namespace
