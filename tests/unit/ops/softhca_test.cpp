// The data path on the embedded device in its in-process mode: real QPs with every rule of the
// device enforced, a port that goes down in the middle of traffic, the fence by hand, and the
// replay on new QPs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace mend::test {
namespace {

using ops::AmoCall;
using ops::RdmaOp;

struct Config {
  const char* name;
  const char* device;  // configuration of the embedded device
  std::uint32_t max_inline = 128;
  bool srq = true;
  std::uint64_t max_message = 1u << 30;
};

constexpr Config kConfigs[] = {
    {"plain", "[softhca0]\n"},
    {"no_inline", "[softhca0]\nmax_inline = 0\n", 0},
    {"no_srq", "[softhca0]\nmax_srq = 0\n", 128, false},
    {"one_sge_tiny_messages", "[softhca0]\nmax_sge = 1\nmax_msg_size = 4096\n", 128, true, 4096},
};

constexpr std::uint32_t kPayload = 2048;
constexpr std::uint32_t kSendDepth = 32;
constexpr std::uint32_t kRecvDepth = 64;

class Process {
 public:
  Process(kit::World& world, const Config& config)
      : config_(config), node_(world.open(), options(config)) {
    const ops::MemoryHooks hooks{this, register_chunk, unregister_chunk};
    keys_.lkey[0] = Lkey{node_.mr->lkey};
    frags = ops::FragPool::create(
                {.name = "frags", .payload_bytes = kPayload, .frags_per_chunk = 64}, hooks)
                .value();
    ops::RecvPoolConfig recv;
    recv.srq = node_.srq;
    recv.payload_bytes = kPayload;
    recv.depth = config.srq ? kRecvDepth : kRecvDepth / 2;
    recv.max_depth = kRecvDepth * 4;
    recv_pool = ops::RecvPool::create(recv, hooks).value();
    poller = std::make_unique<ops::Poller>(node_.cq, *recv_pool, 1024);
    // The ack cell lies at the end of the node's buffer, which is registered for remote writes.
    cell = new (node_.buf.data() + cell_offset()) ops::AckCell;
    ops::ChannelConfig channel_config;
    channel_config.window = 24;
    channel_config.send_depth = kSendDepth;
    channel_config.signal_every = 8;
    channel_config.max_inline = config.max_inline;
    channel_config.max_message = config.max_message;
    channel_config.max_payload = kPayload;
    channel_config.ack_cell = cell;
    channel_config.ack_keys = &keys_;
    channel_config.frags = frags.get();
    ops::ChannelEvents events;
    events.context = this;
    events.link_lost = [](void* self, Epoch, int status, std::uint32_t) {
      static_cast<Process*>(self)->lost.push_back(status);
    };
    events.fault = [](void*, ops::Fault fault, std::uint64_t) {
      ADD_FAILURE() << ops::to_string(fault);
    };
    channel = std::make_unique<ops::Channel>(*poller, channel_config, events);
  }

  ~Process() {
    fence();
    poller->forget(*channel, this);
    qps.clear();
    channel.reset();
    poller.reset();
    if (node_.srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(node_.srq), 0);  // before its buffers are deregistered
      node_.srq = nullptr;
    }
    recv_pool.reset();
    frags.reset();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void make_qp(Epoch next) {
    epoch = next;
    kit::QpOptions qp;
    qp.send_wr = kSendDepth + 2;
    qp.recv_wr = kRecvDepth / 2;
    qp.inline_data = config_.max_inline;
    qp.srq = node_.srq;
    qps.push_back(std::make_unique<kit::Qp>(node_, qp));
  }

  void attach(const Process& peer) {
    if (!config_.srq) {
      ASSERT_TRUE(recv_pool->attach_queue(qp().get()));
    }
    poller->add_lane(Qpn{qp().num()}, epoch, *channel, deliver, this);
    ops::Lane lane;
    lane.qp = qp().get();
    lane.qpn = Qpn{qp().num()};
    lane.epoch = epoch;
    lane.ack_cell_addr = reinterpret_cast<std::uint64_t>(&peer.cell->from_peer);
    lane.ack_cell_rkey = Rkey{peer.node_.mr->rkey};
    channel->attach(lane);
    attached_ = true;
  }

  void fence() {
    if (!attached_) {
      return;
    }
    attached_ = false;
    channel->stop_posting();
    EXPECT_EQ(qp().to(IBV_QPS_ERR), 0);
    poller->drain_for_fence();
    EXPECT_EQ(qp().to(IBV_QPS_RESET), 0);
    poller->drain_for_fence();
    channel->detach();
    poller->remove_lane(Qpn{qp().num()});
    if (!config_.srq) {
      recv_pool->detach_queue(qp().get());
    }
  }

