// The extended interface: ibv_wr_* builders, extended completion queues, ibv_query_device_ex.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::World;

constexpr uint64_t kOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                          IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

// A queue pair with a builder, connected to a plain one.
class Built {
 public:
  explicit Built(World& world) : a(world.open()), b(world.open()), far(b) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = a.cq;
    attr.cap = {.max_send_wr = 8,
                .max_recv_wr = 8,
                .max_send_sge = 4,
                .max_recv_sge = 1,
                .max_inline_data = 64};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = a.pd;
    attr.send_ops_flags = kOps;
    base = ibv_create_qp_ex(a.ctx, &attr);
    EXPECT_NE(base, nullptr);
    qp = ibv_qp_to_qp_ex(base);
    EXPECT_NE(qp, nullptr);
    connect();
  }
  ~Built() { EXPECT_EQ(ibv_destroy_qp(base), 0); }
  Built(const Built&) = delete;
  Built& operator=(const Built&) = delete;

  void start(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(qp);
    next(wr_id, flags);
  }
  void next(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    qp->wr_id = wr_id;
    qp->wr_flags = flags;
  }
  void sge(size_t offset, uint32_t length) { ibv_wr_set_sge(qp, a.mr->lkey, a.at(offset), length); }

  Node a, b;
  kit::Qp far;
  ibv_qp* base = nullptr;
  ibv_qp_ex* qp = nullptr;

 private:
  void connect() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(base, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = far.num();
    attr.rq_psn = far.options().sq_psn;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = kit::gid_of(b.ctx, 0);
    attr.ah_attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(base, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = far.options().rq_psn;
    attr.timeout = 8;
    attr.max_rd_atomic = 1;
    EXPECT_EQ(ibv_modify_qp(base, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
    EXPECT_EQ(far.to_init(), 0);
    EXPECT_EQ(far.to_rtr(base->qp_num, kit::gid_of(a.ctx, 0)), 0);
    EXPECT_EQ(far.to_rts(), 0);
  }
};

TEST(Extended, BatchOfDifferentRequests) {
  World world;
  Built x(world);
  x.a.fill(0, 1000, 9);
  ASSERT_EQ(kit::post_recv(x.far, 1, 8192, 2048), 0);
  ASSERT_EQ(kit::post_recv(x.far, 2, 16384, 2048), 0);
  ASSERT_EQ(kit::post_recv(x.far, 3, 32768, 2048), 0);
  x.start(10, 0);
  ibv_wr_rdma_write(x.qp, x.b.mr->rkey, x.b.at(0));
  x.sge(0, 1000);
  x.next(11, 0);
  ibv_wr_send(x.qp);
  x.sge(0, 500);
  x.next(12, 0);
  ibv_wr_send_imm(x.qp, 0xabcd);
  std::array<ibv_sge, 2> list{{{x.a.at(0), 300, x.a.mr->lkey}, {x.a.at(300), 700, x.a.mr->lkey}}};
  ibv_wr_set_sge_list(x.qp, list.size(), list.data());
  x.next(13, 0);
  ibv_wr_rdma_write_imm(x.qp, x.b.mr->rkey, x.b.at(40000), 7);
  x.sge(0, 64);
  x.next(14);
  ibv_wr_rdma_read(x.qp, x.b.mr->rkey, x.b.at(0));
  x.sge(50000, 1000);
  ASSERT_EQ(ibv_wr_complete(x.qp), 0);
  const ibv_wc done = kit::poll_one(x.a.cq, world.wait());
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.wr_id, 14U);
  EXPECT_TRUE(x.a.holds(50000, 1000, 9));
  const auto got = kit::poll(x.b.cq, 3, world.wait());
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].byte_len, 500U);
  EXPECT_EQ(got[1].imm_data, 0xabcdU);
  EXPECT_EQ(got[1].byte_len, 1000U);
  EXPECT_EQ(got[2].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_TRUE(x.b.holds(0, 1000, 9));
  EXPECT_TRUE(x.b.holds(16384, 1000, 9));
}

