// The objects of plugin/verbs on a whole device, the embedded one or the kernel's soft-RoCE: what
// the other tests of this directory show of a fake device has to hold where nobody wrote the
// answers.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugin/verbs/api.h"
#include "plugin/verbs/async_events.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/objects.h"
#include "plugin/verbs/qp_attr.h"
#include "tests/unit/verbs/device_under_test.h"

namespace mend::verbs {
namespace {

using std::chrono::milliseconds;

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Two queue pairs of one process on one shared receive queue, and registered memory.
class DeviceObjects : public testing::Test {
 protected:
  void SetUp() override {
    const auto loaded = load(test::device_library(SOFTHCA_LIBRARY));
    ASSERT_TRUE(loaded) << loaded.error().message;
    api = *loaded;
    const auto devices = DeviceList::query(*api);
    ASSERT_TRUE(devices && devices->size() > 0);
    context = take(open_device(*api, (*devices)[0]));
    caps = take(query_caps(*api, context.get()));
    port = take(query_port(*api, context.get(), 1));
    gid = take(choose_gid(read_gid_table(*api, context.get(), port), port.link, -1));
    ASSERT_TRUE(prepare_async_events(context.get()));
    pd = take(alloc_pd(*api, context.get()));
    mr = take(register_memory(*api, pd.get(), memory.data(), memory.size(), kAccess));
    channel = take(create_comp_channel(*api, context.get()));
    cq = take(create_cq(*api, context.get(), caps, {.depth = 64, .channel = channel.get()}));
    srq = take(create_srq(*api, pd.get(), caps, {.depth = 16})).srq;
  }
  void TearDown() override { EXPECT_EQ(destroy_failures(), failures); }

  template <typename T>
  static T take(Result<T> result) {
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return result ? std::move(*result) : T{};
  }

  Qp make_qp(ibv_qp_type type = IBV_QPT_RC) {
    const QpRequest request{.type = type,
                            .send_cq = cq.get(),
                            .recv_cq = cq.get(),
                            .srq = type == IBV_QPT_RC ? srq.get() : nullptr,
                            .send_depth = 8,
                            .recv_depth = 8};
    return take(create_qp(*api, pd.get(), caps, request)).qp;
  }
  QpParams params_to(const ibv_qp& peer) const {
    QpParams out;
    out.path.global = port.grh_required;
    out.path.dgid = gid.gid;
    out.path.sgid_index = static_cast<std::uint8_t>(gid.index);
    out.path.dlid = port.lid;
    out.dest_qpn = Qpn{peer.qp_num};
    out.timeout = 8;  // 1 ms
    out.retry_count = 3;
    out.rnr_retry = 0;
    return out;
  }
  void connect(ibv_qp* qp, const ibv_qp& peer) {
    const QpParams params = params_to(peer);
    for (const QpChange& change : {rc_init(params), rc_rtr(params), rc_rts(params)}) {
      const auto moved = modify(*api, qp, change);
      ASSERT_TRUE(moved) << moved.error().message;
    }
  }
  void receive(std::uint64_t id) {
    ibv_sge sge{address(2048), 512, mr->lkey};
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), 0);
  }
  // `id` comes back in the completion.
  void post(ibv_qp* qp, std::uint64_t id, ibv_wr_opcode opcode, std::uint32_t rkey = 0,
            std::uint32_t bytes = 64) {
    ibv_sge sge{address(0), bytes, mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = address(1024);
    wr.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }
  // The next completion; none within two seconds fails the test.
  ibv_wc completion() {
    ibv_wc wc{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < until) {
      if (ibv_poll_cq(cq.get(), 1, &wc) == 1) return wc;
      std::this_thread::sleep_for(milliseconds(1));
    }
    ADD_FAILURE() << "no completion";
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + offset);
  }

  std::uint64_t failures = destroy_failures();
  alignas(4096) std::array<char, 4096> memory{};
  const Api* api = nullptr;
  Context context;
  DeviceCaps caps;
  PortInfo port;
  GidEntry gid;
  Pd pd;
  Mr mr;
  CompChannel channel;
  Cq cq;
  Srq srq;
};

