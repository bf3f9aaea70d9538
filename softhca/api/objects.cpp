// Exported calls that create, change and destroy objects. Each asks the fault schedule first, then
// the engine; pointers come back null with errno, everything else returns an errno value.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>

#include "softhca/engine/context.h"
#include "softhca/engine/cq.h"
#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/mr.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/recv_queue.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using softhca::context_of;
using softhca::FaultCall;

namespace {

int injected(ibv_context* context, FaultCall call, int to_state = -1) {
  return softhca::fault_on_call(*context_of(context), call, to_state);
}

// True with errno set: the schedule fails this call.
bool refused(ibv_context* context, FaultCall call) {
  const int rc = injected(context, call);
  if (rc != 0) errno = rc;
  return rc != 0;
}

ibv_mr* register_region(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  if (refused(pd->context, FaultCall::RegMr)) return nullptr;
  softhca::Mr* mr = softhca::reg_mr(*softhca::pd_of(pd), addr, length, iova, access);
  return mr == nullptr ? nullptr : &mr->mr;
}

}  // namespace

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (refused(context, FaultCall::AllocPd)) return nullptr;
  softhca::Pd* pd = softhca::alloc_pd(*context_of(context));
  return pd == nullptr ? nullptr : &pd->pd;
}

int ibv_dealloc_pd(ibv_pd* pd) { return softhca::dealloc_pd(softhca::pd_of(pd)); }

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_region(pd, addr, length, reinterpret_cast<uintptr_t>(addr),
                         static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_region(pd, addr, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  return register_region(pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}

int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;  // the region is as it was
}

int ibv_dereg_mr(ibv_mr* mr) { return softhca::dereg_mr(softhca::mr_of(mr)); }

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (refused(context, FaultCall::CreateCompChannel)) return nullptr;
  softhca::Channel* channel = softhca::create_channel(*context_of(context));
  return channel == nullptr ? nullptr : &channel->channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return softhca::destroy_channel(softhca::channel_of(channel));
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel,
                      int vector) {
  if (refused(context, FaultCall::CreateCq)) return nullptr;
  if (vector < 0 || vector >= context->num_comp_vectors) {
    errno = EINVAL;
    return nullptr;
  }
  softhca::Cq* cq = softhca::create_cq(*context_of(context), cqe, user, channel);
  return cq == nullptr ? nullptr : softhca::base_of(cq);
}

int ibv_resize_cq(ibv_cq* cq, int cqe) { return softhca::resize_cq(softhca::cq_of(cq), cqe); }

int ibv_destroy_cq(ibv_cq* cq) { return softhca::destroy_cq(softhca::cq_of(cq)); }

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
  return softhca::get_cq_event(*softhca::channel_of(channel), cq, user);
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  softhca::ack_cq_events(*softhca::cq_of(cq), count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return softhca::get_async_event(*context_of(context), event);
}

void ibv_ack_async_event(ibv_async_event* event) { softhca::ack_async_event(*event); }

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (refused(pd->context, FaultCall::CreateSrq)) return nullptr;
  softhca::Srq* srq = softhca::create_srq(*softhca::pd_of(pd), *init);
  return srq == nullptr ? nullptr : &srq->srq;
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  const int rc = injected(srq->context, FaultCall::ModifySrq);
  return rc != 0 ? rc : softhca::modify_srq(*softhca::srq_of(srq), *attr, mask);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return softhca::query_srq(*softhca::srq_of(srq), attr);
}

int ibv_destroy_srq(ibv_srq* srq) { return softhca::destroy_srq(softhca::srq_of(srq)); }

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (refused(pd->context, FaultCall::CreateQp)) return nullptr;
  softhca::Qp* qp = softhca::create_qp(*softhca::pd_of(pd), *init);
  return qp == nullptr ? nullptr : softhca::base_of(qp);
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  const int to = (mask & IBV_QP_STATE) != 0 ? static_cast<int>(attr->qp_state) : -1;
  const int rc = injected(qp->context, FaultCall::ModifyQp, to);
  return rc != 0 ? rc : softhca::modify_qp(*softhca::qp_of(qp), *attr, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  const int rc = injected(qp->context, FaultCall::QueryQp);
  return rc != 0 ? rc : softhca::query_qp(*softhca::qp_of(qp), attr, init);
}

int ibv_destroy_qp(ibv_qp* qp) { return softhca::destroy_qp(softhca::qp_of(qp)); }

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  softhca::Qp* self = softhca::qp_of(qp);
  return self->has_builder ? &self->ex : nullptr;
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  std::memset(ece, 0, sizeof(*ece));
  return 0;
}

int ibv_set_ece(ibv_qp*, ibv_ece* ece) { return ece->vendor_id == 0 ? 0 : EOPNOTSUPP; }

int ibv_attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return EOPNOTSUPP; }
int ibv_detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return EOPNOTSUPP; }

ibv_pd* ibv_import_pd(ibv_context*, uint32_t) {
  errno = EOPNOTSUPP;
  return nullptr;
}
void ibv_unimport_pd(ibv_pd*) {}
ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) {
  errno = EOPNOTSUPP;
  return nullptr;
}
void ibv_unimport_mr(ibv_mr*) {}
ibv_dm* ibv_import_dm(ibv_context*, uint32_t) {
  errno = EOPNOTSUPP;
  return nullptr;
}
void ibv_unimport_dm(ibv_dm*) {}
