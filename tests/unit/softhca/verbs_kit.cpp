#include "tests/unit/softhca/verbs_kit.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

namespace kit {

Node::Node(ibv_context* context, const Options& options) : ctx(context), buf(options.bytes) {
  pd = ibv_alloc_pd(ctx);
  if (options.channel) channel = ibv_create_comp_channel(ctx);
  cq = ibv_create_cq(ctx, options.cqe, this, channel, 0);
  mr = ibv_reg_mr(pd, buf.data(), buf.size(), options.access);
  if (options.srq_wr != 0) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = options.srq_wr, .max_sge = 1, .srq_limit = 0};
    srq = ibv_create_srq(pd, &attr);
    EXPECT_NE(srq, nullptr);
  }
  EXPECT_NE(pd, nullptr);
  EXPECT_NE(cq, nullptr);
  EXPECT_NE(mr, nullptr);
}

Node::~Node() {
  EXPECT_TRUE(srq == nullptr || ibv_destroy_srq(srq) == 0) << "ibv_destroy_srq";
  EXPECT_TRUE(mr == nullptr || ibv_dereg_mr(mr) == 0) << "ibv_dereg_mr";
  EXPECT_TRUE(cq == nullptr || ibv_destroy_cq(cq) == 0) << "ibv_destroy_cq";
  EXPECT_TRUE(channel == nullptr || ibv_destroy_comp_channel(channel) == 0)
      << "ibv_destroy_comp_channel";
  EXPECT_TRUE(pd == nullptr || ibv_dealloc_pd(pd) == 0) << "ibv_dealloc_pd";
}

void Node::fill(size_t offset, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i)
    buf[offset + i] = static_cast<unsigned char>(seed + i * 7 + i / 251);
}

bool Node::holds(size_t offset, size_t n, unsigned seed) const {
  for (size_t i = 0; i < n; ++i)
    if (buf[offset + i] != static_cast<unsigned char>(seed + i * 7 + i / 251)) return false;
  return true;
}

Qp::Qp(Node& node, const QpOptions& options) : node_(node), options_(options) {
  ibv_qp_init_attr attr{};
  attr.send_cq = node.cq;
  attr.recv_cq = options.recv_cq != nullptr ? options.recv_cq : node.cq;
  attr.srq = options.srq;
  attr.cap = {.max_send_wr = options.send_wr,
              .max_recv_wr = options.srq != nullptr ? 0 : options.recv_wr,
              .max_send_sge = options.sge,
              .max_recv_sge = options.srq != nullptr ? 0 : options.sge,
              .max_inline_data = options.inline_data};
  attr.qp_type = options.type;
  attr.sq_sig_all = options.sig_all ? 1 : 0;
  attr.qp_context = this;
  qp_ = ibv_create_qp(node.pd, &attr);
  EXPECT_NE(qp_, nullptr);
}

Qp::~Qp() { EXPECT_TRUE(qp_ == nullptr || ibv_destroy_qp(qp_) == 0) << "ibv_destroy_qp"; }

int Qp::to_init() {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = options_.access;
  a.qkey = options_.qkey;
  const int last = options_.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return ibv_modify_qp(qp_, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

int Qp::to_rtr(uint32_t dest_qpn, const ibv_gid& dest_gid) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  if (options_.type == IBV_QPT_UD) return ibv_modify_qp(qp_, &a, IBV_QP_STATE);
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = dest_qpn;
  a.rq_psn = options_.rq_psn;
  a.max_dest_rd_atomic = options_.rd_atomic;
  a.min_rnr_timer = options_.min_rnr_timer;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = dest_gid;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (options_.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp_, &a, mask);
}

int Qp::to_rts() {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTS;
  a.sq_psn = options_.sq_psn;
  a.timeout = options_.timeout;
  a.retry_cnt = options_.retry_cnt;
  a.rnr_retry = options_.rnr_retry;
  a.max_rd_atomic = options_.rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp_, &a, mask);
}

int Qp::to(ibv_qp_state state) {
  ibv_qp_attr a{};
  a.qp_state = state;
  return ibv_modify_qp(qp_, &a, IBV_QP_STATE);
}

ibv_qp_state Qp::state() const {
  ibv_qp_attr a{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp_, &a, IBV_QP_STATE, &init), 0);
  return a.qp_state;
}