  void send(const std::string& text) {
    ops::Frag* frag = frags->get();
    ASSERT_NE(frag, nullptr);
    std::memcpy(frag->payload(), text.data(), text.size());
    frag->length = static_cast<std::uint32_t>(text.size());
    channel->send_owned(*frag, 1);
  }

  void rdma(RdmaOp& op, RdmaOp::Dir dir, Process& peer, std::size_t offset, std::size_t length) {
    op.dir = dir;
    op.local = node_.buf.data() + offset;
    op.local_keys = &keys_;
    op.remote = peer.node_.at(offset);
    op.remote_keys.rkey[0] = Rkey{peer.node_.mr->rkey};
    op.length = length;
    op.user[0] = this;
    op.done = [](RdmaOp& done) { ++static_cast<Process*>(done.user[0])->rdma_done; };
    channel->rdma(op);
  }

  kit::Qp& qp() { return *qps.back(); }
  kit::Node& node() { return node_; }

  Epoch epoch;
  std::vector<std::unique_ptr<kit::Qp>> qps;
  std::unique_ptr<ops::FragPool> frags;
  std::unique_ptr<ops::RecvPool> recv_pool;
  std::unique_ptr<ops::Poller> poller;
  ops::AckCell* cell = nullptr;
  std::unique_ptr<ops::Channel> channel;
  std::vector<std::string> received;
  std::vector<int> lost;
  int rdma_done = 0;

 private:
  static constexpr std::size_t kBytes = 256 * 1024;

  static kit::Node::Options options(const Config& config) {
    kit::Node::Options options;
    options.cqe = 1024;
    options.bytes = kBytes;
    options.srq_wr = config.srq ? kRecvDepth * 4 : 0;
    return options;
  }
  std::size_t cell_offset() const {
    const std::uint64_t end = node_.at(kBytes) / alignof(ops::AckCell) * alignof(ops::AckCell);
    return static_cast<std::size_t>(end - sizeof(ops::AckCell) - node_.at(0));
  }
  static void deliver(void* context, std::uint8_t, std::span<const std::byte> payload) {
    static_cast<Process*>(context)->received.emplace_back(
        reinterpret_cast<const char*>(payload.data()), payload.size());
  }
  static bool register_chunk(void* context, void* base, std::size_t bytes, ops::LocalKeys& keys) {
    auto& self = *static_cast<Process*>(context);
    const int access = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* mr = ibv_reg_mr(self.node_.pd, base, bytes, access);
    if (mr == nullptr) {
      return false;
    }
    self.mrs_[base] = mr;
    keys.lkey[0] = Lkey{mr->lkey};
    return true;
  }
  static void unregister_chunk(void* context, void* base) {
    auto& self = *static_cast<Process*>(context);
    EXPECT_EQ(ibv_dereg_mr(self.mrs_[base]), 0);
    self.mrs_.erase(base);
  }

  Config config_;
  kit::Node node_;
  ops::LocalKeys keys_;
  std::map<void*, ibv_mr*> mrs_;
  bool attached_ = false;
};

class OnSofthca : public ::testing::TestWithParam<Config> {
 protected:
  OnSofthca() : world_(GetParam().device), a_(world_, GetParam()), b_(world_, GetParam()) {}

  void connect() {
    epoch_ = epoch_.next();
    a_.make_qp(epoch_);
    b_.make_qp(epoch_);
    ASSERT_EQ(a_.qp().to_init(), 0);
    ASSERT_EQ(b_.qp().to_init(), 0);
    a_.attach(b_);  // before RTR: a message may come at once
    b_.attach(a_);
    ASSERT_EQ(a_.qp().to_rtr(b_.qp().num(), kit::gid_of(b_.node().ctx, 1)), 0);
    ASSERT_EQ(b_.qp().to_rtr(a_.qp().num(), kit::gid_of(a_.node().ctx, 1)), 0);
    ASSERT_EQ(a_.qp().to_rts(), 0);
    ASSERT_EQ(b_.qp().to_rts(), 0);
    const Seq a_next = a_.channel->progress_now().rx_next;
    const Seq b_next = b_.channel->progress_now().rx_next;
    ASSERT_EQ(a_.channel->start(b_next), ops::ReplayVerdict::Ok);
    ASSERT_EQ(b_.channel->start(a_next), ops::ReplayVerdict::Ok);
  }

