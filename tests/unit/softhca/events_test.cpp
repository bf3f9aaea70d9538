// Completion channels and CQ errors: arming, solicited completions, acknowledgement, overrun.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::World;

bool readable(int fd) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}

struct Pair {
  explicit Pair(World& world, const Node::Options& receiver = {.channel = true})
      : a(world.open()),
        b(world.open(), receiver),
        qa(a, {.send_wr = 128}),
        qb(b, {.recv_wr = 128}) {
    kit::connect(qa, qb);
    if (b.channel != nullptr) {
      EXPECT_EQ(fcntl(b.channel->fd, F_SETFL, O_NONBLOCK), 0);
    }
  }
  // Fetches one event and acknowledges it; the CQ it names, or null.
  ibv_cq* event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(b.channel, &cq, &context) != 0) return nullptr;
    EXPECT_EQ(context, &b);
    ibv_ack_cq_events(cq, 1);
    return cq;
  }
  int send(unsigned flags = IBV_SEND_SIGNALED) {
    EXPECT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
    return kit::post(qa, {.flags = flags});
  }
  Node a, b;
  Qp qa, qb;
};

TEST(Events, OnlyAnArmedQueueNotifiesAndOnce) {
  World world;
  Pair p(world);
  ASSERT_EQ(p.send(), 0);
  EXPECT_FALSE(readable(p.b.channel->fd)) << "not armed";
  ASSERT_EQ(ibv_req_notify_cq(p.b.cq, 0), 0);
  ASSERT_EQ(p.send(), 0);
  ASSERT_EQ(p.send(), 0);
  EXPECT_TRUE(readable(p.b.channel->fd));
  EXPECT_EQ(p.event(), p.b.cq);
  EXPECT_FALSE(readable(p.b.channel->fd));
  EXPECT_EQ(p.event(), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(kit::poll(p.b.cq, 3, world.wait()).size(), 3U);
}

TEST(Events, SolicitedOnly) {
  World world;
  Pair p(world);
  ASSERT_EQ(ibv_req_notify_cq(p.b.cq, 1), 0);
  ASSERT_EQ(p.send(), 0);
  EXPECT_FALSE(readable(p.b.channel->fd));
  ASSERT_EQ(p.send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  EXPECT_EQ(p.event(), p.b.cq);
  ASSERT_EQ(ibv_req_notify_cq(p.b.cq, 1), 0);
  ASSERT_EQ(kit::post_recv(p.qb, 9, 0, 64), 0);
  ASSERT_EQ(p.qb.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(p.event(), p.b.cq) << "an error counts as solicited";
}

TEST(Events, SendCompletionsNotifyToo) {
  World world;
  Node a(world.open(), {.channel = true}), b(world.open());
  Qp qa(a), qb(b);
  kit::connect(qa, qb);
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_TRUE(readable(a.channel->fd));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(a.channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

TEST(Events, OverrunKillsTheQueueAndItsQueuePairs) {
  World world;
  Pair p(world, {.cqe = 4});
  const int room = p.b.cq->cqe;
  for (int i = 0; i <= room; ++i) ASSERT_EQ(p.send(), 0) << i;
  world.wait()(1'000'000);
  bool cq_error = false;
  bool qp_fatal = false;
  for (int i = 0; i < 4; ++i) {
    const int type = kit::next_event(p.b.ctx, world.wait(), 1'000'000);
    cq_error |= type == IBV_EVENT_CQ_ERR;
    qp_fatal |= type == IBV_EVENT_QP_FATAL;
  }
  EXPECT_TRUE(cq_error);
  EXPECT_TRUE(qp_fatal);
  EXPECT_EQ(p.qb.state(), IBV_QPS_ERR);
}

TEST(Events, QueuesInUseAreNotDestroyed) {
  World world;
  Pair p(world);
  EXPECT_EQ(ibv_destroy_cq(p.b.cq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(p.b.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(p.b.channel), EBUSY);
}

TEST(Events, AsyncDescriptorIsReadableWhileEventsWait) {
  World world;
  Pair p(world);
  EXPECT_FALSE(readable(p.b.ctx->async_fd));
  ASSERT_EQ(kit::post(p.qa, {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = 0x10, .rkey = 0x10}), 0);
  ASSERT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(readable(p.b.ctx->async_fd));
  EXPECT_EQ(kit::next_event(p.b.ctx, world.wait()), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_FALSE(readable(p.b.ctx->async_fd));
}

}  // namespace
