#include "softhca/engine/cq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/receive_ring.h"

namespace softhca {

namespace {

// Takes one send completion; false if it was cleaned away.
bool take_send(Cq& cq, ibv_wc* wc) noexcept {
  const SendCompletion& done = cq.sends[cq.send_head & cq.send_mask];
  ++cq.send_head;
  cq.send_count.fetch_sub(1, std::memory_order_relaxed);
  if (done.qp == nullptr) return false;
  // This completion and all work before it on the queue pair give their slots back.
  if (done.sq_index >= done.qp->freed.load(std::memory_order_relaxed)) {
    done.qp->freed.store(done.sq_index + 1, std::memory_order_relaxed);
  }
  if (done.status != IBV_WC_SUCCESS) [[unlikely]] {
    describe_error(wc, done.wr_id, done.status, done.qpn, done.vendor_err);
    return true;
  }
  wc->wr_id = done.wr_id;
  wc->status = IBV_WC_SUCCESS;
  wc->opcode = static_cast<ibv_wc_opcode>(done.opcode);
  wc->vendor_err = 0;
  wc->byte_len = done.byte_len;
  wc->imm_data = 0;
  wc->qp_num = done.qpn;
  wc->src_qp = 0;
  wc->wc_flags = 0;
  wc->pkey_index = 0;
  wc->slid = 0;
  wc->sl = 0;
  wc->dlid_path_bits = 0;
  return true;
}

int take_sends(Cq& cq, int entries, ibv_wc* wc) noexcept {
  int got = 0;
  while (got < entries && cq.send_count.load(std::memory_order_acquire) != 0) {
    if (take_send(cq, wc + got)) ++got;
  }
  return got;
}

// What was taken up to here is free again.
void publish_head(Cq& cq, uint64_t head) noexcept {
  set_ring_head(cq, head);
  cq.sh->popped.store(cq.popped, std::memory_order_relaxed);
  cq.sh->head.store(head, std::memory_order_release);
}

// As poll_cq, while the fault schedule decides which receives are seen.
int poll_asking(Cq& cq, Injector& faults, int entries, ibv_wc* wc) {
  std::lock_guard guard(cq.lock);
  int got = take_sends(cq, entries, wc);
  while (got < entries && !faults.holds_back(cq)) {
    RecordHeader* record = published_at(cq, cq.head);
    if (record == nullptr) break;
    const uint64_t head = cq.head + record_blocks(record->flags(), record->byte_len);
    ++cq.popped;
    if (take_record(cq, *record, wc + got)) ++got;
    publish_head(cq, head);
  }
  return got;
}

}  // namespace

uint32_t ring_blocks(uint32_t entries) noexcept {
  const uint32_t spare = std::clamp<uint32_t>(4 * entries, 160, 512);
  return std::bit_ceil(entries + spare);
}

Cq* create_cq(Context& ctx, int cqe, void* user, ibv_comp_channel* channel) {
  Process& proc = *ctx.proc;
  if (cqe < 1 || static_cast<uint32_t>(cqe) > ctx.limits().max_cqe) {
    errno = EINVAL;
    return nullptr;
  }
  if (ctx.cqs.fetch_add(1) >= ctx.limits().max_cq || proc.inert()) {
    ctx.cqs.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  const auto entries = static_cast<uint32_t>(cqe);
  const uint32_t blocks = ring_blocks(entries);
  const uint32_t send_slots = std::bit_ceil(entries);
  auto cq = std::unique_ptr<Cq>(new (std::nothrow) Cq);
  if (cq) cq->sends = LazyArray<SendCompletion>(send_slots);
  const Off off = proc.take(Process::Pool::Cq);
  const Off ring = off == 0 ? 0 : proc.segment().alloc(std::size_t{blocks} * kBlockBytes);
  if (!cq || !cq->sends || ring == 0) {
    proc.give_back(Process::Pool::Cq, off);
    ctx.cqs.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  CqShared& sh = *proc.segment().at<CqShared>(off);
  sh.ring = ring;
  sh.blocks = blocks;
  sh.cqe = entries;
  sh.channel = channel == nullptr ? 0 : channel_of(channel)->wake;
  sh.event_wake = ctx.wake;
  sh.key = random_u64();
  sh.tail = 0;
  sh.pushed = 0;
  sh.head_seen = 0;
  sh.popped_seen = 0;
  sh.dead = 0;
  sh.head = 0;
  sh.popped = 0;
  sh.armed = static_cast<uint32_t>(NotifyState::None);
  sh.pending = 0;
  cq->proc = &proc;
  cq->ctx = &ctx;
  cq->sh = &sh;
  cq->ring = proc.segment().at<char>(ring);
  cq->block_mask = blocks - 1;
  cq->key = sh.key;
  cq->send_mask = send_slots - 1;
  set_ring_head(*cq, 0);
  cq->ex.context = &ctx.vctx.context;
  cq->ex.channel = channel;
  cq->ex.cq_context = user;
  cq->ex.cqe = cqe;
  cq->ex.handle = off / static_cast<uint32_t>(kLine);
  pthread_mutex_init(&cq->ex.mutex, nullptr);
  pthread_cond_init(&cq->ex.cond, nullptr);
  if (channel != nullptr) {
    cq->channel = channel_of(channel);
    std::lock_guard guard(cq->channel->mutex);
    cq->channel->cqs.push_back(cq.get());
    ++channel->refcnt;
  }
  std::lock_guard guard(proc.registry());
  proc.cqs().push_back(cq.get());
  return cq.release();
}

int destroy_cq(Cq* cq) {
  if (cq->users != 0) return EBUSY;
  Process& proc = *cq->proc;
  if (!proc.inert()) {
    std::lock_guard guard(proc.registry());
    auto& all = proc.cqs();
    all.erase(std::remove(all.begin(), all.end(), cq), all.end());
  }
  if (cq->channel != nullptr) {
    std::lock_guard guard(cq->channel->mutex);
    auto& all = cq->channel->cqs;
    all.erase(std::remove(all.begin(), all.end(), cq), all.end());
    --cq->channel->channel.refcnt;
  }
  forget_events(*cq->ctx, cq);
  if (Injector* const faults = proc.injector(); faults != nullptr) faults->late().forget(*cq);
  pthread_mutex_lock(&cq->ex.mutex);
  while ((cq->comp_events_fetched != cq->ex.comp_events_completed ||
          cq->async_events_fetched != cq->ex.async_events_completed) &&
         !proc.inert()) {
    pthread_cond_wait(&cq->ex.cond, &cq->ex.mutex);
  }
  pthread_mutex_unlock(&cq->ex.mutex);
  if (!proc.inert()) {
    proc.segment().free(cq->sh->ring, std::size_t{cq->sh->blocks} * kBlockBytes);
    proc.give_back(Process::Pool::Cq, proc.segment().offset_of(cq->sh));
  }
  cq->ctx->cqs.fetch_sub(1);
  delete cq;
  return 0;
}

int poll_cq(Cq* cq, int entries, ibv_wc* wc) {
  if (cq->proc->needs_service()) [[unlikely]] {
    cq->proc->service();
    Injector* const faults = cq->proc->injector();
    if (faults != nullptr) return poll_asking(*cq, *faults, entries, wc);
  }
  if (cq->send_count.load(std::memory_order_acquire) == 0 &&
      cq->next.load(std::memory_order_relaxed)->seq.load(std::memory_order_relaxed) !=
          cq->next_seq.load(std::memory_order_relaxed)) {
    // The second half of a small message lands behind its header; ask for that line meanwhile.
    __builtin_prefetch(cq->next.load(std::memory_order_relaxed) + 1);
    return 0;
  }
  std::lock_guard guard(cq->lock);
  int got = take_sends(*cq, entries, wc);
  const uint64_t before = cq->head;
  uint64_t head = before;
  while (got < entries) {
    RecordHeader* record = published_at(*cq, head);
    if (record == nullptr) break;
    head += record_blocks(record->flags(), record->byte_len);
    ++cq->popped;
    if (take_record(*cq, *record, wc + got)) ++got;
  }
  if (head != before) {
    publish_head(*cq, head);
    kill_point(KillPoint::poll_head_advanced);
  }
  return got;
}

int req_notify_cq(Cq* cq, bool solicited_only) {
  const auto want =
      static_cast<uint32_t>(solicited_only ? NotifyState::Solicited : NotifyState::Any);
  uint32_t armed = cq->sh->armed.load();
  while (armed < want && !cq->sh->armed.compare_exchange_weak(armed, want)) {
  }
  // The application polls once more after this; a producer that stores after that poll must see
  // `armed`, which the full barrier of the exchange and the producer's fence give.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return 0;
}

bool push_send(Cq& cq, const SendCompletion& completion) {
  {
    std::lock_guard guard(cq.lock);
    const uint32_t count = cq.send_count.load(std::memory_order_relaxed);
    const auto capacity = static_cast<uint32_t>(cq.ex.cqe);
    uint64_t total = count;
    if (count >= capacity / 2) total += cq.sh->pushed.load(std::memory_order_relaxed) - cq.popped;
    if (total >= capacity) [[unlikely]] {
      cq.sh->dead.store(1);
      cq.proc->hdr()->attention.fetch_add(1);
      return false;
    }
    if (count == 0) cq.send_head = 0;  // so that no more memory is touched than was ever in use
    cq.sends[(cq.send_head + count) & cq.send_mask] = completion;
    cq.send_count.store(count + 1, std::memory_order_release);
  }
  if (cq.channel != nullptr) notify_private(cq, completion.status != IBV_WC_SUCCESS);
  return true;
}

void notify_private(Cq& cq, bool solicited) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (cq.channel == nullptr) return;
  uint32_t armed = cq.sh->armed.load();
  const auto needed = static_cast<uint32_t>(solicited ? NotifyState::Solicited : NotifyState::Any);
  if (armed < needed) return;
  Process& proc = *cq.proc;
  if (!proc.lock(proc.self())) return;
  if (cq.sh->armed.exchange(0) != 0) cq.sh->pending.fetch_add(1);
  proc.unlock(proc.self());
  proc.waker().wake(*proc.segment().at<WakeAddr>(cq.sh->channel));
}

void clean_cq(Cq& cq, uint32_t qpn) {
  std::lock_guard guard(cq.lock);
  const uint32_t count = cq.send_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    SendCompletion& done = cq.sends[(cq.send_head + i) & cq.send_mask];
    if (done.qpn == qpn) done.qp = nullptr;
  }
  drop_records(cq, qpn);
}

void place_pending(Cq& cq, uint64_t addr, uint64_t length) {
  std::lock_guard guard(cq.lock);
  place_records(cq, addr, length);
}

}  // namespace softhca
