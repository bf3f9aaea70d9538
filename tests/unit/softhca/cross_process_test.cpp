// Real processes on one fabric: traffic, death, stops, forks, separation and what is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

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

uint64_t now_ns() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(ts.tv_nsec);
}

constexpr uint32_t kSizes[] = {0, 1, 8, 16, 17, 64, 192, 256, 4096, 4097, 16384, 65536, 1'000'000};

// Sends every size, receives every size, then writes into and reads from the peer.
int ping(Link& link, bool first) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx, {.bytes = 4'000'000});
    Qp qp(node, {.timeout = 14});
    Address peer{};
    if (!connect_through(link, qp, &peer)) return 1;
    for (const uint32_t n : kSizes) {
      EXPECT_EQ(kit::post_recv(qp, n, 2'000'000, n), 0);
      const unsigned mine = first ? n : n + 1;
      const unsigned theirs = first ? n + 1 : n;
      node.fill(0, n, mine);
      EXPECT_EQ(kit::post(qp, {.wr_id = n, .length = n}), 0);
      const auto got = kit::poll(node.cq, 2, kit::real_wait);
      EXPECT_EQ(got.size(), 2U) << n;
      for (const ibv_wc& wc : got) EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << n;
      EXPECT_TRUE(node.holds(2'000'000, n, theirs)) << n;
    }
    node.fill(3'000'000, 100'000, first ? 1 : 2);
    if (!link.go() || !link.wait()) return 1;
    EXPECT_EQ(kit::post(qp, {.length = 100'000,
                             .opcode = IBV_WR_RDMA_READ,
                             .remote_addr = peer.buf + 3'000'000,
                             .rkey = peer.rkey}),
              0);
    EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_SUCCESS);
    EXPECT_TRUE(node.holds(0, 100'000, first ? 2 : 1));
    EXPECT_EQ(kit::post(qp, {.length = 100'000,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .remote_addr = peer.buf + 3'500'000,
                             .rkey = peer.rkey}),
              0);
    EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_SUCCESS);
    if (!link.go() || !link.wait()) return 1;
    EXPECT_TRUE(node.holds(3'500'000, 100'000, first ? 1 : 2));
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

TEST(CrossProcess, TwoProcessesExchangeEverySize) {
  OwnFabric fabric("pair");
  Child a([](Link& link) { return ping(link, true); });
  Child b([](Link& link) { return ping(link, false); });
  introduce(a, b);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a.link().wait());
    ASSERT_TRUE(b.link().wait());
    ASSERT_TRUE(a.link().go());
    ASSERT_TRUE(b.link().go());
  }
  EXPECT_EQ(a.join(), 0);
  EXPECT_EQ(b.join(), 0);
}

// A child that connects, posts `recvs` receives and then only sleeps.
int passive(Link& link, int recvs) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx);
    Qp qp(node);
    EXPECT_EQ(qp.to_init(), 0);
    for (int i = 0; i < recvs; ++i) EXPECT_EQ(kit::post_recv(qp, 1, 0, 64), 0);
    Address peer{};
    if (!connect_through(link, qp, &peer)) return 1;
    (void)link.wait(60000);
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

