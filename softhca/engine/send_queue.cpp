#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "softhca/engine/execute.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/qp.h"
#include "softhca/rules/timers.h"

namespace softhca {

namespace {

bool legal_opcode(const Qp& qp, ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return qp.type != IBV_QPT_UD;
    case IBV_WR_RDMA_READ:
      return qp.type == IBV_QPT_RC;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return qp.type == IBV_QPT_RC && qp.ctx->limits().atomics;
    default:
      return false;
  }
}

bool takes_inline(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// From the public form; 0 or errno.
int read_request(const Qp& qp, const ibv_send_wr& in, SendWr* out) noexcept {
  if (in.num_sge < 0 || static_cast<uint32_t>(in.num_sge) > qp.init.cap.max_send_sge ||
      !legal_opcode(qp, in.opcode)) {
    return EINVAL;
  }
  out->wr_id = in.wr_id;
  out->sge = in.sg_list;
  out->num_sge = static_cast<uint32_t>(in.num_sge);
  out->opcode = in.opcode;
  out->flags = in.send_flags;
  out->imm = in.imm_data;
  uint64_t length = 0;
  for (uint32_t i = 0; i < out->num_sge; ++i) length += in.sg_list[i].length;
  if (length > qp.ctx->limits().max_msg_size) return EINVAL;
  out->length = static_cast<uint32_t>(length);
  if ((in.send_flags & IBV_SEND_INLINE) != 0 &&
      (!takes_inline(in.opcode) || length > qp.init.cap.max_inline_data)) {
    return EINVAL;
  }
  if (qp.type == IBV_QPT_UD) {
    if (in.wr.ud.ah == nullptr) return EINVAL;
    const Ah& ah = *ah_of(in.wr.ud.ah);
    if (ah.owner != qp.owner) return EINVAL;
    out->av = &ah.attr;
    out->remote_qpn = in.wr.ud.remote_qpn;
    out->remote_qkey = in.wr.ud.remote_qkey;
  } else if (in.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || in.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    out->remote_addr = in.wr.atomic.remote_addr;
    out->rkey = in.wr.atomic.rkey;
    out->compare_add = in.wr.atomic.compare_add;
    out->swap = in.wr.atomic.swap;
  } else {
    out->remote_addr = in.wr.rdma.remote_addr;
    out->rkey = in.wr.rdma.rkey;
  }
  return 0;
}

void keep(Qp& qp, const SendWr& wr) {
  PendingWr& p = qp.pending.emplace_back();
  p.wr = wr;
  p.flight = std::exchange(qp.fresh, {});
  p.sge.assign(wr.sge, wr.sge + wr.num_sge);
  if ((wr.flags & IBV_SEND_INLINE) != 0) {
    // Inline data is the caller's again when post returns.
    p.inline_data.reserve(std::max(wr.length, 1U));
    for (const ibv_sge& sge : p.sge) {
      const auto* from = reinterpret_cast<const char*>(sge.addr);
      p.inline_data.insert(p.inline_data.end(), from, from + sge.length);
    }
    const uint32_t length = wr.length;
    p.sge.assign(1, {reinterpret_cast<uint64_t>(p.inline_data.data()), length, 0});
    p.wr.num_sge = 1;
  }
  p.wr.sge = p.sge.data();
  if (wr.av != nullptr) {
    p.av = *wr.av;
    p.wr.av = &p.av;
  }
}

void count_sent(Qp& qp, const SendWr& wr) noexcept {
  QpShared& sh = *qp.sh;
  sh.tx_messages.store(sh.tx_messages.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  sh.tx_bytes.store(sh.tx_bytes.load(std::memory_order_relaxed) + wr.length,
                    std::memory_order_relaxed);
}

void add_one(std::atomic<uint64_t>& counter) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Until when the request that stands first has to wait; false: its retries are used up.
bool plan_retry(Qp& qp, const ExecResult& result, uint64_t now) noexcept {
  if (result.outcome == Outcome::Held) {
    qp.next_try = qp.pending.front().flight.wake;
    return true;
  }
  if (result.outcome == Outcome::NotReady) {
    add_one(qp.sh->rnr_naks);
    qp.tries = 0;  // it did answer
    constexpr uint8_t kForever = 7;
    if (qp.attr.rnr_retry != kForever && qp.rnr_tries >= qp.attr.rnr_retry) return false;
    ++qp.rnr_tries;
    qp.next_try = now + rnr_timer_ns(result.rnr_timer);
    return true;
  }
  add_one(qp.sh->retries);
  // `tries` time-outs have passed; the first transmission and retry_cnt repeats each get one.
  if (qp.tries > qp.attr.retry_cnt) return false;
  ++qp.tries;
  const uint64_t interval = ack_timeout_ns(qp.attr.timeout);
  qp.next_try = interval == kNever ? kNever : now + interval;
  return true;
}

ExecResult attempt(Qp& qp, const SendWr& wr) {
  if (Injector* const faults = qp.proc->injector(); faults != nullptr) [[unlikely]] {
    return faults->first_attempt(qp, wr);
  }
  return execute(qp, wr);
}

ExecResult attempt_again(Qp& qp, PendingWr& pending) {
  Injector* const faults = qp.proc->injector();
  return faults != nullptr ? faults->attempt(qp, pending.wr, pending.flight)
                           : execute(qp, pending.wr);
}

void succeed(Qp& qp, const SendWr& wr) {
  qp.sq_psn = psn_after(qp, wr.length);
  count_sent(qp, wr);
  complete_request(qp, wr, IBV_WC_SUCCESS);
}

void succeed_waiting(Qp& qp, const PendingWr& pending) {
  // What was executed before it was answered has taken its sequence number.
  if (!pending.flight.executed) qp.sq_psn = psn_after(qp, pending.wr.length);
  count_sent(qp, pending.wr);
  complete_request(qp, pending.wr, IBV_WC_SUCCESS);
}

void start_waiting(Qp& qp, const SendWr& wr, const ExecResult& result) {
  keep(qp, wr);
  qp.tries = 0;
  qp.rnr_tries = 0;
  const uint64_t now = qp.proc->now();
  if (!plan_retry(qp, result, now)) {
    const SendWr failed = qp.pending.front().wr;
    qp.pending.pop_front();
    fail_request(qp, failed, result.status);
    return;
  }
  qp.proc->schedule(qp.next_try);
}

// Takes a request that cannot be executed now: the QP is broken or others wait before it.
int submit_behind(Qp& qp, SendWr& wr) {
  if (qp.proc->inert()) return EIO;
  Injector* const faults = qp.proc->injector();
  if (faults != nullptr) {
    const int rc = faults->on_call(*qp.ctx, FaultCall::PostSend);
    if (rc != 0) return rc;
  }
  wr.index = qp.posted++;
  const bool broken = qp.sh->state.load() == IBV_QPS_ERR || qp.state == IBV_QPS_ERR;
  if (broken && qp.state != IBV_QPS_ERR) flush_qp(qp);
  // A flush that is held back keeps its order.
  if ((broken && qp.pending.empty() && qp.flush_at == 0) || qp.state == IBV_QPS_SQE) {
    complete_request(qp, wr, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  qp.fresh = {};
  keep(qp, wr);
  if (faults != nullptr && !broken) faults->run_ahead(qp, qp.pending.back());
  return 0;
}

}  // namespace

int submit(Qp& qp, SendWr& wr) {
  switch (qp.state) {
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE:
    case IBV_QPS_ERR:
      break;
    default:
      return EINVAL;
  }
  if (qp.posted - qp.freed.load(std::memory_order_relaxed) >= qp.max_send_wr) return ENOMEM;
  if (qp.sh->state.load(std::memory_order_relaxed) != IBV_QPS_RTS || qp.state != IBV_QPS_RTS ||
      !qp.pending.empty()) [[unlikely]] {
    return submit_behind(qp, wr);
  }
  wr.index = qp.posted++;
  const ExecResult result = attempt(qp, wr);
  switch (result.outcome) {
    case Outcome::Done:
    case Outcome::NoEffect:
      succeed(qp, wr);
      break;
    case Outcome::NotReady:
    case Outcome::NoAnswer:
    case Outcome::Held:
      start_waiting(qp, wr, result);
      break;
    case Outcome::LocalError:
    case Outcome::RemoteError:
      fail_request(qp, wr, result.status);
      break;
    case Outcome::Refused:
      --qp.posted;
      return qp.fresh.refusal;
  }
  return 0;
}

void drive_pending(Qp& qp, uint64_t now) {
  while (!qp.pending.empty() && qp.state == IBV_QPS_RTS) {
    if (qp.sh->state.load() == IBV_QPS_ERR) return;  // service_qp flushes
    const ExecResult result = attempt_again(qp, qp.pending.front());
    if (result.outcome == Outcome::Done || result.outcome == Outcome::NoEffect) {
      succeed_waiting(qp, qp.pending.front());
      qp.pending.pop_front();
      qp.tries = 0;
      qp.rnr_tries = 0;
      qp.next_try = UINT64_MAX;
      continue;
    }
    const bool waits = result.outcome == Outcome::NotReady || result.outcome == Outcome::NoAnswer ||
                       result.outcome == Outcome::Held;
    if (waits && plan_retry(qp, result, now)) {
      qp.proc->schedule(qp.next_try);
      return;
    }
    const PendingWr failed = std::move(qp.pending.front());
    qp.pending.pop_front();
    fail_request(qp, failed.wr, result.status);
  }
}

int post_send(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  std::lock_guard guard(qp.sq_lock);
  for (; wr != nullptr; wr = wr->next) {
    SendWr request;
    int rc = read_request(qp, *wr, &request);
    if (rc == 0) rc = submit(qp, request);
    if (rc != 0) {
      if (bad != nullptr) *bad = wr;
      return rc;
    }
  }
  return 0;
}

int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const uint32_t state = qp.sh->state.load(std::memory_order_relaxed);
  if (state == IBV_QPS_RESET || qp.srq != nullptr) {
    if (bad != nullptr) *bad = wr;
    return EINVAL;
  }
  const int rc = qp.rq.post(wr, bad);
  if (state == IBV_QPS_ERR) {
    std::lock_guard guard(qp.sq_lock);
    flush_qp(qp);
  }
  return rc;
}

}  // namespace softhca
