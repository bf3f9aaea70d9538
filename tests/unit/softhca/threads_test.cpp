// Several threads on shared objects: one SRQ that all refill, one receive CQ that all poll, a queue
// pair per thread and one that all threads post to. Meant to be run under ThreadSanitizer too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/softhca/process_kit.h"

namespace {

using kit::Child;
using kit::Link;
using kit::Node;
using kit::OwnFabric;
using kit::Qp;
using kit::QpOptions;

constexpr unsigned kThreads = 3;
constexpr uint64_t kMessages = 20000;  // per thread
constexpr uint64_t kChurnMessages = 50000;
constexpr size_t kSlot = 512;
constexpr uint32_t kBuffers = 64;

struct Message {
  uint32_t thread;
  uint32_t number;
};

// The receiving half: takes any completion, checks that its message is new, gives the buffer back.
class Receiver {
 public:
  explicit Receiver(Node& node) : node_(node) {
    for (uint32_t i = 0; i < kBuffers; ++i) EXPECT_EQ(kit::post_srq(node_, i, i * kSlot, kSlot), 0);
  }

  // Completions taken in this call.
  int poll() {
    ibv_wc wc[4];
    const int n = ibv_poll_cq(node_.cq, 4, wc);
    for (int i = 0; i < n; ++i) take(wc[i]);
    return n;
  }
  uint64_t received() const { return received_.load(); }
  bool ok() const { return ok_.load(); }

 private:
  void take(const ibv_wc& wc) {
    Message m{};
    std::memcpy(&m, node_.buf.data() + wc.wr_id * kSlot, sizeof m);
    const bool sane = wc.status == IBV_WC_SUCCESS && m.thread < kThreads && m.number < kMost;
    if (!sane || seen_[m.thread * kMost + m.number].exchange(true)) ok_ = false;
    ++received_;
    if (kit::post_srq(node_, wc.wr_id, wc.wr_id * kSlot, kSlot) != 0) ok_ = false;
  }

  static constexpr uint64_t kMost = std::max(kMessages, kChurnMessages);

  Node& node_;
  std::vector<std::atomic<bool>> seen_ = std::vector<std::atomic<bool>>(kThreads * kMost);
  std::atomic<uint64_t> received_{0};
  std::atomic<bool> ok_{true};
};

int send_one(Qp& qp, uint32_t thread, uint32_t number) {
  const Message m{thread, number};
  ibv_sge sge{reinterpret_cast<uint64_t>(&m), sizeof m, 0};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp.get(), &wr, &bad);
}