TEST(CrossProcess, KilledPeerIsARetryErrorInTime) {
  OwnFabric fabric("kill");
  Child victim([](Link& link) { return passive(link, 0); });
  Child sender([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node, {.timeout = 12, .retry_cnt = 2, .rnr_retry = 7});
      Address peer{};
      if (!connect_through(link, qp, &peer)) return 1;
      EXPECT_EQ(kit::post(qp, {.wr_id = 1}), 0);  // waits: receiver not ready
      if (!link.go() || !link.wait()) return 1;
      const uint64_t start = now_ns();
      const ibv_wc wc = kit::poll_one(node.cq, kit::real_wait, 10'000'000'000);
      EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
      EXPECT_LT(now_ns() - start, 3'000'000'000U);
      EXPECT_EQ(kit::post(qp, {.wr_id = 2}), 0);
      EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_WR_FLUSH_ERR);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  introduce(victim, sender);
  ASSERT_TRUE(sender.link().wait());
  victim.signal(SIGKILL);
  EXPECT_EQ(victim.join(), 128 + SIGKILL);
  ASSERT_TRUE(sender.link().go());
  EXPECT_EQ(sender.join(), 0);
}

TEST(CrossProcess, StoppedPeerStillReceives) {
  OwnFabric fabric("stop");
  Child victim([](Link& link) { return passive(link, 4); });
  Child sender([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node);
      Address peer{};
      if (!connect_through(link, qp, &peer) || !link.go() || !link.wait()) return 1;
      for (uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(kit::post(qp, {.wr_id = i, .length = 64}), 0);
        EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_SUCCESS);
      }
      EXPECT_EQ(kit::post(qp, {.length = 8,
                               .opcode = IBV_WR_RDMA_READ,
                               .remote_addr = peer.buf,
                               .rkey = peer.rkey}),
                0);
      EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  introduce(victim, sender);
  ASSERT_TRUE(sender.link().wait());
  victim.stop();
  ASSERT_TRUE(sender.link().go());
  EXPECT_EQ(sender.join(), 0);
  victim.signal(SIGCONT);
  ASSERT_TRUE(victim.link().go());
  EXPECT_EQ(victim.join(), 0);
}

TEST(CrossProcess, ForkedChildIsInertAndHarmless) {
  OwnFabric fabric("fork");
  Child user([](Link&) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qa(node), qb(node);
      kit::connect(qa, qb);
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        ibv_wc wc{};
        (void)ibv_poll_cq(node.cq, 1, &wc);
        (void)kit::post(qa, {});
        (void)kit::post_recv(qb, 1, 0, 64);
        (void)qa.to(IBV_QPS_ERR);
        ::exit(0);  // runs the library's exit handlers too
      }
      int status = 0;
      EXPECT_EQ(::waitpid(grandchild, &status, 0), grandchild);
      EXPECT_TRUE(WIFEXITED(status)) << "the forked child crashed with signal " << WTERMSIG(status);
      EXPECT_EQ(qa.state(), IBV_QPS_RTS) << "the forked child touched the parent's queue pair";
      EXPECT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
      EXPECT_EQ(kit::post(qa, {}), 0);
      EXPECT_EQ(kit::poll(node.cq, 2, kit::real_wait).size(), 2U);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  EXPECT_EQ(user.join(), 0);
}

// Leaves everything open, as programs do that just exit.
int attach_and_wait(Link& link) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  static Node* const node = new Node(ctx);
  static Qp* const qp = new Qp(*node);
  EXPECT_EQ(qp->to_init(), 0);
  if (!link.put(qp->num()) || !link.wait()) return 1;
  return 0;
}

TEST(CrossProcess, SegmentsArePrivateToTheUser) {
  OwnFabric fabric("mode");
  Child a(attach_and_wait);
  uint32_t qpn = 0;
  ASSERT_TRUE(a.link().get(qpn));
  EXPECT_GE(fabric.files(), 2);
  const std::string ls = "ls -l " + fabric.path() + "* | grep -vc '^-rw-------'";
  FILE* out = ::popen(ls.c_str(), "r");
  ASSERT_NE(out, nullptr);
  char line[64] = "";
  ASSERT_NE(std::fgets(line, sizeof line, out), nullptr);
  ::pclose(out);
  EXPECT_STREQ(line, "0\n");
  ASSERT_TRUE(a.link().go());
  EXPECT_EQ(a.join(), 0);
  EXPECT_EQ(fabric.files(), 0) << "the last one cleans up, even without closing its objects";
}

TEST(CrossProcess, StaleSegmentsAreReplaced) {
  OwnFabric fabric("stale");
  {
    Child a(attach_and_wait), b(attach_and_wait);
    uint32_t qpn = 0;
    ASSERT_TRUE(a.link().get(qpn));
    ASSERT_TRUE(b.link().get(qpn));
    a.signal(SIGKILL);
    b.signal(SIGKILL);
    EXPECT_EQ(a.join(), 128 + SIGKILL);
    EXPECT_EQ(b.join(), 128 + SIGKILL);
  }
  EXPECT_GE(fabric.files(), 3) << "nobody was left to clean up";
  Child a([](Link& link) { return ping(link, true); });
  Child b([](Link& link) { return ping(link, false); });
  introduce(a, b);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a.link().wait());
    ASSERT_TRUE(b.link().wait());
    ASSERT_TRUE(a.link().go());
    ASSERT_TRUE(b.link().go());
  }
  EXPECT_EQ(a.join(), 0);
  EXPECT_EQ(b.join(), 0);
}

