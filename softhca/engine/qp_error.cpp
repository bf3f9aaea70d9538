// What happens to a queue pair that fails: completions with an error, the flush of both queues, the
// events. All of it is done by the owner; a peer that refuses a request only marks the state.
#include <mutex>

#include "softhca/engine/busy.h"
#include "softhca/engine/deliver.h"
#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/qp.h"

namespace softhca {

namespace {

void raise_qp_event(Qp& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = base_of(&qp);
  raise_event(*qp.ctx, event);
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

struct FlushedReceive {
  uint64_t wr_id = 0;
  uint32_t index = 0;
};

// The next receive that will never be used: the one a peer had reserved, else the first of the QP's
// own queue. Consumes it. False: none.
bool take_unfinished(Qp& qp, FlushedReceive* out) {
  if (qp.sh->reserved.load() != 0) {
    *out = {qp.sh->reserved_wr_id, qp.sh->reserved_index};
    qp.sh->reserved = 0;
    return true;
  }
  if (qp.srq != nullptr) return false;
  RqShared& rq = *qp.rq.sh;
  const uint32_t head = rq.head.load(std::memory_order_relaxed);
  if (head == rq.tail.load(std::memory_order_acquire)) return false;
  *out = {qp.rq.wqe(head)->wr_id, head};
  rq.head.store(head + 1, std::memory_order_release);
  return true;
}

void flush_receives(Qp& qp) {
  Process& proc = *qp.proc;
  WakeUps wakes;
  if (!proc.lock(proc.self())) return;
  FlushedReceive receive;
  while (take_unfinished(qp, &receive)) {
    const ErrorRecord error{receive.wr_id, receive.index, IBV_WC_WR_FLUSH_ERR, 0};
    if (!publish_error(proc.self(), *qp.sh, error, &wakes)) break;
    kill_point(KillPoint::flush_rq_popped);
  }
  proc.unlock(proc.self());
  send_wakes(proc, proc.self(), wakes);
}

// The fault schedule may want it later than now.
bool flush_is_held_back(Qp& qp) {
  Injector* const faults = qp.proc->injector();
  if (faults != nullptr && !qp.flush_decided) {
    qp.flush_decided = true;
    qp.flush_at = faults->flush_time(qp);
  }
  if (qp.flush_at == 0) return false;
  if (qp.flush_at <= qp.proc->now()) {
    qp.flush_at = 0;
    return false;
  }
  qp.next_try = qp.flush_at;
  qp.proc->schedule(qp.flush_at);
  return true;
}

void flush_sends(Qp& qp) {
  while (!qp.pending.empty()) {
    const PendingWr& pending = qp.pending.front();
    const Flight& flight = pending.flight;
    if (flight.acked && flight.wake > qp.proc->now()) {
      // Its completion is on the way, and the flush of the others is behind it.
      qp.next_try = flight.wake;
      qp.proc->schedule(flight.wake);
      return;
    }
    if (!flight.lost) {
      complete_request(qp, pending.wr, flight.acked ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    }
    qp.pending.pop_front();
  }
}

void report_last_wqe(Qp& qp) {
  if (qp.srq == nullptr || qp.last_wqe_reported) return;
  qp.last_wqe_reported = true;
  Injector* const faults = qp.proc->injector();
  if (faults != nullptr && faults->hides_last_wqe(qp)) return;
  raise_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

}  // namespace

void complete_request(Qp& qp, const SendWr& wr, ibv_wc_status status) {
  const bool wanted =
      status != IBV_WC_SUCCESS || qp.sq_signal_all || (wr.flags & IBV_SEND_SIGNALED) != 0;
  if (!wanted) return;
  SendCompletion done;
  done.wr_id = wr.wr_id;
  done.qp = &qp;
  done.sq_index = wr.index;
  done.qpn = qp.ex.qp_base.qp_num;
  done.byte_len = wr.length;
  done.status = static_cast<uint8_t>(status);
  done.opcode = static_cast<uint8_t>(completion_opcode(wr.opcode));
  done.vendor_err = static_cast<uint16_t>(status);
  push_send(*qp.send_cq, done);
}

void fail_request(Qp& qp, const SendWr& wr, ibv_wc_status status) {
  complete_request(qp, wr, status);
  if (qp.type != IBV_QPT_RC) {
    // Only the send side stops; work behind the failed request is flushed.
    qp.state = IBV_QPS_SQE;
    while (!qp.pending.empty()) {
      complete_request(qp, qp.pending.front().wr, IBV_WC_WR_FLUSH_ERR);
      qp.pending.pop_front();
    }
    return;
  }
  Process& proc = *qp.proc;
  if (proc.lock(proc.self())) {
    qp.sh->state.store(IBV_QPS_ERR);
    proc.unlock(proc.self());
  }
  flush_qp(qp);
}

void flush_qp(Qp& qp) {
  qp.state = IBV_QPS_ERR;
  qp.next_try = UINT64_MAX;
  wait_for_busy(*qp.proc, *qp.sh);
  if (!flush_is_held_back(qp)) {
    flush_sends(qp);
    flush_receives(qp);
  }
  report_last_wqe(qp);
}

void forget_flights(Qp& qp) {
  if (Injector* const faults = qp.proc->injector(); faults != nullptr) faults->settle(qp);
  qp.fresh = {};
  qp.run_ahead = 0;
  qp.flush_at = 0;
  qp.flush_decided = false;
}

void service_qp(Qp& qp) {
  std::lock_guard guard(qp.sq_lock);
  const uint32_t events = qp.sh->events.exchange(0);
  if ((events & kQpAccessErr) != 0) raise_qp_event(qp, IBV_EVENT_QP_ACCESS_ERR);
  if ((events & kQpReqErr) != 0) raise_qp_event(qp, IBV_EVENT_QP_REQ_ERR);
  if ((events & kQpCommEst) != 0 && !qp.established_reported) {
    qp.established_reported = true;
    raise_qp_event(qp, IBV_EVENT_COMM_EST);
  }
  if ((events & kQpFatal) != 0) raise_qp_event(qp, IBV_EVENT_QP_FATAL);
  if (qp.sh->state.load() == IBV_QPS_ERR && qp.state != IBV_QPS_ERR) flush_qp(qp);
}

}  // namespace softhca