  void pump(int rounds = 400) {
    for (int i = 0; i < rounds; ++i) {
      a_.poller->progress();
      b_.poller->progress();
      if (i % 20 == 19) {
        world_.sim().advance(100'000);
      }
    }
  }

  static std::string text_of(int i) {
    return std::to_string(i) + std::string(static_cast<std::size_t>(i * 37) % 2000, 'x');
  }

  kit::World world_;
  Process a_;
  Process b_;
  Epoch epoch_{0};
};

TEST_P(OnSofthca, CarriesEverythingAndSurvivesALinkThatGoesDown) {
  constexpr int kMessages = 120;
  constexpr std::size_t kTransfer = 20'000;
  connect();
  a_.node().fill(0, kTransfer, 1);
  b_.node().fill(kTransfer, kTransfer, 2);
  std::uint64_t counter = 0;
  int amo_done = 0;
  std::vector<AmoCall> calls(20);
  RdmaOp put;
  RdmaOp get;
  for (int i = 0; i < kMessages; ++i) {
    a_.send(text_of(i));
    b_.send(text_of(i));
    if (i % 6 == 0) {
      AmoCall& call = calls[static_cast<std::size_t>(i / 6)];
      call.remote = reinterpret_cast<std::uint64_t>(&counter);
      call.operand = 1;
      call.user[0] = &amo_done;
      call.done = [](AmoCall& done) { ++*static_cast<int*>(done.user[0]); };
      a_.channel->atomic(call);
    }
    if (i == 40) {
      // Nothing arrives any more, then the retry time is over.
      ASSERT_TRUE(world_.sim().set_port(0, 1, false));
      a_.rdma(put, RdmaOp::Dir::Put, b_, 0, kTransfer);
      a_.rdma(get, RdmaOp::Dir::Get, b_, kTransfer, kTransfer);
    }
    if (i % 3 == 0) {
      a_.poller->progress();
      b_.poller->progress();
    }
  }
  for (int i = 0; i < 200 && a_.lost.empty(); ++i) {
    world_.sim().advance(10'000'000);
    pump(2);
  }
  ASSERT_FALSE(a_.lost.empty()) << "the port went down and nobody noticed";
  EXPECT_EQ(a_.lost[0], IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(b_.received.size(), static_cast<std::size_t>(kMessages));
  a_.fence();
  b_.fence();
  ASSERT_TRUE(world_.sim().set_port(0, 1, true));
  connect();
  pump();

  ASSERT_EQ(a_.received.size(), static_cast<std::size_t>(kMessages));
  ASSERT_EQ(b_.received.size(), static_cast<std::size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(a_.received[static_cast<std::size_t>(i)], text_of(i));
    EXPECT_EQ(b_.received[static_cast<std::size_t>(i)], text_of(i));
  }
  EXPECT_EQ(a_.rdma_done, 2);
  EXPECT_TRUE(b_.node().holds(0, kTransfer, 1));
  EXPECT_TRUE(a_.node().holds(kTransfer, kTransfer, 2));
  EXPECT_EQ(counter, calls.size());
  EXPECT_EQ(amo_done, static_cast<int>(calls.size()));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].result, i);
  }
  const ops::ChannelStats stats = a_.channel->stats();
  EXPECT_GT(stats.replayed, 0u);
  EXPECT_EQ(stats.dup_rx + b_.channel->stats().dup_rx, 0u);
  EXPECT_TRUE(a_.channel->quiet());
  EXPECT_TRUE(b_.channel->quiet());
  for (Process* process : {&a_, &b_}) {
    const ops::RecvLedger ledger = process->recv_pool->ledger();
    EXPECT_EQ(ledger.posted + ledger.idle, ledger.depth);
    EXPECT_EQ(ledger.stashed + ledger.delivered, 0u);
  }
}

// One direction only, far more than window, send queue and receive buffers hold.
TEST_P(OnSofthca, FloodInOneDirection) {
  constexpr int kMessages = 1000;
  connect();
  for (int i = 0; i < kMessages; ++i) {
    a_.send(std::to_string(i));
  }
  pump(3000);
  ASSERT_EQ(b_.received.size(), static_cast<std::size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(b_.received[static_cast<std::size_t>(i)], std::to_string(i));
  }
  EXPECT_TRUE(a_.lost.empty() && b_.lost.empty());
  EXPECT_TRUE(a_.channel->quiet());
}

INSTANTIATE_TEST_SUITE_P(Devices, OnSofthca, ::testing::ValuesIn(kConfigs),
                         [](const auto& config) { return std::string(config.param.name); });

}  // namespace
}  // namespace mend::test