ibv_gid gid_of(ibv_context* ctx, int index) {
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(ctx, 1, index, &gid), 0);
  return gid;
}

void connect(Qp& a, Qp& b) {
  EXPECT_EQ(a.to_init(), 0);
  EXPECT_EQ(b.to_init(), 0);
  EXPECT_EQ(a.to_rtr(b.num(), gid_of(b.node().ctx, 0)), 0);
  EXPECT_EQ(b.to_rtr(a.num(), gid_of(a.node().ctx, 0)), 0);
  EXPECT_EQ(a.to_rts(), 0);
  EXPECT_EQ(b.to_rts(), 0);
}

void bring_up_ud(Qp& qp) {
  EXPECT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(0, ibv_gid{}), 0);
  EXPECT_EQ(qp.to_rts(), 0);
}

ibv_ah* make_ah(Node& from, const Node& to) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.grh.dgid = gid_of(to.ctx, 0);
  attr.port_num = 1;
  return ibv_create_ah(from.pd, &attr);
}

int post(Qp& qp, const Send& send) {
  ibv_sge sge{.addr = qp.node().at(send.offset),
              .length = send.length,
              .lkey = send.lkey != 0 ? send.lkey : qp.node().mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = send.wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = send.opcode;
  wr.send_flags = send.flags;
  wr.imm_data = send.imm;
  if (send.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {.remote_addr = send.remote_addr,
                    .compare_add = send.compare_add,
                    .swap = send.swap,
                    .rkey = send.rkey};
  } else if (send.ah != nullptr) {
    wr.wr.ud = {.ah = send.ah, .remote_qpn = send.dest_qpn, .remote_qkey = send.dest_qkey};
  } else {
    wr.wr.rdma = {.remote_addr = send.remote_addr, .rkey = send.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp.get(), &wr, &bad);
}

int post_recv(Qp& qp, uint64_t wr_id, size_t offset, uint32_t length, uint32_t lkey) {
  ibv_sge sge{.addr = qp.node().at(offset),
              .length = length,
              .lkey = lkey != 0 ? lkey : qp.node().mr->lkey};
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp.get(), &wr, &bad);
}

int post_srq(Node& node, uint64_t wr_id, size_t offset, uint32_t length) {
  ibv_sge sge{.addr = node.at(offset), .length = length, .lkey = node.mr->lkey};
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(node.srq, &wr, &bad);
}

std::vector<ibv_wc> poll(ibv_cq* cq, size_t n, const Wait& wait, uint64_t limit_ns,
                         uint64_t step_ns) {
  std::vector<ibv_wc> got;
  for (uint64_t waited = 0;; waited += step_ns) {
    while (got.size() < n) {
      ibv_wc wc{};
      const int rc = ibv_poll_cq(cq, 1, &wc);
      EXPECT_GE(rc, 0);
      if (rc <= 0) break;
      got.push_back(wc);
    }
    if (got.size() == n || waited >= limit_ns) return got;
    wait(step_ns);
  }
}

ibv_wc poll_one(ibv_cq* cq, const Wait& wait, uint64_t limit_ns, uint64_t step_ns) {
  const std::vector<ibv_wc> got = poll(cq, 1, wait, limit_ns, step_ns);
  EXPECT_EQ(got.size(), 1U) << "no completion came";
  if (got.size() == 1) return got[0];
  ibv_wc none{};
  none.wr_id = UINT64_MAX;
  none.status = IBV_WC_GENERAL_ERR;
  return none;
}

bool quiet(ibv_cq* cq, const Wait& wait, uint64_t ns) { return poll(cq, 1, wait, ns).empty(); }

int next_event(ibv_context* ctx, const Wait& wait, uint64_t limit_ns, void** element) {
  const int flags = fcntl(ctx->async_fd, F_GETFL);
  fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK);
  int type = -1;
  for (uint64_t waited = 0; type < 0; waited += kStep) {
    ibv_async_event event{};
    if (ibv_get_async_event(ctx, &event) == 0) {
      type = event.event_type;
      if (element != nullptr) *element = event.element.qp;
      ibv_ack_async_event(&event);
    } else if (waited >= limit_ns) {
      break;
    } else {
      wait(kStep);
    }
  }
  fcntl(ctx->async_fd, F_SETFL, flags);
  return type;
}

}  // namespace kit
