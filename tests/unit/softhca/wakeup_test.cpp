// Sleepers in other processes are woken: completion channels, async events, links, memory limits;
// and many processes at once on one target keep its memory right. Real time, real processes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "softhca/engine/wake.h"
#include "tests/unit/softhca/process_kit.h"

namespace {

using kit::Address;
using kit::Child;
using kit::connect_through;
using kit::introduce;
using kit::Link;
using kit::Node;
using kit::open_device;
using kit::OwnFabric;
using kit::Qp;
using kit::QpOptions;

constexpr uint64_t kRounds = 300;

// Blocks in ibv_get_cq_event for every message, the textbook loop.
int event_loop(Link& link, bool first) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx, {.channel = true});
    Qp qp(node);
    EXPECT_EQ(ibv_req_notify_cq(node.cq, 0), 0);
    EXPECT_EQ(qp.to_init(), 0);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(kit::post_recv(qp, 1, 0, 64), 0);
    Address peer{};
    if (!connect_through(link, qp, &peer)) return 1;
    uint64_t received = 0, sent = 0;
    if (first) sent += kit::post(qp, {.wr_id = 2, .flags = 0}) == 0 ? 1 : 0;
    while (received < kRounds) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(node.channel, &cq, &context) != 0) return 1;
      ibv_ack_cq_events(cq, 1);
      EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
      ibv_wc wc{};
      while (ibv_poll_cq(cq, 1, &wc) == 1) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id != 1) continue;
        ++received;
        EXPECT_EQ(kit::post_recv(qp, 1, 0, 64), 0);
        if (sent < kRounds)
          // Signaled now and then, so that slots of the send queue come back.
          sent += kit::post(qp, {.wr_id = 2,
                                 .flags = sent % 8 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U}) == 0
                      ? 1
                      : 0;
      }
    }
    EXPECT_EQ(sent, kRounds);
    if (!link.go() || !link.wait()) return 1;
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

TEST(Wakeup, PingPongThatSleepsBetweenMessages) {
  OwnFabric fabric("sleep");
  Child a([](Link& link) { return event_loop(link, true); });
  Child b([](Link& link) { return event_loop(link, false); });
  introduce(a, b);
  for (Child* c : {&a, &b}) ASSERT_TRUE(c->link().wait()) << "somebody sleeps for ever";
  for (Child* c : {&a, &b}) ASSERT_TRUE(c->link().go());
  EXPECT_EQ(a.join(), 0);
  EXPECT_EQ(b.join(), 0);
}

