#include "softhca/engine/recv_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>

#include "softhca/engine/events.h"
#include "softhca/engine/receive_ring.h"

namespace softhca {

int RecvQueue::create(Process& process, uint32_t wr, uint32_t sge, uint32_t pd, bool shared,
                      Off event_wake) {
  proc = &process;
  max_wr = wr;
  max_sge = std::max(sge, 1U);
  capacity = std::bit_ceil(std::max(wr, 1U));
  const uint32_t stride = 16 + 16 * max_sge;
  const Off off = process.take(Process::Pool::Rq);
  if (off == 0) return ENOMEM;
  sh = process.segment().at<RqShared>(off);
  ring_off = process.segment().alloc(std::size_t{capacity} * stride);
  if (ring_off == 0) {
    process.give_back(Process::Pool::Rq, off);
    sh = nullptr;
    return ENOMEM;
  }
  ring = process.segment().at<char>(ring_off);
  sh->ring = ring_off;
  sh->mask = capacity - 1;
  sh->stride = stride;
  sh->pd = pd;
  sh->shared = shared ? 1 : 0;
  sh->event_wake = event_wake;
  sh->tail = 0;
  sh->head = 0;
  sh->tail_seen = 0;
  sh->limit = 0;
  sh->limit_hit = 0;
  sh->owner = reinterpret_cast<uint64_t>(this);
  sh->many_cqs = 0;
  return 0;
}

void RecvQueue::destroy() {
  if (sh == nullptr) return;
  if (!proc->inert()) {
    {
      std::lock_guard guard(proc->registry());
      for (Cq* cq : proc->cqs()) {
        std::lock_guard cq_guard(cq->lock);
        forget_queue(*cq, proc->segment().offset_of(sh));
      }
    }
    proc->segment().free(ring_off, std::size_t{capacity} * sh->stride);
    proc->give_back(Process::Pool::Rq, proc->segment().offset_of(sh));
  }
  sh = nullptr;
}

bool RecvQueue::has_room() noexcept {
  if (tail - head_seen < max_wr) return true;
  head_seen = polled.load(std::memory_order_acquire);
  if (tail - head_seen < max_wr) [[likely]]
    return true;
  if (sh->many_cqs.load(std::memory_order_relaxed) == 0 ||
      static_cast<int32_t>(head_seen - narrow_until) < 0) {
    return false;
  }
  head_seen = sh->head.load(std::memory_order_acquire);
  return tail - head_seen < max_wr;
}

void RecvQueue::serve_many_cqs() noexcept {
  if (sh->many_cqs.load() != 0) return;
  narrow_until = sh->head.load();
  sh->many_cqs.store(1);
}

int RecvQueue::post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (proc->inert()) [[unlikely]] {
    if (bad != nullptr) *bad = wr;
    return EIO;
  }
  std::lock_guard guard(lock);
  const uint32_t before = tail;
  int rc = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (!has_room()) {
      rc = ENOMEM;
      break;
    }
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > max_sge) {
      rc = EINVAL;
      break;
    }
    RecvWqe* slot = wqe(tail);
    slot->wr_id = wr->wr_id;
    slot->num_sge = static_cast<uint32_t>(wr->num_sge);
    uint64_t total = 0;
    for (uint32_t i = 0; i < slot->num_sge; ++i) {
      const ibv_sge& sge = wr->sg_list[i];
      (&slot->sge[0])[i] = {sge.addr, sge.length, sge.lkey};
      total += sge.length;
    }
    slot->total = static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX));
    ++tail;
  }
  if (tail != before) {
    sh->tail.store(tail, std::memory_order_release);
    // An initiator read the next place when it was last used; the next post wants it back.
    prefetch_for_write(wqe(tail));
    kill_point(KillPoint::recv_posted);
  }
  if (rc != 0 && bad != nullptr) *bad = wr;
  return rc;
}