TEST(CrossProcess, GarbageInPlaceOfTheSegmentIsReplaced) {
  OwnFabric fabric("garbage");
  FILE* f = std::fopen(fabric.path().c_str(), "w");
  ASSERT_NE(f, nullptr);
  for (int i = 0; i < 100000; ++i) std::fputs("garbage ", f);
  std::fclose(f);
  ::chmod(fabric.path().c_str(), 0600);
  Child a(attach_and_wait);
  uint32_t qpn = 0;
  ASSERT_TRUE(a.link().get(qpn));
  ASSERT_TRUE(a.link().go());
  EXPECT_EQ(a.join(), 0);
}

TEST(CrossProcess, FabricsNeverMeet) {
  OwnFabric one("one");
  Child a([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    const std::unique_ptr<ibv_context, int (*)(ibv_context*)> closer(ctx, ibv_close_device);
    Node node(ctx);
    std::vector<std::unique_ptr<Qp>> qps;  // so that the last number is unknown to the other fabric
    for (int i = 0; i < 5; ++i) qps.push_back(std::make_unique<Qp>(node));
    Qp& last = *qps.back();
    EXPECT_EQ(last.to_init(), 0);
    EXPECT_EQ(kit::post_recv(last, 1, 0, 64), 0);
    uint32_t peer = 0;
    if (!link.put(last.num()) || !link.get(peer)) return 1;
    EXPECT_EQ(last.to_rtr(peer, kit::gid_of(ctx, 0)), 0);
    if (!link.go() || !link.wait()) return 1;
    EXPECT_TRUE(kit::quiet(node.cq, kit::real_wait, 1'000'000)) << "heard from another fabric";
    return 0;
  });
  uint32_t in_one = 0;
  ASSERT_TRUE(a.link().get(in_one));
  OwnFabric two("two");
  Child b([in_one](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node, {.timeout = 10, .retry_cnt = 1});
      EXPECT_NE(qp.num(), in_one);
      if (!link.put(qp.num()) || !link.wait()) return 1;
      EXPECT_EQ(qp.to_init(), 0);
      EXPECT_EQ(qp.to_rtr(in_one, kit::gid_of(ctx, 0)), 0);
      EXPECT_EQ(qp.to_rts(), 0);
      EXPECT_EQ(kit::post(qp, {}), 0);
      EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_RETRY_EXC_ERR);
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  uint32_t in_two = 0;
  ASSERT_TRUE(b.link().get(in_two));
  ASSERT_TRUE(a.link().put(in_two));
  ASSERT_TRUE(a.link().wait());
  ASSERT_TRUE(b.link().go());
  EXPECT_EQ(b.join(), 0);
  ASSERT_TRUE(a.link().go());
  EXPECT_EQ(a.join(), 0);
}

