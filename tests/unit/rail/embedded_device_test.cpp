// Rail, pool, fence and control channel on the embedded device: two queue pairs of one process,
// connected to each other.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ops/channel.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/clock.h"
#include "plugin/conn/fence.h"
#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"
#include "plugin/conn/ud_channel.h"
#include "plugin/verbs/async_events.h"
#include "plugin/verbs/objects.h"
#include "tests/unit/stall_gauge.h"
#include "tests/unit/verbs/device_under_test.h"

namespace mend::conn {
namespace {

class EmbeddedRail : public testing::Test {
 protected:
  void SetUp() override {
    auto api = verbs::load(test::device_library(SOFTHCA_LIBRARY));
    ASSERT_TRUE(api) << api.error().message;
    auto devices = verbs::DeviceList::query(**api);
    ASSERT_TRUE(devices) << devices.error().message;
    ASSERT_GE(devices->size(), 1u);
    auto opened = Nic::open(**api, (*devices)[0]);
    ASSERT_TRUE(opened) << opened.error().message;
    nic = std::move(*opened);
    params.max_send_size = 4096;
    auto made = Rail::create(*nic, 1, RailId{0}, params, 2);
    ASSERT_TRUE(made) << made.error().message;
    rail = std::move(*made);
    pool = std::make_unique<QpPool>(*rail, params);
    events = std::jthread([this](const std::stop_token& stop) { read_events(stop); });
  }
  // The service thread's part.
  void read_events(const std::stop_token& stop) {
    verbs::AsyncEvent event;
    while (!stop.stop_requested()) {
      pollfd entry{nic->context()->async_fd, POLLIN, 0};
      poll(&entry, 1, 5);
      while (verbs::next_async_event(nic->api(), nic->context(), event)) {
        if (event.type != IBV_EVENT_QP_LAST_WQE_REACHED) continue;
        ++last_wqes;
        pool->on_last_wqe(event.qpn);
      }
    }
  }
  void TearDown() override {
    events = {};
    const auto failures = verbs::destroy_failures();
    pool.reset();
    rail.reset();
    nic.reset();
    EXPECT_EQ(verbs::destroy_failures(), failures) << "destroyed in order";
  }
  RcQp* connected(RcQp& qp, const RcQp& to) {
    const PortView port = rail->port();
    verbs::QpParams out = rail->qp_params(RemotePort{port.gid.gid, port.info.lid});
    out.dest_qpn = to.qpn;
    out.rq_psn = Psn{to.qpn.value * 7};
    out.sq_psn = Psn{qp.qpn.value * 7};
    for (const auto& moved : {pool->to_rtr(qp, out), pool->to_rts(qp, out)}) {
      EXPECT_TRUE(moved) << moved.error().message;
    }
    return &qp;
  }

  Params params;
  std::unique_ptr<Nic> nic;
  std::unique_ptr<Rail> rail;
  std::unique_ptr<QpPool> pool;
  std::atomic<int> last_wqes{0};
  std::jthread events;
};

// Numbered messages that stay valid until they were fetched: not every device has inline data.
class Numbers {
 public:
  explicit Numbers(Rail& rail) {
    auto made = verbs::register_memory(rail.api(), rail.nic().pd(), headers_.data(),
                                       sizeof(headers_), IBV_ACCESS_LOCAL_WRITE);
    EXPECT_TRUE(made) << made.error().message;
    if (made) region_ = std::move(*made);
  }
  void send(RcQp& qp, std::uint32_t seq) {
    ops::DataHeader& header = headers_.at(seq);
    header.seq = seq;
    header.epoch_lo = 1;
    ibv_sge sge{reinterpret_cast<std::uint64_t>(&header), sizeof(header), region_->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp.qp.get(), &wr, &bad), 0);
  }

