#include "softhca/engine/qp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "softhca/engine/busy.h"
#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/rules/timers.h"

namespace softhca {

namespace {

int check_init(const Context& ctx, const ibv_qp_init_attr& init) noexcept {
  const Limits& lim = ctx.limits();
  const ibv_qp_cap& cap = init.cap;
  if (init.qp_type != IBV_QPT_RC && init.qp_type != IBV_QPT_UC && init.qp_type != IBV_QPT_UD) {
    return EOPNOTSUPP;
  }
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  if (init.srq != nullptr && init.qp_type == IBV_QPT_UC) return EINVAL;
  if (cap.max_send_wr > lim.max_qp_wr || cap.max_send_sge > lim.max_sge ||
      cap.max_inline_data > lim.max_inline) {
    return EINVAL;
  }
  if (init.srq == nullptr && (cap.max_recv_wr > lim.max_qp_wr || cap.max_recv_sge > lim.max_sge)) {
    return EINVAL;
  }
  return 0;
}

int create_shared(Qp& qp, Pd& pd, const ibv_qp_init_attr& init) {
  Process& proc = *qp.proc;
  qp.off = proc.take(Process::Pool::Qp);
  if (qp.off == 0) return ENOMEM;
  qp.sh = proc.segment().at<QpShared>(qp.off);
  QpShared& sh = *qp.sh;
  if (qp.srq == nullptr) {
    const int rc =
        qp.rq.create(proc, init.cap.max_recv_wr, init.cap.max_recv_sge, pd.id, false, qp.ctx->wake);
    if (rc != 0) return rc;
  }
  if (qp.srq != nullptr && proc.lock(proc.self())) {
    RecvQueue& rq = qp.srq->rq;
    if (rq.only_cq != nullptr && rq.only_cq != qp.recv_cq->sh) rq.serve_many_cqs();
    rq.only_cq = qp.recv_cq->sh;
    proc.unlock(proc.self());
  }
  sh.state = IBV_QPS_RESET;
  sh.type = init.qp_type;
  sh.dest_qpn = 0;
  sh.pd = pd.id;
  sh.rq = proc.segment().offset_of(qp.srq != nullptr ? qp.srq->rq.sh : qp.rq.sh);
  sh.cq = proc.segment().offset_of(qp.recv_cq->sh);
  sh.event_wake = qp.ctx->wake;
  sh.device = static_cast<uint8_t>(qp.ctx->device->index);
  sh.port = 0;
  sh.busy = kFreeWord;
  sh.rx_psn = 0;
  sh.events = 0;
  sh.reserved = 0;
  sh.tx_messages = 0;
  sh.tx_bytes = 0;
  sh.rnr_naks = 0;
  sh.retries = 0;
  Injector* const faults = proc.injector();
  const uint32_t reused =
      faults == nullptr ? 0 : faults->reused_qpn(*qp.ctx, proc.last_released_qpn());
  const uint32_t qpn = proc.claim_qpn(qp.off, reused);
  if (qpn == 0) return ENOMEM;
  sh.qpn.store(qpn, std::memory_order_release);
  return 0;
}

void drop_shared(Qp& qp) {
  Process& proc = *qp.proc;
  if (qp.sh == nullptr || proc.inert()) return;
  if (qp.sh->qpn != 0) proc.release_qpn(qp.sh->qpn);
  qp.sh->qpn = 0;
  qp.rq.destroy();
  proc.give_back(Process::Pool::Qp, qp.off);
}

}  // namespace

Qp* create_qp(Pd& pd, ibv_qp_init_attr& init) {
  Context& ctx = *pd.ctx;
  int rc = check_init(ctx, init);
  if (rc != 0) {
    errno = rc;
    return nullptr;
  }
  if (ctx.qps.fetch_add(1) >= ctx.limits().max_qp || ctx.proc->inert()) {
    ctx.qps.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  auto qp = std::unique_ptr<Qp>(new (std::nothrow) Qp);
  if (!qp) {
    ctx.qps.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  qp->proc = ctx.proc;
  qp->ctx = &ctx;
  qp->owner = &pd;
  qp->type = init.qp_type;
  qp->send_cq = cq_of(init.send_cq);
  qp->recv_cq = cq_of(init.recv_cq);
  qp->srq = init.srq != nullptr ? srq_of(init.srq) : nullptr;
  qp->sq_signal_all = init.sq_sig_all != 0;
  init.cap.max_send_sge = std::max(init.cap.max_send_sge, 1U);
  init.cap.max_recv_sge = std::max(init.cap.max_recv_sge, 1U);
  qp->max_send_wr = init.cap.max_send_wr;
  rc = create_shared(*qp, pd, init);
  if (rc != 0) {
    drop_shared(*qp);
    ctx.qps.fetch_sub(1);
    errno = rc;
    return nullptr;
  }
  if (qp->srq != nullptr) init.cap.max_recv_wr = 0;
  qp->init = init;
  qp->attr.cap = init.cap;
  ibv_qp& base = qp->ex.qp_base;
  base.context = &ctx.vctx.context;
  base.qp_context = init.qp_context;
  base.pd = &pd.pd;
  base.send_cq = init.send_cq;
  base.recv_cq = init.recv_cq;
  base.srq = init.srq;
  base.qp_num = qp->sh->qpn;
  base.handle = base.qp_num & (kDirSize - 1);
  base.state = IBV_QPS_RESET;
  base.qp_type = init.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  pd.users.fetch_add(1);
  qp->send_cq->users.fetch_add(1);
  qp->recv_cq->users.fetch_add(1);
  if (qp->srq != nullptr) qp->srq->users.fetch_add(1);
  std::lock_guard guard(ctx.proc->registry());
  ctx.proc->qps().push_back(qp.get());
  return qp.release();
}

int destroy_qp(Qp* qp) {
  Process& proc = *qp->proc;
  Context& ctx = *qp->ctx;
  if (!proc.inert()) {
    {
      std::lock_guard guard(proc.registry());
      auto& all = proc.qps();
      all.erase(std::remove(all.begin(), all.end(), qp), all.end());
    }
    {
      // Nothing is accepted from here on, as after a move to RESET.
      std::lock_guard sq(qp->sq_lock);
      if (proc.lock(proc.self())) {
        qp->sh->state = IBV_QPS_RESET;
        proc.release_qpn(qp->sh->qpn);
        qp->sh->qpn.store(0, std::memory_order_release);
        proc.unlock(proc.self());
      }
      wait_for_busy(proc, *qp->sh);
      forget_flights(*qp);
      qp->pending.clear();
    }
    clean_cq(*qp->send_cq, qp->ex.qp_base.qp_num);
    if (qp->recv_cq != qp->send_cq) clean_cq(*qp->recv_cq, qp->ex.qp_base.qp_num);
  }
  forget_events(ctx, qp);
  ibv_qp& base = qp->ex.qp_base;
  pthread_mutex_lock(&base.mutex);
  while (qp->events_fetched != base.events_completed && !proc.inert()) {
    pthread_cond_wait(&base.cond, &base.mutex);
  }
  pthread_mutex_unlock(&base.mutex);
  drop_shared(*qp);
  qp->owner->users.fetch_sub(1);
  qp->send_cq->users.fetch_sub(1);
  qp->recv_cq->users.fetch_sub(1);
  if (qp->srq != nullptr) qp->srq->users.fetch_sub(1);
  ctx.qps.fetch_sub(1);
  delete qp;
  return 0;
}

int query_qp(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  std::lock_guard guard(qp.sq_lock);
  *attr = qp.attr;
  attr->qp_state = static_cast<ibv_qp_state>(qp.sh->state.load());
  if (qp.state == IBV_QPS_SQE) attr->qp_state = IBV_QPS_SQE;
  attr->cur_qp_state = attr->qp_state;
  attr->sq_psn = qp.sq_psn;
  attr->rq_psn = qp.sh->rx_psn.load();
  attr->sq_draining = qp.state == IBV_QPS_SQD && !qp.pending.empty() ? 1 : 0;
  attr->cap = qp.init.cap;
  if (init != nullptr) *init = qp.init;
  qp.ex.qp_base.state = attr->qp_state;
  return 0;
}

}  // namespace softhca