TEST(CrossProcess, FullSharedMemoryIsAnErrorNotACrash) {
  OwnFabric fabric("full");
  Child user([](Link&) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
      return 77;
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    std::vector<ibv_cq*> cqs;
    ibv_cq* cq = nullptr;
    while (cqs.size() < 100 && (cq = ibv_create_cq(ctx, 4000, nullptr, nullptr, 0)) != nullptr)
      cqs.push_back(cq);
    EXPECT_LT(cqs.size(), 100U);
    EXPECT_EQ(errno, ENOMEM);
    for (ibv_cq* each : cqs) EXPECT_EQ(ibv_destroy_cq(each), 0);
    {
      Node node(ctx);
      Qp qa(node), qb(node);
      kit::connect(qa, qb);
      EXPECT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
      EXPECT_EQ(kit::post(qa, {}), 0);
      EXPECT_EQ(kit::poll(node.cq, 2, kit::real_wait).size(), 2U) << "memory came back";
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  const int rc = user.join();
  if (rc == 77) GTEST_SKIP() << "needs the right to mount a small /dev/shm";
  EXPECT_EQ(rc, 0);
}

TEST(CrossProcess, FullFromTheStartIsNoDevice) {
  OwnFabric fabric("full0");
  Child user([](Link&) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=8k") != 0)
      return 77;
    int n = 0;
    ibv_device** list = ibv_get_device_list(&n);
    ibv_context* ctx = list != nullptr && n > 0 ? ibv_open_device(list[0]) : nullptr;
    EXPECT_EQ(ctx, nullptr);
    if (list != nullptr) ibv_free_device_list(list);
    return 0;
  });
  const int rc = user.join();
  if (rc == 77) GTEST_SKIP() << "needs the right to mount a small /dev/shm";
  EXPECT_EQ(rc, 0);
}

// A ring of 64 processes: each sends to the next and hears from the one before.
TEST(CrossProcess, SixtyFourProcesses) {
  constexpr size_t kCount = 64;
  OwnFabric fabric("many");
  std::vector<std::unique_ptr<Child>> all;
  for (size_t i = 0; i < kCount; ++i) {
    all.push_back(std::make_unique<Child>([i](Link& link) {
      ibv_context* ctx = open_device();
      if (ctx == nullptr) return 1;
      {
        Node node(ctx);
        Qp to_next(node, {.timeout = 18}), from_previous(node, {.timeout = 18});
        const uint32_t mine[2] = {to_next.num(), from_previous.num()};
        uint32_t theirs[2] = {};  // the next one's from_previous, the previous one's to_next
        if (!link.put(mine) || !link.get(theirs, 60000)) return 1;
        const ibv_gid gid = kit::gid_of(ctx, 0);
        EXPECT_EQ(to_next.to_init() | from_previous.to_init(), 0);
        EXPECT_EQ(kit::post_recv(from_previous, 1, 4096, 4096), 0);
        EXPECT_EQ(to_next.to_rtr(theirs[0], gid) | from_previous.to_rtr(theirs[1], gid), 0);
        EXPECT_EQ(to_next.to_rts() | from_previous.to_rts(), 0);
        if (!link.go() || !link.wait(60000)) return 1;
        node.fill(0, 4096, static_cast<unsigned>(i));
        EXPECT_EQ(kit::post(to_next, {.wr_id = 2, .length = 4096}), 0);
        const auto got = kit::poll(node.cq, 2, kit::real_wait, 30'000'000'000);
        EXPECT_EQ(got.size(), 2U);
        for (const ibv_wc& wc : got) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_TRUE(node.holds(4096, 4096, static_cast<unsigned>((i + kCount - 1) % kCount)));
        if (!link.go() || !link.wait(60000)) return 1;
      }
      EXPECT_EQ(ibv_close_device(ctx), 0);
      return 0;
    }));
  }
  struct Two {
    uint32_t q[2];
  };
  std::vector<Two> numbers(kCount);
  for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(all[i]->link().get(numbers[i], 60000)) << i;
  for (size_t i = 0; i < kCount; ++i) {
    const Two theirs{{numbers[(i + 1) % kCount].q[1], numbers[(i + kCount - 1) % kCount].q[0]}};
    ASSERT_TRUE(all[i]->link().put(theirs));
  }
  for (int step = 0; step < 2; ++step) {
    for (auto& c : all) ASSERT_TRUE(c->link().wait(60000));
    for (auto& c : all) ASSERT_TRUE(c->link().go());
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(all[i]->join(), 0) << i;
}

}  // namespace