Srq* create_srq(Pd& pd, ibv_srq_init_attr& init) {
  Context& ctx = *pd.ctx;
  const Limits& lim = ctx.limits();
  const ibv_srq_attr& want = init.attr;
  if (lim.max_srq == 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (want.max_wr == 0 || want.max_wr > lim.max_srq_wr || want.max_sge > lim.max_srq_sge) {
    errno = EINVAL;
    return nullptr;
  }
  if (ctx.srqs.fetch_add(1) >= lim.max_srq) {
    ctx.srqs.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  auto* srq = new (std::nothrow) Srq;
  const int rc = srq == nullptr || ctx.proc->inert()
                     ? ENOMEM
                     : srq->rq.create(*ctx.proc, want.max_wr, want.max_sge, pd.id, true, ctx.wake);
  if (rc != 0) {
    delete srq;
    ctx.srqs.fetch_sub(1);
    errno = rc;
    return nullptr;
  }
  srq->owner = &pd;
  srq->srq.context = &ctx.vctx.context;
  srq->srq.srq_context = init.srq_context;
  srq->srq.pd = &pd.pd;
  srq->number = ctx.proc->segment().offset_of(srq->rq.sh) / static_cast<uint32_t>(kLine);
  srq->srq.handle = srq->number;
  pthread_mutex_init(&srq->srq.mutex, nullptr);
  pthread_cond_init(&srq->srq.cond, nullptr);
  init.attr.max_sge = srq->rq.max_sge;
  pd.users.fetch_add(1);
  std::lock_guard guard(ctx.proc->registry());
  ctx.proc->srqs().push_back(srq);
  return srq;
}

int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    // Resizing within the ring that exists; a larger ring would need every initiator's consent.
    if (attr.max_wr == 0 || attr.max_wr > srq.rq.capacity) return EINVAL;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0 && attr.srq_limit > srq.rq.max_wr) return EINVAL;
  Process& proc = *srq.rq.proc;
  std::lock_guard guard(srq.rq.lock);
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    const uint32_t used = srq.rq.tail - srq.rq.sh->head.load();
    if (attr.max_wr < used) return EINVAL;
    srq.rq.max_wr = attr.max_wr;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (!proc.lock(proc.self())) return EIO;
    RqShared& sh = *srq.rq.sh;
    sh.limit_hit = 0;
    sh.limit = attr.srq_limit;
    // Already below: the event is due at once.
    const bool below = sh.limit != 0 && srq.rq.tail - sh.head.load() < sh.limit;
    if (below) {
      sh.limit = 0;
      sh.limit_hit = 1;
      proc.hdr()->attention.fetch_add(1);
    }
    proc.unlock(proc.self());
    if (below) proc.waker().wake(*proc.segment().at<WakeAddr>(sh.event_wake));
  }
  return 0;
}

int query_srq(Srq& srq, ibv_srq_attr* attr) {
  attr->max_wr = srq.rq.max_wr;
  attr->max_sge = srq.rq.max_sge;
  attr->srq_limit = srq.rq.sh->limit;
  return 0;
}

int destroy_srq(Srq* srq) {
  if (srq->users != 0) return EBUSY;
  Context& ctx = *srq->owner->ctx;
  Process& proc = *ctx.proc;
  if (!proc.inert()) {
    std::lock_guard guard(proc.registry());
    auto& all = proc.srqs();
    all.erase(std::remove(all.begin(), all.end(), srq), all.end());
  }
  forget_events(ctx, srq);
  pthread_mutex_lock(&srq->srq.mutex);
  while (srq->events_fetched != srq->srq.events_completed && !proc.inert()) {
    pthread_cond_wait(&srq->srq.cond, &srq->srq.mutex);
  }
  pthread_mutex_unlock(&srq->srq.mutex);
  srq->rq.destroy();
  srq->owner->users.fetch_sub(1);
  ctx.srqs.fetch_sub(1);
  delete srq;
  return 0;
}

}  // namespace softhca
