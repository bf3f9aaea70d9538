#include "softhca/api/extended.h"

#include <cerrno>

#include "softhca/engine/cq.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/recv_queue.h"

namespace softhca {

namespace {

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr uint64_t kWcFlags = IBV_WC_STANDARD_FLAGS;

Cq* of(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }

int next_poll(ibv_cq_ex* cq) {
  Cq* self = of(cq);
  const int n = poll_cq(self, 1, &self->current);
  if (n < 1) return n == 0 ? ENOENT : EIO;
  cq->wr_id = self->current.wr_id;
  cq->status = self->current.status;
  return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  return next_poll(cq);
}

void end_poll(ibv_cq_ex*) {}

void install_readers(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* c) { return of(c)->current.opcode; };
  cq.read_vendor_err = [](ibv_cq_ex* c) { return of(c)->current.vendor_err; };
  cq.read_byte_len = [](ibv_cq_ex* c) { return of(c)->current.byte_len; };
  cq.read_imm_data = [](ibv_cq_ex* c) { return of(c)->current.imm_data; };
  cq.read_qp_num = [](ibv_cq_ex* c) { return of(c)->current.qp_num; };
  cq.read_src_qp = [](ibv_cq_ex* c) { return of(c)->current.src_qp; };
  cq.read_wc_flags = [](ibv_cq_ex* c) { return of(c)->current.wc_flags; };
  cq.read_slid = [](ibv_cq_ex* c) { return uint32_t{of(c)->current.slid}; };
  cq.read_sl = [](ibv_cq_ex* c) { return of(c)->current.sl; };
  cq.read_dlid_path_bits = [](ibv_cq_ex* c) { return of(c)->current.dlid_path_bits; };
}

}  // namespace

ibv_cq_ex* ext_create_cq(ibv_context* context, ibv_cq_init_attr_ex* init) {
  constexpr uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  if ((init->wc_flags & ~kWcFlags) != 0 ||
      (init->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      ((init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (init->flags & ~kFlags) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (init->comp_vector != 0) {
    errno = EINVAL;
    return nullptr;
  }
  if (const int rc = fault_on_call(*context_of(context), FaultCall::CreateCq); rc != 0) {
    errno = rc;
    return nullptr;
  }
  Cq* cq =
      create_cq(*context_of(context), static_cast<int>(init->cqe), init->cq_context, init->channel);
  if (cq == nullptr) return nullptr;
  install_readers(cq->ex);
  return &cq->ex;
}

ibv_qp* ext_create_qp(ibv_context* context, ibv_qp_init_attr_ex* init) {
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const bool flags_used =
      (init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && init->create_flags != 0;
  const bool builder = (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if ((init->comp_mask & ~kKnown) != 0 || flags_used ||
      (builder && (init->send_ops_flags & ~kSendOps) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((init->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || init->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  if (const int rc = fault_on_call(*context_of(context), FaultCall::CreateQp); rc != 0) {
    errno = rc;
    return nullptr;
  }
  // The public structs share their first members.
  auto* plain = reinterpret_cast<ibv_qp_init_attr*>(init);
  Qp* qp = create_qp(*pd_of(init->pd), *plain);
  if (qp == nullptr) return nullptr;
  if (builder) install_builder(*qp);
  return base_of(qp);
}

ibv_srq* ext_create_srq(ibv_context*, ibv_srq_init_attr_ex*) {
  // Basic SRQs come through ibv_create_srq; XRC and tag matching are not served.
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace softhca
