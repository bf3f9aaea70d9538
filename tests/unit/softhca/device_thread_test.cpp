// The device's thread runs while the process has a device open, and only then. Real time, real
// processes.
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "softhca/engine/context.h"
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

// One that has been joined is listed until the kernel has put it away.
bool exiting(const std::string& task) {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING
  std::ifstream file(task + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return true;  // gone by now
  std::istringstream rest(stat.substr(name_end + 1));
  std::string state, skipped;
  unsigned long flags = 0;
  rest >> state;
  for (int field = 0; field < 5; ++field) rest >> skipped;
  rest >> flags;
  return state == "Z" || state == "X" || (flags & kExiting) != 0;
}

// Threads of this process that the device named.
int device_threads() {
  int count = 0;
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return -1;
  while (const dirent* entry = ::readdir(tasks)) {
    const std::string task = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream comm(task + "/comm");
    std::string name;
    if (std::getline(comm, name) && name == "softhca" && !exiting(task)) ++count;
  }
  ::closedir(tasks);
  return count;
}

// A new thread names itself as soon as it runs.
int device_threads_soon(int wanted) {
  for (int tries = 0; tries < 2000 && device_threads() != wanted; ++tries)
    kit::real_wait(1'000'000);
  return device_threads();
}

int close(ibv_context* ctx) { return ctx == nullptr ? ENODEV : ibv_close_device(ctx); }

TEST(DeviceThread, RunsFromTheFirstContextToTheLast) {
  OwnFabric fabric("thread");
  Child child([](Link&) {
    EXPECT_EQ(device_threads(), 0);
    for (int round = 0; round < 3; ++round) {
      ibv_context* first = open_device();
      EXPECT_EQ(device_threads_soon(1), 1);
      ibv_context* second = open_device();
      EXPECT_EQ(close(first), 0);
      EXPECT_EQ(device_threads_soon(1), 1);
      EXPECT_EQ(close(second), 0);
      EXPECT_EQ(device_threads(), 0) << "round " << round;  // at once: it was joined
    }
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(DeviceThread, OpeningAndClosingInManyThreadsLeavesItAsItShouldBe) {
  OwnFabric fabric("threads");
  Child child([](Link&) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::jthread> users;
      for (int user = 0; user < 4; ++user)
        users.emplace_back([] {
          for (int i = 0; i < 25; ++i) EXPECT_EQ(close(open_device()), 0);
        });
      ibv_context* kept = open_device();
      users.clear();
      EXPECT_EQ(device_threads_soon(1), 1) << "a context is open";
      EXPECT_EQ(close(kept), 0);
      EXPECT_EQ(device_threads(), 0);
    }
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
}

// Closing the last context waited for ever when the wake-up that was to end the thread was not
// sent: the socket it came from was charged with what others had never taken.
TEST(DeviceThread, EndsBesideManyWhoTakeNoWakeUps) {
  OwnFabric fabric("deaf");
  Child child([](Link&) {
    struct Deaf {
      softhca::WakeAddr addr{};
      softhca::WakeSocket socket;  // withdraws from the address
    };
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    const softhca::Waker& waker = softhca::context_of(ctx)->proc->waker();
    std::vector<std::unique_ptr<Deaf>> deaf;
    for (int i = 0; i < 500; ++i) {
      deaf.push_back(std::make_unique<Deaf>());
      EXPECT_EQ(deaf.back()->socket.open(&deaf.back()->addr), 0);
      for (int n = 0; n < 4; ++n) waker.wake(deaf.back()->addr);
    }
    EXPECT_EQ(device_threads_soon(1), 1);
    kit::real_wait(10'000'000);  // it sleeps
    EXPECT_EQ(close(ctx), 0);
    EXPECT_EQ(device_threads(), 0);
    return 0;
  });
  EXPECT_EQ(child.join(), 0) << "it waits for its thread";
}

// At rest it has no address, and nobody's wake-ups heap up: what it missed it finds by looking.
TEST(DeviceThread, LooksWhenItRunsOnAtWhatItMissedAtRest) {
  OwnFabric fabric("missed");
  Child child([](Link&) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    softhca::Process& proc = *softhca::context_of(ctx)->proc;
    for (int round = 0; round < 20; ++round) {
      EXPECT_NE(proc.hdr()->device_thread.length, 0U);
      EXPECT_EQ(close(ctx), 0);
      EXPECT_EQ(proc.hdr()->device_thread.length, 0U);
      proc.poke(proc.self());
      EXPECT_TRUE(proc.needs_service());
      ctx = open_device();
      if (ctx == nullptr) return 1;
      for (int tries = 0; tries < 2000 && proc.needs_service(); ++tries) kit::real_wait(1'000'000);
      EXPECT_FALSE(proc.needs_service()) << "round " << round;
    }
    EXPECT_EQ(close(ctx), 0);
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
}

// Whoever started the thread held a mutex while it waited for the one that joined it; the thread
// waited for a queue pair, and that for the mutex. Contexts come and go here as the device sees it,
// without the rest of opening and closing.
TEST(DeviceThread, StartsAndRestsBesideSendsThatWait) {
  OwnFabric fabric("three");
  Child peer([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node);  // takes nothing: receiver not ready
      Address other{};
      if (!connect_through(link, qp, &other) || !link.wait(60000)) return 1;
    }
    EXPECT_EQ(close(ctx), 0);
    return 0;
  });
  Child child([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx);
      Qp qp(node, {.rnr_retry = 7});
      Address other{};
      if (!connect_through(link, qp, &other)) return 1;
      softhca::Process& proc = *softhca::context_of(ctx)->proc;
      std::atomic<bool> stop{false};
      std::jthread opens([&] {
        while (!stop) proc.start_device_thread();
      });
      std::jthread closes([&] {
        while (!stop) proc.rest_device_thread();
      });
      for (int round = 0; round < 50000; ++round) {
        EXPECT_EQ(kit::post(qp, {}), 0);
        EXPECT_EQ(qp.to(IBV_QPS_RESET), 0);
        EXPECT_EQ(qp.to_init(), 0);
        EXPECT_EQ(qp.to_rtr(other.qpn, kit::gid_of(ctx, 0)), 0);
        EXPECT_EQ(qp.to_rts(), 0);
      }
      stop = true;
    }
    EXPECT_EQ(close(ctx), 0);
    return link.go() ? 0 : 1;
  });
  introduce(peer, child);
  EXPECT_TRUE(child.link().wait(60000)) << "they wait for each other";
  EXPECT_EQ(child.join(), 0);
  ASSERT_TRUE(peer.link().go());
  EXPECT_EQ(peer.join(), 0);
}

// A victim that waits to be killed; the other has closed its device before, and opened it again.
TEST(DeviceThread, WorksAfterARest) {
  OwnFabric fabric("rested");
  Child victim([](Link& link) {
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    Node node(ctx);
    Qp qp(node);
    Address peer{};
    if (!connect_through(link, qp, &peer)) return 1;
    while (true) kit::real_wait(1'000'000'000);
  });
  Child sender([](Link& link) {
    EXPECT_EQ(close(open_device()), 0);
    ibv_context* ctx = open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx, {.channel = true});
      Qp qp(node, {.timeout = 12, .retry_cnt = 2, .rnr_retry = 7});
      EXPECT_EQ(ibv_req_notify_cq(node.cq, 0), 0);
      Address peer{};
      if (!connect_through(link, qp, &peer)) return 1;
      EXPECT_EQ(kit::post(qp, {.wr_id = 1}), 0);  // waits: receiver not ready
      if (!link.go()) return 1;
      // Nobody polls: it is for the thread to see the death, retry, give up and wake this one.
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      EXPECT_EQ(ibv_get_cq_event(node.channel, &cq, &context), 0);
      ibv_ack_cq_events(cq, 1);
      EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait).status, IBV_WC_RETRY_EXC_ERR);
    }
    EXPECT_EQ(close(ctx), 0);
    return 0;
  });
  introduce(victim, sender);
  ASSERT_TRUE(sender.link().wait());
  victim.signal(SIGKILL);
  EXPECT_EQ(victim.join(), 128 + SIGKILL);
  EXPECT_EQ(sender.join(), 0);
}

}  // namespace
