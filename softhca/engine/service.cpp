// The owner looks at its objects: what peers marked, what a timer made due. One pass at a time.
#include <algorithm>
#include <mutex>

#include "softhca/engine/cq.h"
#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/process.h"
#include "softhca/engine/qp.h"

namespace softhca {

namespace {

// An overrun kills the queue and everything that reports to it.
void service_cq(Process& proc, Cq& cq) {
  if (cq.sh->dead.load() == 0 || cq.overrun_reported) return;
  cq.overrun_reported = true;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = base_of(&cq);
  raise_event(*cq.ctx, event);
  for (Qp* qp : proc.qps()) {
    if (qp->send_cq != &cq && qp->recv_cq != &cq) continue;
    std::lock_guard guard(qp->sq_lock);
    if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_ERR) continue;
    if (proc.lock(proc.self())) {
      qp->sh->state.store(IBV_QPS_ERR);
      qp->sh->events.fetch_or(kQpFatal);
      proc.unlock(proc.self());
    }
  }
}

void service_srq(Srq& srq) {
  if (srq.rq.sh->limit_hit.exchange(0) == 0) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &srq.srq;
  raise_event(*srq.owner->ctx, event);
}

}  // namespace

void Process::service() {
  if (inert_) return;
  const uint32_t attention = hdr_->attention.load(std::memory_order_acquire);
  const bool looked_at = attention == attention_seen_.load(std::memory_order_acquire);
  const uint64_t deadline = next_deadline_.load();
  if (looked_at && (deadline == UINT64_MAX || now() < deadline)) return;
  std::lock_guard guard(registry_);
  if (!looked_at) {
    attention_seen_.store(attention, std::memory_order_release);
    if (global()->faults.epoch.load() != faults_seen_) refresh_faults();
    for (Cq* cq : cqs_) service_cq(*this, *cq);
    for (Srq* srq : srqs_) service_srq(*srq);
    for (Qp* qp : qps_) service_qp(*qp);
    for (Context* ctx : contexts_) service_ports(*ctx);
    for (Channel* channel : channels_) repeat_wake_up(*channel);
  }
  drive(now());
}

void Process::drive(uint64_t now_ns) {
  if (next_deadline_.load() > now_ns) return;
  next_deadline_.store(UINT64_MAX);
  uint64_t earliest = UINT64_MAX;
  for (Qp* qp : qps_) {
    if (qp->next_try.load() == UINT64_MAX) continue;
    std::lock_guard guard(qp->sq_lock);
    if (qp->next_try.load() <= now_ns) {
      qp->next_try.store(UINT64_MAX);
      if (qp->state == IBV_QPS_ERR) {
        flush_qp(*qp);  // the fault schedule had held it back
      } else if (!qp->pending.empty()) {
        drive_pending(*qp, now_ns);
      }
    }
    earliest = std::min(earliest, qp->next_try.load());
  }
  if (Injector* const faults = injector(); faults != nullptr) {
    faults->run_due(now_ns);
    earliest = std::min(earliest, faults->next_due());
  }
  schedule(earliest);
}

}  // namespace softhca