TEST(Extended, InlineDataIsTakenWhenItIsSet) {
  World world;
  Built x(world);
  ASSERT_EQ(kit::post_recv(x.far, 1, 0, 64), 0);
  std::vector<unsigned char> data(48, 0x5a);
  x.start(1, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  ibv_wr_send(x.qp);
  ibv_wr_set_inline_data(x.qp, data.data(), data.size());
  std::fill(data.begin(), data.end(), static_cast<unsigned char>(0));
  ASSERT_EQ(ibv_wr_complete(x.qp), 0);
  EXPECT_EQ(kit::poll_one(x.b.cq, world.wait()).byte_len, 48U);
  EXPECT_EQ(x.b.buf[0], 0x5a);
  EXPECT_EQ(x.b.buf[47], 0x5a);
  EXPECT_EQ(kit::poll_one(x.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  std::vector<unsigned char> much(65);
  x.start(2, IBV_SEND_INLINE);
  ibv_wr_send(x.qp);
  ibv_wr_set_inline_data(x.qp, much.data(), much.size());
  EXPECT_EQ(ibv_wr_complete(x.qp), EINVAL);
}

TEST(Extended, Atomics) {
  World world;
  Built x(world);
  uint64_t value = 5;
  std::memcpy(x.b.buf.data(), &value, 8);
  x.start(1);
  ibv_wr_atomic_fetch_add(x.qp, x.b.mr->rkey, x.b.at(0), 3);
  x.sge(0, 8);
  x.next(2);
  ibv_wr_atomic_cmp_swp(x.qp, x.b.mr->rkey, x.b.at(0), 8, 100);
  x.sge(8, 8);
  ASSERT_EQ(ibv_wr_complete(x.qp), 0);
  ASSERT_EQ(kit::poll(x.a.cq, 2, world.wait()).size(), 2U);
  uint64_t old[2];
  std::memcpy(old, x.a.buf.data(), sizeof old);
  EXPECT_EQ(old[0], 5U);
  EXPECT_EQ(old[1], 8U);
  std::memcpy(&value, x.b.buf.data(), 8);
  EXPECT_EQ(value, 100U);
}

TEST(Extended, AbortPostsNothing) {
  World world;
  Built x(world);
  ASSERT_EQ(kit::post_recv(x.far, 1, 0, 64), 0);
  x.start(1);
  ibv_wr_send(x.qp);
  x.sge(0, 8);
  ibv_wr_abort(x.qp);
  EXPECT_TRUE(kit::quiet(x.b.cq, world.wait(), 1'000'000));
  x.start(2);
  ibv_wr_send(x.qp);
  x.sge(0, 8);
  ASSERT_EQ(ibv_wr_complete(x.qp), 0);
  EXPECT_EQ(kit::poll_one(x.a.cq, world.wait()).wr_id, 2U);
}

TEST(Extended, PlainQueuePairHasNoBuilder) {
  World world;
  Node a(world.open());
  kit::Qp qp(a);
  EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
}

TEST(Extended, CompletionQueueThatIsReadFieldByField) {
  World world;
  Node a(world.open()), b(world.open());
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(b.ctx, &attr);
  ASSERT_NE(cq, nullptr);
  {
    kit::Qp qa(a), qb(b, {.recv_cq = ibv_cq_ex_to_cq(cq)});
    kit::connect(qa, qb);
    ibv_poll_cq_attr poll{};
    EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
    ASSERT_EQ(kit::post_recv(qb, 8, 0, 64), 0);
    ASSERT_EQ(kit::post_recv(qb, 9, 0, 64), 0);
    ASSERT_EQ(kit::post(qa, {.length = 20}), 0);
    ASSERT_EQ(kit::post(qa, {.length = 30, .opcode = IBV_WR_SEND_WITH_IMM, .imm = 77}), 0);
    ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
    EXPECT_EQ(cq->wr_id, 8U);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 20U);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), qb.num());
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(cq->wr_id, 9U);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 77U);
    EXPECT_NE(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, 0U);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
  }
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ibv_create_cq_ex(b.ctx, &attr), nullptr) << "no clock on this device";
}

TEST(Extended, DeviceAttributes) {
  World world;
  ibv_context* ctx = world.open();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(ctx, nullptr, &attr), 0);
  EXPECT_GT(attr.orig_attr.max_qp, 0);
  EXPECT_EQ(attr.odp_caps.general_caps, 0U);
  EXPECT_EQ(attr.phys_port_cnt_ex == 0 || attr.phys_port_cnt_ex == 1, true);
  EXPECT_EQ(attr.raw_packet_caps, 0U);
}

TEST(Extended, ResizeKeepsWhatWaits) {
  World world;
  Node a(world.open()), b(world.open(), {.cqe = 16});
  kit::Qp qa(a), qb(b);
  kit::connect(qa, qb);
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(kit::post_recv(qb, i, i * 64, 64), 0);
    a.fill(0, 64, static_cast<unsigned>(i));
    ASSERT_EQ(kit::post(qa, {.wr_id = i, .length = 64}), 0);
  }
  ASSERT_EQ(ibv_resize_cq(b.cq, 64), 0);
  EXPECT_GE(b.cq->cqe, 64);
  EXPECT_NE(ibv_resize_cq(b.cq, 5), 0) << "ten completions wait";
  const auto got = kit::poll(b.cq, 10, world.wait());
  ASSERT_EQ(got.size(), 10U);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(got[i].wr_id, i);
    EXPECT_TRUE(b.holds(i * 64, 64, static_cast<unsigned>(i)));
  }
}

}  // namespace