 private:
  std::array<ops::DataHeader, 8> headers_{};
  verbs::Mr region_;
};

void count_delivery(void* context, std::uint8_t, std::span<const std::byte>) {
  ++*static_cast<int*>(context);
}

TEST_F(EmbeddedRail, FenceCountsWhatArrivedAndLosesNoBuffer) {
  test::StallGauge gauge;
  Qpn last;
  int delivered = 0;
  Numbers numbers(*rail);
  for (int round = 0; round < 20; ++round) {
    ops::Channel channel(rail->poller(), ops::ChannelConfig{}, ops::ChannelEvents{});
    auto near = pool->take(Qpn{}), far = pool->take(last);
    ASSERT_TRUE(near && far) << (near ? far : near).error().message;
    EXPECT_NE((*far)->qpn, last) << "rule F4";
    last = (*far)->qpn;
    ops::Lane lane;
    lane.qp = (*far)->qp.get();
    lane.qpn = last;
    lane.epoch = Epoch{1};
    rail->poller().add_lane(last, lane.epoch, channel, count_delivery, &delivered);
    channel.attach(lane);
    connected(**near, **far);
    connected(**far, **near);
    for (std::uint32_t seq = 0; seq < 5; ++seq) numbers.send(**near, seq);
    std::this_thread::sleep_for(test::time_to_arrive());

    const FenceReport report = fence(*rail, **far, std::chrono::milliseconds(1000));
    ASSERT_TRUE(report.fenced()) << report.reason;
    EXPECT_TRUE(report.beacon_seen);
    rail->poller().remove_lane(last);
    EXPECT_EQ(channel.detach().rx_next, Seq{5}) << "what had arrived counts";
    while (rail->poller().progress() > 0) {
    }
    rail->poller().forget(channel, &delivered);
    pool->park(*far, monotonic_now());
    ASSERT_TRUE(fence(*rail, **near, std::chrono::milliseconds(1000)).fenced());
    pool->park(*near, monotonic_now());
  }
  EXPECT_EQ(delivered, 100);
  // soft-RoCE never raises it (docs/soft-roce.md). What comes later than 10 ms after the flush
  // counts as missing, and the thread that reads events may be starved for longer.
  if (test::is_embedded()) {
    for (int tries = 0; tries < 2000 && last_wqes < 40; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(last_wqes, 40) << "one of each queue pair that was fenced";
    if (gauge.longest() < std::chrono::milliseconds(4)) {
      EXPECT_EQ(nic->last_wqe(), LastWqe::Delivered);
    }
  } else {
    EXPECT_EQ(nic->last_wqe(), LastWqe::Missing);
  }
  const auto ledger = rail->recv_pool().ledger();
  EXPECT_EQ(ledger.posted, ledger.depth);
  EXPECT_EQ(rail->reserved_qps(), 0u);
}

TEST_F(EmbeddedRail, ManyQpsGrowQueuesUnderTheRule) {
  std::vector<RcQp*> taken;
  for (int i = 0; i < 100; ++i) {
    auto qp = pool->take(Qpn{});
    ASSERT_TRUE(qp) << i << ": " << qp.error().message;
    taken.push_back(*qp);
    EXPECT_GE(rail->recv_pool().depth(), 2 * rail->reserved_qps());
  }
  for (RcQp* qp : taken) {
    ASSERT_TRUE(fence(*rail, *qp, std::chrono::milliseconds(1000)).fenced());
    pool->park(qp, 0);
  }
}

struct Heard {
  std::vector<std::string> texts;
  Qpn from;
  bool has_gid = false;
  verbs::Gid gid{};
  static void take(void* context, std::span<const std::byte> bytes, const UdSource& source) {
    auto* self = static_cast<Heard*>(context);
    self->texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    self->from = source.qpn;
    self->has_gid = source.has_gid;
    self->gid = source.gid;
  }
};

TEST_F(EmbeddedRail, ControlDatagramsWakeAndSurviveAReset) {
  auto a = UdChannel::create(*rail), b = UdChannel::create(*rail);
  ASSERT_TRUE(a && b);
  const UdAddress to = (*b)->address();
  ASSERT_TRUE((*a)->resolve(to));
  for (int round = 0; round < 100; ++round) {
    Heard heard;
    const std::string text = "round " + std::to_string(round);
    ASSERT_EQ((*a)->send(to, std::as_bytes(std::span(text.data(), text.size()))), UdSend::Sent);
    for (int wait = 0; wait < 20 && heard.texts.empty(); ++wait) {
      pollfd entry{(*b)->fd(), POLLIN, 0};
      ASSERT_EQ(poll(&entry, 1, 1000), 1) << "no wake-up in round " << round;
      (*b)->receive(Heard::take, &heard);
    }
    ASSERT_EQ(heard.texts, std::vector<std::string>{text});
    EXPECT_EQ(heard.from, (*a)->address().qpn);
    ASSERT_TRUE(heard.has_gid);
    EXPECT_EQ(heard.gid, (*a)->address().gid);
    if (round % 10 == 9) {
      ASSERT_TRUE((*b)->reset_in_place());
    }
    EXPECT_EQ((*b)->address(), to);
  }
}

}  // namespace
}  // namespace mend::conn
