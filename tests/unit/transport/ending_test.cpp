// How connections end: given up by name, closed although the peer has gone, with nothing left over;
// and what must stay bounded while queue pairs come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "plugin/conn/device_choice.h"
#include "plugin/conn/host.h"
#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Ending, AProcessThatVanishedIsGivenUpOnceWithAllThatAPersonNeeds) {
  conn::Params params = quick();
  params.max_outage_s = 1;
  Fabric fabric(3, params);
  ASSERT_EQ(fabric.error(), "");
  fabric[0].send(1, 8, 1);
  fabric[0].send(2, 8, 1);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() + fabric[2].inbox.size() == 2; }));
  fabric[1].transport.reset();  // no goodbye
  const auto start = Clock::now();
  fabric[0].send(1, 8, 2);
  fabric.until_by(
      {0}, [&] { return !fabric[0].gave_up.empty(); }, 8000);
  ASSERT_EQ(fabric[0].gave_up.size(), 1u);
  const auto took = Clock::now() - start;
  EXPECT_GE(took, std::chrono::milliseconds(900));
  EXPECT_LT(took, std::chrono::seconds(3)) << "max_outage_s and at most two seconds more";
  const std::string& text = fabric[0].gave_up[0];
  for (const char* part : {"connection 0 -> 1 on here", "rail ", ":1", "GID ", "QP ",
                           "no connection within max_outage_s", " s after the trouble began",
                           "last completion: ", "Check the link", "btl_mend_max_outage_s"})
    EXPECT_TRUE(contains(text, part)) << part << " in: " << text;
  // Once, and nobody else is concerned.
  fabric[0].send(1, 8, 3);
  fabric.until_by(
      {0, 2}, [] { return false; }, 300);
  EXPECT_EQ(fabric[0].gave_up.size(), 1u);
  fabric[0].send(2, 8, 4);
  EXPECT_TRUE(fabric.until_by(
      {0, 2}, [&] { return fabric[2].inbox.size() == 2; }, 5000));
}

// What was sent to a peer that has said goodbye will never be acknowledged, and is not waited for.
TEST(Ending, CloseDoesNotWaitForAPeerThatSaidGoodbye) {
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  fabric[0].send(1, 8, 1);
  ASSERT_TRUE(fabric.until([&] {
    return fabric[1].inbox.size() == 1 && fabric[0].transport->flushed() &&
           fabric[1].transport->flushed();
  }));
  fabric[1].transport->close();
  fabric[0].send(1, 8, 2);
  const auto start = Clock::now();
  fabric[0].transport->close();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5)) << "max_outage_s is 120";
  EXPECT_TRUE(fabric[0].gave_up.empty());
}

// Its end was known when it was added: nobody tries to reach it, and nothing is said.
TEST(Ending, WhatIsSubmittedToAProcessThatEndedBeforeItWasUsedFails) {
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  fabric[0].transport->give_up_peer(fabric[0].peers.at(1));
  auto source = pattern(64, 3);
  conn::Region local, remote;
  ASSERT_TRUE(fabric[0].transport->register_region(source.data(), 64, kAllAccess, local));
  int done = 0;
  ops::RdmaOp put = transfer(ops::RdmaOp::Dir::Put, source, local, source.data(), remote, done);
  fabric[0].to(1).rdma(put);
  fabric[0].send(1, 8, 1);
  EXPECT_TRUE(fabric.until([&] { return done == 1 && fabric[0].transport->flushed(); }, 5000));
  EXPECT_TRUE(put.failed);
  EXPECT_TRUE(fabric[1].inbox.empty());
  EXPECT_TRUE(fabric[1].unknown.empty());
  EXPECT_EQ(fabric[0].stat("connections"), 0);
  EXPECT_TRUE(fabric[0].gave_up.empty());
  fabric[0].transport->deregister_region(local);
}

TEST(Ending, AnOrderlyEndLeavesNoObject) {
  VerbsSpy spy;
  const LiveObjects before = spy.live();
  {
    Fabric fabric(3, quick());
    ASSERT_EQ(fabric.error(), "");
    for (std::uint32_t a = 0; a < 3; ++a)
      for (std::uint32_t b = 0; b < 3; ++b)
        if (a != b) fabric[a].send(b, 20000, a);
    ASSERT_TRUE(fabric.until([&] {
      return fabric[0].inbox.size() == 2 && fabric[1].inbox.size() == 2 &&
             fabric[2].inbox.size() == 2;
    }));
    EXPECT_NE(spy.live(), before);
    fabric.close_all();
  }
  EXPECT_EQ(spy.live(), before) << spy.live().text();
}

// An executor that counts the timers it has been given and not yet run.
class CountingService : public conn::Service {
 public:
  CountingService(std::unique_ptr<conn::Service> real, std::atomic<int>& pending)
      : real_(std::move(real)), pending_(pending) {}
  Result<void> watch(int fd, Task on_readable) override {
    return real_->watch(fd, std::move(on_readable));
  }
  void unwatch(int fd) override { real_->unwatch(fd); }
  void post(Task task) override { real_->post(std::move(task)); }
  void arm(conn::TimeNs deadline, Task task) override {
    ++pending_;
    real_->arm(deadline, [this, run = std::move(task)] {
      --pending_;
      run();
    });
  }
  void stop() override { real_->stop(); }

 private:
  std::unique_ptr<conn::Service> real_;
  std::atomic<int>& pending_;
};

class CountingHost : public conn::Host {
 public:
  Result<std::unique_ptr<conn::Service>> make_service() override {
    auto real = conn::this_machine().make_service();
    if (!real) return tl::unexpected(real.error());
    return std::make_unique<CountingService>(std::move(*real), pending);
  }
  std::unique_ptr<conn::WorkQueue> make_worker() override {
    return conn::this_machine().make_worker();
  }
  std::uint64_t random_seed() override { return conn::this_machine().random_seed(); }
  std::atomic<int> pending{0};
};

TEST(Ending, AStormOfFlapsDoesNotPileUpTimers) {
  VerbsSpy spy;
  CountingHost host;
  conn::Params params = quick();
  params.qp_linger_ms = 60000;  // every parked queue pair waits; their reaping needs one timer
  constexpr int kRounds = 100, kSettled = 20;
  Fabric fabric(2, params, true, &host);
  ASSERT_EQ(fabric.error(), "");
  std::size_t count = 0;
  int settled = 0;
  for (int round = 0; round < kRounds; ++round) {
    fabric[0].send(1, 8, 1);
    ++count;
    ASSERT_TRUE(fabric.until([&] {
      return fabric[1].inbox.size() == count && fabric[0].transport->flushed() &&
             fabric[1].transport->flushed();
    })) << round;
    for (ibv_qp* qp : spy.in_rts(IBV_QPT_RC)) spy.break_qp(qp);
    // Long enough for the pool to be looked at between two breaks.
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    if (round == kSettled) settled = host.pending;
  }
  EXPECT_GE(spy.created_qps(), 2u * kRounds) << "the queue pairs were replaced";
  // Heartbeat timers that were moved still lie about for one interval.
  const int few = (kRounds - kSettled) / 4;
  EXPECT_TRUE(fabric.until([&] { return host.pending <= settled + few; })) << host.pending;
  fabric.close_all();
}

}  // namespace
}  // namespace mend::test