TEST_F(DeviceObjects, QueuesAreClampedToTheLimitsThatTheDeviceTells) {
  const auto all = take(create_cq(*api, context.get(), caps, {.depth = caps.max_cqe + 1}));
  ASSERT_TRUE(all);
  EXPECT_GE(all->cqe, static_cast<int>(caps.max_cqe / 2));
  const auto least = create_cq(*api, context.get(), caps,
                               {.depth = caps.max_cqe + 1, .minimum = caps.max_cqe + 1});
  ASSERT_FALSE(least);
  EXPECT_NE(least.error().message.find(std::to_string(caps.max_cqe)), std::string::npos)
      << least.error().message;
  const auto deep = take(create_srq(*api, pd.get(), caps, {.depth = caps.max_srq_wr + 1}));
  EXPECT_GE(deep.depth, caps.max_srq_wr / 2);
}

TEST_F(DeviceObjects, QueuesGrowWithWhatIsInThem) {
  Qp a = make_qp(), b = make_qp();
  connect(a.get(), *b.get());
  connect(b.get(), *a.get());
  for (std::uint64_t id = 0; id < 8; ++id) receive(id);
  for (std::uint64_t id = 0; id < 4; ++id) post(a.get(), 100 + id, IBV_WR_SEND);
  std::this_thread::sleep_for(test::time_to_arrive());
  const auto cq_grown = grow_cq(*api, cq.get(), caps, 1000);
  ASSERT_TRUE(cq_grown) << cq_grown.error().message;
  EXPECT_GE(cq->cqe, 1000);
  const auto srq_grown = grow_srq(*api, srq.get(), caps, 500);
  // Many devices refuse that, softhca too; then the queue is as it was. 4 of the first 8 are left.
  ASSERT_EQ(srq_grown.has_value(), !test::is_embedded())
      << (srq_grown ? "" : srq_grown.error().message);
  for (std::uint64_t id = 8; srq_grown && id < 500; ++id) receive(id);
  post(a.get(), 104, IBV_WR_SEND);
  std::vector<std::uint64_t> sent, received;
  for (int i = 0; i < 10; ++i) {
    const ibv_wc wc = completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status(wc.status);
    (wc.wr_id < 100 ? received : sent).push_back(wc.wr_id);
  }
  EXPECT_EQ(sent, (std::vector<std::uint64_t>{100, 101, 102, 103, 104}));
  EXPECT_EQ(received, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

TEST_F(DeviceObjects, EveryTransitionAndBackAgain) {
  Qp a = make_qp(), b = make_qp();
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    connect(a.get(), *b.get());
    connect(b.get(), *a.get());
    EXPECT_EQ(take(query_state(*api, a.get())), IBV_QPS_RTS);
    std::memset(memory.data(), round + 1, 64);
    std::memset(memory.data() + 1024, 0, 1024);
    post(a.get(), 1, IBV_WR_RDMA_WRITE, mr->rkey);
    EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory.data(), memory.data() + 1024, 64), 0);
    for (ibv_qp* qp : {a.get(), b.get()}) {
      ASSERT_TRUE(modify(*api, qp, to_error()));
      ASSERT_TRUE(confirm_state(*api, qp, IBV_QPS_ERR, milliseconds(1000)));
      post(qp, 2, IBV_WR_SEND);  // as long as it is in ERR, it flushes
      EXPECT_EQ(completion().status, IBV_WC_WR_FLUSH_ERR);
      ASSERT_TRUE(modify(*api, qp, to_reset()));
      ASSERT_TRUE(confirm_state(*api, qp, IBV_QPS_RESET, milliseconds(1000)));
    }
  }
}

TEST_F(DeviceObjects, ATransitionThatIsNotAllowedIsRefused) {
  Qp a = make_qp(), b = make_qp();
  const auto refused = modify(*api, a.get(), rc_rts(params_to(*b.get())));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_EQ(take(query_state(*api, a.get())), IBV_QPS_RESET);
  const auto elsewhere = confirm_state(*api, a.get(), IBV_QPS_ERR, milliseconds(30));
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, ETIMEDOUT);
}

struct Break {
  const char* what;
  ibv_wr_opcode opcode;
  bool bad_key, peer_connected, buffer;
  ibv_wc_status status;
};
// gtest finds this by its name.
void PrintTo(const Break& broken, std::ostream* out) { *out << broken.what; }

class DeviceBreaks : public DeviceObjects, public testing::WithParamInterface<Break> {};

