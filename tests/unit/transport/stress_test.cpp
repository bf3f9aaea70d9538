// Threads that send and poll while queue pairs are killed under them: nothing is lost, doubled or
// out of order, and the thread sanitizer has nothing to say.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

constexpr std::uint32_t kRanks = 2;
constexpr int kSenders = 2;            // threads per rank, each with a tag of its own
constexpr std::uint64_t kLeast = 500;  // messages per thread

using Clock = std::chrono::steady_clock;

struct Stress {
  VerbsSpy spy;
  Fabric fabric;
  std::atomic<bool> kill{true}, poll{true};
  std::array<std::atomic<std::size_t>, kRanks> received{};
  std::array<std::array<std::uint64_t, kSenders>, kRanks> sent{};  // each by its thread

  explicit Stress(const conn::Params& params) : fabric(kRanks, params) {}

  void poller(std::uint32_t rank) {
    while (poll) {
      if (fabric[rank].progress() == 0) std::this_thread::yield();
      received[rank] = fabric[rank].inbox.size();
    }
  }
  void sender(std::uint32_t rank, int index) {
    std::uint64_t& count = sent[rank][static_cast<std::size_t>(index)];
    while (kill || count < kLeast) {
      const std::uint64_t seed = count * 10 + static_cast<std::uint64_t>(index);
      fabric[rank].send(1 - rank, count % 5 == 0 ? 3000 : 64, seed,
                        static_cast<std::uint8_t>(0x40 + index));
      ++count;
      if (count % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  bool recovered(std::int64_t times) {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      if (fabric[rank].stat("recoveries") < times) return false;
    return true;
  }
  // A machine under load needs longer for the same recoveries.
  void killer(int kills) {
    std::mt19937 random(7);
    const auto limit = Clock::now() + std::chrono::seconds(30);
    for (int i = 0; i < kills || (!recovered(3) && Clock::now() < limit); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto alive = spy.in_rts(IBV_QPT_RC);
      if (!alive.empty()) spy.break_qp(alive[random() % alive.size()]);
    }
    kill = false;
  }
  std::size_t expected(std::uint32_t rank) const {
    std::size_t total = 0;
    for (const std::uint64_t count : sent[1 - rank]) total += count;
    return total;
  }
};

TEST(Stress, ThreadsSendAndPollWhileQueuePairsDie) {
  Stress stress(quick());
  ASSERT_EQ(stress.fabric.error(), "");
  std::vector<std::thread> pollers, workers;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    pollers.emplace_back([&, rank] { stress.poller(rank); });
    for (int i = 0; i < kSenders; ++i)
      workers.emplace_back([&, rank, i] { stress.sender(rank, i); });
  }
  workers.emplace_back([&] { stress.killer(60); });
  for (std::thread& worker : workers) worker.join();
  const auto limit = Clock::now() + std::chrono::seconds(40);
  const auto all_there = [&] {
    return stress.received[0] == stress.expected(0) && stress.received[1] == stress.expected(1);
  };
  while (!all_there() && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stress.poll = false;
  for (std::thread& poller : pollers) poller.join();

  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const Rank& me = stress.fabric[rank];
    ASSERT_EQ(me.inbox.size(), stress.expected(rank)) << rank;
    std::array<std::uint64_t, kSenders> next{};
    for (const Inbox& message : me.inbox) {
      const auto index = static_cast<std::size_t>(message.tag - 0x40);
      ASSERT_LT(index, next.size());
      const std::uint64_t count = next[index]++;
      ASSERT_EQ(message.bytes, pattern(count % 5 == 0 ? 3000 : 64, count * 10 + index)) << count;
    }
    EXPECT_GE(me.stat("recoveries"), 3) << "the killer was at work";
    EXPECT_EQ(me.stat("dup_rx"), 0);
    EXPECT_TRUE(me.gave_up.empty());
  }
  stress.fabric.close_all();
}

}  // namespace
}  // namespace mend::test
