// Submission, progress, acknowledgement and fences from several threads at once (run it under TSan
// too).
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <thread>

#include "ops/spin_lock.h"
#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

constexpr int kThreads = 4;
constexpr int kEach = 500;

TEST(Threads, SubmittersAndPollersKeepOrderPerThread) {
  Pair pair({.window = 16});
  pair.open();
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      while (!stop.load()) {
        pair.a.progress();
        pair.b.progress();
        pair.a.channel->check_ack_cell();
        pair.b.channel->write_ack_if_owed(true);  // the service thread's timer
      }
    });
  }
  std::vector<std::thread> senders;
  for (int id = 0; id < kThreads; ++id) {
    senders.emplace_back([&, id] {
      for (int i = 0; i < kEach; ++i) {
        pair.a.send(std::to_string(i), static_cast<std::uint8_t>(id));
      }
    });
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
  while (!pair.a.channel->quiet() || !pair.b.channel->quiet()) {
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& poller : pollers) {
    poller.join();
  }
  std::map<int, int> next;
  ASSERT_EQ(pair.b.received.size(), static_cast<std::size_t>(kThreads * kEach));
  for (const Message& message : pair.b.received) {
    EXPECT_EQ(message.text, std::to_string(next[message.tag]++));
  }
}

// A device may take long to post. The service thread waited for it, in turns with its own rank
// where that is bound to one core.
TEST(Threads, TheAckTimerDoesNotWaitForASender) {
  Pair pair;
  pair.open();
  std::future<ops::AckTick> tick;
  std::future_status found = std::future_status::deferred;
  pair.fabric.on_post = [&] {
    if (tick.valid()) return;
    tick = std::async(std::launch::async, [&] { return pair.a.channel->ack_tick(); });
    found = tick.wait_for(std::chrono::seconds(2));
  };
  pair.a.send("x");
  EXPECT_EQ(found, std::future_status::ready);
  EXPECT_EQ(tick.get(), ops::AckTick::Receiving);
  // But one that does nothing else does not keep it away for ever.
  int away = 0;
  pair.fabric.on_post = [&] {
    if (tick.valid()) return;
    do {
      tick = std::async(std::launch::async, [&] { return pair.a.channel->ack_tick(); });
      found = tick.wait_for(std::chrono::milliseconds(500));
    } while (found == std::future_status::ready && ++away < 100);
  };
  pair.a.send("y");
  EXPECT_EQ(found, std::future_status::timeout);
  EXPECT_EQ(away, 31) << "32 in a row, with the one above";
  tick.wait();
  pair.fabric.on_post = nullptr;
  pair.pump();
  EXPECT_EQ(pair.b.received.size(), 2u);
}

// Of a thread of this process; 0 if there is none of that number.
long voluntary_switches(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  std::string word;
  long count = 0;
  while (status >> word)
    if (word == "voluntary_ctxt_switches:") status >> count;
  return count;
}

std::chrono::microseconds cpu_time(const rusage& usage) {
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Where waiter and holder share a core, the waiter yielded and was chosen again, until its time
// slice was over.
TEST(Threads, ALockIsWaitedForAsleep) {
  ops::SpinLock lock;
  std::atomic<bool> waiting{false};
  lock.lock();
  pid_t waiter_id = 0;
  rusage before{}, after{};
  std::thread waiter([&] {
    waiter_id = gettid();
    getrusage(RUSAGE_THREAD, &before);
    waiting = true;
    lock.lock();
    lock.unlock();
    getrusage(RUSAGE_THREAD, &after);
  });
  while (!waiting) std::this_thread::yield();
  // On a busy machine the yields before the first sleep take a time slice each.
  const auto begun = std::chrono::steady_clock::now();
  while (voluntary_switches(waiter_id) < before.ru_nvcsw + 20 &&
         std::chrono::steady_clock::now() - begun < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  lock.unlock();
  waiter.join();
  EXPECT_GE(after.ru_nvcsw, before.ru_nvcsw + 20) << "did not give up its core";
  EXPECT_LT(cpu_time(after) - cpu_time(before),
            (std::chrono::steady_clock::now() - begun) / 2 + std::chrono::milliseconds(1));
}

// The worker thread fences and reconnects while the application submits and polls.
TEST(Threads, RecoveriesUnderLoad) {
  Pair pair({.window = 8, .max_inline = 0});
  pair.open();
  std::atomic<bool> stop{false};
  std::uint64_t counter = 0;
  std::atomic<int> amo_done{0};
  std::vector<ops::AmoCall> calls(200);
  std::thread poller([&] {
    while (!stop.load()) {
      pair.a.progress();
      pair.b.progress();
    }
  });
  std::thread sender([&] {
    for (int i = 0; i < 1000; ++i) {
      pair.a.send(std::to_string(i));
      if (i % 5 == 0) {
        ops::AmoCall& call = calls[static_cast<std::size_t>(i / 5)];
        call.remote = reinterpret_cast<std::uint64_t>(&counter);
        call.operand = 1;
        call.user[0] = &amo_done;
        call.done = [](ops::AmoCall& done) { ++*static_cast<std::atomic<int>*>(done.user[0]); };
        pair.a.channel->atomic(call);
      }
    }
  });
  std::uint64_t recoveries = 0;
  for (; recoveries < 30; ++recoveries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
    pair.recover();
  }
  sender.join();
  while (!pair.a.channel->quiet() || !pair.b.channel->quiet() ||
         amo_done.load() != static_cast<int>(calls.size())) {
    std::this_thread::yield();
  }
  stop = true;
  poller.join();
  ASSERT_EQ(pair.b.received.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(pair.b.received[static_cast<std::size_t>(i)].text, std::to_string(i));
  }
  EXPECT_EQ(counter, calls.size());
  EXPECT_EQ(pair.a.channel->stats().dup_rx + pair.b.channel->stats().dup_rx, 0u);
  EXPECT_EQ(pair.b.recv_pool->ledger().posted, pair.b.recv_pool->ledger().depth);
}

TEST(Threads, FragPoolIsShared) {
  Pair pair;
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&] {
      std::vector<ops::Frag*> mine;
      for (int i = 0; i < 2000; ++i) {
        mine.push_back(pair.a.frags->get());
        if (mine.size() == 20) {
          for (ops::Frag* frag : mine) {
            ops::release_hold(*frag, ops::kHoldUser);
          }
          mine.clear();
        }
      }
      for (ops::Frag* frag : mine) {
        ops::release_hold(*frag, ops::kHoldUser);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const ops::FragPoolCounters counters = pair.a.frags->counters();
  EXPECT_EQ(counters.live, 0u);
  EXPECT_EQ(counters.chunks, static_cast<std::uint64_t>(pair.a.chunks_registered) - 1);
}

}  // namespace
}  // namespace mend::test
