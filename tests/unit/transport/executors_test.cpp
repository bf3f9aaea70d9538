// What the executors of a machine promise, and what connections make of one that gets no processor.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "plugin/conn/host.h"
#include "plugin/conn/worker.h"
#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

using std::chrono::milliseconds;

TEST(Worker, DropsWhatIsQueuedWhenItIsStopped) {
  std::atomic<bool> running{false};
  std::atomic<int> ran{0};
  conn::Worker worker;
  for (int i = 0; i < 100; ++i)
    worker.submit([&] {
      running = true;
      ++ran;
      std::this_thread::sleep_for(milliseconds(20));
    });
  while (!running) std::this_thread::yield();
  worker.stop();
  EXPECT_LT(ran, 100) << "MPI_Finalize would wait for all of them";
}

// Jobs wait while `held`; each begins when it is let go.
class HeldQueue : public conn::WorkQueue {
 public:
  HeldQueue(std::unique_ptr<conn::WorkQueue> real, const std::atomic<bool>& held)
      : real_(std::move(real)), held_(held) {}
  void submit(std::function<void()> job) override {
    real_->submit([this, run = std::move(job)] {
      while (held_) std::this_thread::sleep_for(milliseconds(1));
      run();
    });
  }
  void stop() override { real_->stop(); }

 private:
  std::unique_ptr<conn::WorkQueue> real_;
  const std::atomic<bool>& held_;
};

class HeldHost : public conn::Host {
 public:
  Result<std::unique_ptr<conn::Service>> make_service() override {
    return conn::this_machine().make_service();
  }
  std::unique_ptr<conn::WorkQueue> make_worker() override {
    return std::make_unique<HeldQueue>(conn::this_machine().make_worker(), held);
  }
  std::uint64_t random_seed() override { return conn::this_machine().random_seed(); }
  std::atomic<bool> held{false};
};

// A completion is lost, so the queue pair is probed; the probe's completion is there, but neither
// the application nor the worker comes to look for longer than a probe may take.
TEST(Starved, AProbeThatNobodyHadTimeToLookForHasNotFailed) {
  HeldHost host;
  VerbsSpy spy;
  Fabric fabric(2, quick(), true, &host);
  ASSERT_EQ(fabric.error(), "");
  for (std::uint32_t i = 0; i < 2; ++i) fabric[i].send(1 - i, 8, i);
  ASSERT_TRUE(fabric.until([&] {
    return fabric[0].inbox.size() == 1 && fabric[1].inbox.size() == 1 &&
           fabric[0].transport->flushed() && fabric[1].transport->flushed();
  }));
  PagePut put(fabric);
  spy.swallow(1);
  put.submit();
  // Its completion is taken and swallowed now, by the application.
  ASSERT_TRUE(fabric.until([&] { return spy.swallowed() == 1; }));
  host.held = true;
  std::this_thread::sleep_for(milliseconds(6000));  // stale after 2 s, the probe after 4
  host.held = false;
  EXPECT_TRUE(fabric.until([&] { return put.done(); }, 15000));
  EXPECT_TRUE(put.arrived());
  EXPECT_GE(fabric[0].stat("hb_false_alarm"), 1) << "the probe found the queue pair alive";
  for (std::uint32_t i = 0; i < 2; ++i) EXPECT_EQ(fabric[i].stat("recoveries"), 0);
  fabric.close_all();
}

}  // namespace
}  // namespace mend::test