TEST_P(DeviceBreaks, IsToldByTheCompletionAndLeavesTheQueuePairInError) {
  const Break& how = GetParam();
  Qp a = make_qp(), b = make_qp();
  connect(a.get(), *b.get());
  if (how.peer_connected) connect(b.get(), *a.get());
  if (how.buffer) receive(1);
  post(a.get(), 7, how.opcode, how.bad_key ? mr->rkey ^ 0x55 : mr->rkey);
  ibv_wc wc = completion();
  if (wc.wr_id == 1) wc = completion();  // the receive of a message that was refused
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.status, how.status) << ibv_wc_status(wc.status);
  EXPECT_TRUE(confirm_state(*api, a.get(), IBV_QPS_ERR, milliseconds(1000)));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceBreaks,
                         testing::Values(Break{"a key that nobody gave", IBV_WR_RDMA_WRITE, true,
                                               true, false, IBV_WC_REM_ACCESS_ERR},
                                         Break{"reading with it", IBV_WR_RDMA_READ, true, true,
                                               false, IBV_WC_REM_ACCESS_ERR},
                                         Break{"a peer that is not connected", IBV_WR_SEND, false,
                                               false, true, IBV_WC_RETRY_EXC_ERR},
                                         Break{"no receive buffer", IBV_WR_SEND, false, true, false,
                                               IBV_WC_RNR_RETRY_EXC_ERR}));

TEST_F(DeviceObjects, ACompletionWakesWhoAskedForIt) {
  Qp a = make_qp(), b = make_qp();
  connect(a.get(), *b.get());
  connect(b.get(), *a.get());
  pollfd entry{channel->fd, POLLIN, 0};
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    ASSERT_EQ(poll(&entry, 1, 0), 0) << "nothing has happened yet";
    post(a.get(), 1, IBV_WR_RDMA_WRITE, mr->rkey);
    ASSERT_EQ(poll(&entry, 1, 2000), 1) << "round " << round;
    ibv_cq* woken = nullptr;
    void* ignored = nullptr;
    ASSERT_EQ(api->get_cq_event(channel.get(), &woken, &ignored), 0);
    EXPECT_EQ(woken, cq.get());
    api->ack_cq_events(woken, 1);
    EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
  }
}

TEST_F(DeviceObjects, DatagramsReachAnAddressHandle) {
  Qp a = make_qp(IBV_QPT_UD), b = make_qp(IBV_QPT_UD);
  QpParams params = params_to(*b.get());
  params.qkey = 0x1234;
  for (ibv_qp* qp : {a.get(), b.get()})
    for (const QpChange& change : {ud_init(params), ud_rtr(), ud_rts(params)})
      ASSERT_TRUE(modify(*api, qp, change));
  const Ah ah = take(create_ah(*api, pd.get(), path_attr(params.path)));
  ibv_sge into{address(2048), 512, mr->lkey};
  ibv_recv_wr recv{1, nullptr, &into, 1};
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(ibv_post_recv(b.get(), &recv, &bad_recv), 0);
  std::strcpy(memory.data(), "a datagram");
  ibv_sge sge{address(0), 16, mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = ah.get();
  wr.wr.ud.remote_qpn = b->qp_num;
  wr.wr.ud.remote_qkey = params.qkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
  std::optional<ibv_wc> got;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.wr_id == 1) got = wc;
  }
  ASSERT_TRUE(got);
  EXPECT_EQ(got->src_qp, a->qp_num);
  EXPECT_EQ(got->byte_len, 40u + 16u) << "an address of 40 bytes stands in front";
  EXPECT_STREQ(memory.data() + 2048 + 40, "a datagram");
}

TEST_F(DeviceObjects, MemoryThatIsNotThereIsRefused) {
  void* gone = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  munmap(gone, 4096);
  const auto refused = register_memory(*api, pd.get(), gone, 4096, kAccess);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().code, 0);
  EXPECT_NE(refused.error().message.find("4096"), std::string::npos) << refused.error().message;
}

TEST_F(DeviceObjects, NoEventDoesNotBlock) {
  AsyncEvent event;
  while (next_async_event(*api, context.get(), event)) {
  }
  EXPECT_FALSE(next_async_event(*api, context.get(), event));
}

}  // namespace
}  // namespace mend::verbs