// Sends on its own QP and on the common one, polls both CQs in between.
void worker(unsigned index, Node& sender, Qp& own, Qp& common, Receiver& receiver,
            std::atomic<uint64_t>& sent, std::atomic<uint64_t>& completed) {
  for (uint32_t n = 0; n < kMessages;) {
    if (send_one(n % 2 == 0 ? own : common, index, n) == 0) {
      ++n;
      ++sent;
    }
    ibv_wc wc{};
    if (ibv_poll_cq(sender.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS) ++completed;
    (void)receiver.poll();
  }
}

int run_threads() {
  ibv_context* ctx = kit::open_device();
  if (ctx == nullptr) return 1;
  {
    Node sender(ctx, {.cqe = 4096});
    Node target(ctx, {.cqe = 4096, .bytes = kBuffers * kSlot, .srq_wr = kBuffers});
    const QpOptions from{.send_wr = 64, .inline_data = 16};
    const QpOptions to{.srq = target.srq};
    std::vector<std::unique_ptr<Qp>> senders, targets;
    for (unsigned i = 0; i <= kThreads; ++i) {
      senders.push_back(std::make_unique<Qp>(sender, from));
      targets.push_back(std::make_unique<Qp>(target, to));
      kit::connect(*senders[i], *targets[i]);
    }
    Receiver receiver(target);
    std::atomic<uint64_t> sent{0}, completed{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        worker(i, sender, *senders[i], *senders[kThreads], receiver, sent, completed);
      });
    for (std::thread& t : threads) t.join();
    for (int idle = 0; idle < 2000 && (receiver.received() < sent || completed < sent);) {
      ibv_wc wc{};
      const bool any = ibv_poll_cq(sender.cq, 1, &wc) == 1;
      if (any && wc.status == IBV_WC_SUCCESS) ++completed;
      if (receiver.poll() > 0 || any) {
        idle = 0;
      } else {
        ++idle;
        kit::real_wait(1'000'000);
      }
    }
    EXPECT_EQ(sent, kThreads * kMessages);
    EXPECT_EQ(receiver.received(), sent);
    EXPECT_EQ(completed, sent);
    EXPECT_TRUE(receiver.ok());
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

TEST(Threads, ShareQueuesWithoutLosingAnything) {
  OwnFabric fabric("threads");
  Child user([](Link&) { return run_threads(); });
  EXPECT_EQ(user.join(60000), 0);
}

// Faults that the device makes good by itself, on whatever several threads do at the same time.
TEST(Threads, ShareQueuesUnderFaults) {
  OwnFabric fabric("thrfault");
  const std::string log = testing::TempDir() + fabric.name();
  setenv("SOFTHCA_FAULTS",
         "drop:p=0.0003; drop-ack:p=0.0003:times=1; late-fetch:p=0.001:delay=50us; "
         "late-cqe:p=0.001:delay=50us; late-recv:p=0.001:delay=50us; rnr:p=0.0003; "
         "event=GID_CHANGE:period=5ms; kill-qp:period=1ms:qp=ud",
         1);
  setenv("SOFTHCA_FAULT_LOG", log.c_str(), 1);
  setenv("PMIX_RANK", "0", 1);
  Child user([](Link&) { return run_threads(); });
  EXPECT_EQ(user.join(60000), 0);
  std::ifstream in(log + ".0");
  const std::string hits{std::istreambuf_iterator<char>(in), {}};
  for (const char* kind :
       {"drop", "drop-ack", "late-fetch", "late-cqe", "late-recv", "rnr", "event"}) {
    EXPECT_NE(hits.find("\"kind\":\"" + std::string(kind) + "\""), std::string::npos) << kind;
  }
  EXPECT_EQ(hits.find("\"kill-qp\""), std::string::npos) << "there is no such queue pair";
  unlink((log + ".0").c_str());
  for (const char* name : {"SOFTHCA_FAULTS", "SOFTHCA_FAULT_LOG", "PMIX_RANK"}) unsetenv(name);
}

// A thread destroys and recreates its queue pairs while others send: what the transport above does
// all day.
TEST(Threads, QueuePairsComeAndGoBesideTraffic) {
  OwnFabric fabric("churn");
  Child user([](Link&) {
    ibv_context* ctx = kit::open_device();
    if (ctx == nullptr) return 1;
    {
      Node node(ctx, {.cqe = 4096, .bytes = kBuffers * kSlot, .srq_wr = kBuffers});
      Node other(ctx, {.cqe = 4096});
      Qp a(other, {.send_wr = 64, .inline_data = 16}), b(node, {.srq = node.srq});
      kit::connect(a, b);
      Receiver receiver(node);
      std::atomic<bool> stop{false};
      std::thread churn([&] {
        while (!stop) {
          Qp c(other), d(node, {.srq = node.srq});
          kit::connect(c, d);
          EXPECT_EQ(d.to(IBV_QPS_ERR), 0);
          EXPECT_EQ(c.to(IBV_QPS_ERR), 0);
          EXPECT_EQ(d.to(IBV_QPS_RESET), 0);
        }
      });
      uint64_t sent = 0;
      while (sent < kChurnMessages) {
        if (send_one(a, 0, static_cast<uint32_t>(sent)) == 0) ++sent;
        ibv_wc wc{};
        if (ibv_poll_cq(other.cq, 1, &wc) == 1 && wc.qp_num == a.num()) {
          EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        }
        (void)receiver.poll();
      }
      stop = true;
      churn.join();
      for (int idle = 0; idle < 1000 && receiver.received() < sent; ++idle)
        if (receiver.poll() == 0) kit::real_wait(1'000'000);
      EXPECT_EQ(receiver.received(), sent);
      EXPECT_TRUE(receiver.ok());
    }
    EXPECT_EQ(ibv_close_device(ctx), 0);
    return 0;
  });
  EXPECT_EQ(user.join(60000), 0);
}

}  // namespace