TEST(Wakeup, AsyncEventReachesABlockedReader) {
  OwnFabric fabric("async");
  Child target([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node);
      Address peer{};
      if (!connect_through(link, qp, &peer)) return 1;
      ibv_async_event event{};
      if (ibv_get_async_event(ctx, &event) != 0) return 1;
      EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
      EXPECT_EQ(event.element.qp, qp.get());
      ibv_ack_async_event(&event);
      if (!link.go()) return 1;
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  Child culprit([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node);
      Address peer{};
      if (!connect_through(link, qp, &peer)) return 1;
      kit::real_wait(20'000'000);
      EXPECT_EQ(kit::post(qp, {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = 8, .rkey = 8}), 0);
      EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_REM_ACCESS_ERR);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  introduce(target, culprit);
  ASSERT_TRUE(target.link().wait());
  EXPECT_EQ(target.join(), 0);
  EXPECT_EQ(culprit.join(), 0);
}

// The receiver sleeps on its channel; the sender dies somewhere in the middle of a stream. The
// receiver must get every message that was announced to it, in order, and stay usable.
TEST(Wakeup, DeathInAStreamLosesNothingThatWasDelivered) {
  constexpr uint64_t kStream = 100;  // messages that have arrived before the death
  for (int round = 0; round < 12; ++round) {
    OwnFabric fabric("stream");
    Child receiver([](Link& link) {
      ibv_context* ctx = open_device();
      if (ctx == nullptr) return 1;
      {
        Node node(ctx, {.cqe = 512, .bytes = 64 * 1024});
        Qp qp(node, {.recv_wr = 256, .min_rnr_timer = 1});
        EXPECT_EQ(qp.to_init(), 0);
        for (uint64_t i = 0; i < 256; ++i) EXPECT_EQ(kit::post_recv(qp, i, i * 256, 256), 0);
        Address peer{};
        if (!connect_through(link, qp, &peer)) return 1;
        uint64_t next = 0;
        for (bool dead = false;;) {
          const auto got = kit::poll(node.cq, 1, kit::real_wait, 20'000'000);
          if (got.empty() && dead) break;
          if (got.empty()) {
            dead = link.wait(0);
            continue;
          }
          EXPECT_EQ(got[0].status, IBV_WC_SUCCESS);
          uint64_t value = 0;
          std::memcpy(&value, node.buf.data() + got[0].wr_id * 256, sizeof value);
          EXPECT_EQ(value, next++);
          EXPECT_EQ(kit::post_recv(qp, got[0].wr_id, got[0].wr_id * 256, 256), 0);
          if (next == kStream && !link.go()) return 1;
        }
        EXPECT_EQ(qp.to(IBV_QPS_ERR), 0);
        EXPECT_EQ(kit::poll(node.cq, 256, kit::real_wait).size(), 256U) << "a buffer is missing";
      }
      EXPECT_EQ(ibv_close_device(ctx), 0);
      return 0;
    });
    Child sender([](Link& link) {
      ibv_context* ctx = open_device();
      if (ctx == nullptr) return 1;
      Node node(ctx, {.cqe = 512});
      Qp qp(node, {.send_wr = 64, .sig_all = true});
      Address peer{};
      if (!connect_through(link, qp, &peer)) return 1;
      for (uint64_t value = 0;; ++value) {
        std::memcpy(node.buf.data(), &value, sizeof value);
        if (kit::post(qp, {.length = static_cast<uint32_t>(8 + value % 200)}) != 0) return 1;
        ibv_wc wc{};
        while (ibv_poll_cq(node.cq, 1, &wc) == 0) {
        }
        if (wc.status != IBV_WC_SUCCESS) return 1;
      }
    });
    introduce(receiver, sender);
    ASSERT_TRUE(receiver.link().wait()) << "nobody dies in the middle of anything";
    kit::real_wait(static_cast<uint64_t>(round) * 777'777);
    sender.signal(SIGKILL);
    EXPECT_EQ(sender.join(), 128 + SIGKILL);
    EXPECT_TRUE(receiver.link().go());
    ASSERT_EQ(receiver.join(), 0) << "round " << round;
  }
}

// Atomics from several processes on one word, and RDMA writes beside them.
TEST(Wakeup, AtomicsOfManyProcessesAddUp) {
  constexpr size_t kWorkers = 4;
  constexpr uint64_t kAdds = 400;
  OwnFabric fabric("atomic");
  Child target([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      std::vector<std::unique_ptr<Qp>> qps;
      for (size_t i = 0; i < kWorkers; ++i) {
        qps.push_back(std::make_unique<Qp>(node));
        Address peer{};
        if (!connect_through(link, *qps.back(), &peer)) return 1;
      }
      if (!link.wait(60000)) return 1;
      uint64_t sum = 0;
      std::memcpy(&sum, node.buf.data(), sizeof sum);
      EXPECT_EQ(sum, kWorkers * kAdds);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  std::vector<std::unique_ptr<Child>> workers;
  for (size_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<Child>([](Link& link) {
      ibv_context* ctx = open_device();
      if (ctx == nullptr) return 1;
      {
        Node node(ctx);
        Qp qp(node, {.timeout = 18});
        Address peer{};
        if (!connect_through(link, qp, &peer)) return 1;
        for (uint64_t n = 0; n < kAdds; ++n) {
          EXPECT_EQ(kit::post(qp, {.length = 8,
                                   .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   .remote_addr = peer.buf,
                                   .rkey = peer.rkey,
                                   .compare_add = 1}),
                    0);
          EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_SUCCESS);
        }
      }
      EXPECT_EQ(ibv_close_device(ctx), 0);
      return 0;
    }));
    introduce(target, *workers.back());
  }
  for (auto& w : workers) EXPECT_EQ(w->join(60000), 0);
  ASSERT_TRUE(target.link().go());
  EXPECT_EQ(target.join(), 0);
}

// Datagrams that nobody takes are charged to the sender's socket; when its buffer was full of them,
// nobody at all was woken any more.
TEST(Wakeup, ReachesWhoListensBesideManyWhoTakeNothing) {
  softhca::Waker waker;
  ASSERT_EQ(waker.open(), 0);
  struct Deaf {
    softhca::WakeAddr addr{};
    softhca::WakeSocket socket;  // withdraws from the address
  };
  std::vector<std::unique_ptr<Deaf>> deaf;
  for (int i = 0; i < 500; ++i) {
    deaf.push_back(std::make_unique<Deaf>());
    ASSERT_EQ(deaf.back()->socket.open(&deaf.back()->addr), 0);
    for (int n = 0; n < 4; ++n) waker.wake(deaf.back()->addr);
  }
  softhca::WakeAddr addr{};
  softhca::WakeSocket listener;
  ASSERT_EQ(listener.open(&addr), 0);
  for (int n = 0; n < 3; ++n) {
    waker.wake(addr);
    pollfd heard{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&heard, 1, 0), 1) << n;
    listener.drain();
  }
}

// From mute() to announce() nothing is sent, so that nothing is charged.
TEST(Wakeup, NobodySendsToAMutedSocket) {
  softhca::Waker waker;
  ASSERT_EQ(waker.open(), 0);
  softhca::WakeAddr addr{};
  softhca::WakeSocket listener;
  ASSERT_EQ(listener.open(&addr), 0);
  pollfd heard{.fd = listener.fd(), .events = POLLIN, .revents = 0};
  listener.mute();
  waker.wake(addr);
  EXPECT_EQ(::poll(&heard, 1, 0), 0);
  listener.announce();
  waker.wake(addr);
  EXPECT_EQ(::poll(&heard, 1, 0), 1);
}

TEST(Wakeup, MemlockLimitIsKept) {
  OwnFabric fabric("memlock");
  Child user([](Link&) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 77;  // root may lock what it likes
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 77;
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    ibv_pd* pd = ibv_alloc_pd(ctx);
    std::vector<unsigned char> memory(2 << 20);
    constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;  // clang warns of the enum in the macro
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd, memory.data(), memory.size(), kLocalWrite), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    ibv_mr* half = ibv_reg_mr(pd, memory.data(), 600'000, kLocalWrite);
    EXPECT_NE(half, nullptr);
    EXPECT_EQ(ibv_reg_mr(pd, memory.data(), 600'000, kLocalWrite), nullptr)
        << "the limit is for all regions together";
    EXPECT_TRUE(half == nullptr || ibv_dereg_mr(half) == 0);
    half = ibv_reg_mr(pd, memory.data(), 600'000, kLocalWrite);
    EXPECT_NE(half, nullptr) << "deregistration gives back";
    EXPECT_TRUE(half == nullptr || ibv_dereg_mr(half) == 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  const int rc = user.join();
  if (rc == 77) GTEST_SKIP() << "cannot lower the limit";
  EXPECT_EQ(rc, 0);
}

TEST(Wakeup, AnotherConfigurationIsRefused) {
  OwnFabric fabric("conf");
  const std::string path = testing::TempDir() + fabric.name();
  FILE* f = std::fopen(path.c_str(), "w");
  ASSERT_NE(f, nullptr);
  std::fputs("[other0]\n", f);
  std::fclose(f);
  Child first([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    if (!link.go() || !link.wait()) return 1;
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  ASSERT_TRUE(first.link().wait());
  Child second([&path](Link& link) {
    ::setenv("SOFTHCA_CONF", path.c_str(), 1);
    int n = 0;
    ibv_device** list = ibv_get_device_list(&n);
    ibv_context* ctx = list != nullptr && n > 0 ? ibv_open_device(list[0]) : nullptr;
    EXPECT_EQ(ctx, nullptr);
    EXPECT_EQ(n, 1);
    if (list == nullptr || n != 1) return 1;
    EXPECT_STREQ(ibv_get_device_name(list[0]), "softhca0") << "the list outlives the failure";
    // Once the fabric is free, another attempt with the same list succeeds.
    if (!link.go() || !link.wait()) return 1;
    ctx = ibv_open_device(list[0]);
    EXPECT_NE(ctx, nullptr);
    ibv_free_device_list(list);
    EXPECT_TRUE(ctx == nullptr || ibv_close_device(ctx) == 0);
    return 0;
  });
  ASSERT_TRUE(second.link().wait());
  ASSERT_TRUE(first.link().go());
  EXPECT_EQ(first.join(), 0);
  ASSERT_TRUE(second.link().go());
  EXPECT_EQ(second.join(), 0);
  ::unlink(path.c_str());
}

}  // namespace
