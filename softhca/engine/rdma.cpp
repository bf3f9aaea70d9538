// RDMA write, read and atomics. Writes and reads hold no lock: the busy word of the target QP keeps
// its owner from leaving the state, or dropping a memory region, while data moves (both sides use
// sequentially consistent stores: one of them sees the other).
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "softhca/engine/busy.h"
#include "softhca/engine/dma.h"
#include "softhca/engine/execute.h"
#include "softhca/engine/mr.h"
#include "softhca/rules/timers.h"

namespace softhca {

namespace {

// Why a copy failed, as the requester sees it.
ExecResult copy_failed(const Peer& peer, int error) {
  if (error == ESRCH) return no_answer();
  if (error == EPERM) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      std::fprintf(stderr,
                   "softhca: not allowed to copy to or from process %d (ptrace restrictions: "
                   "kernel.yama.ptrace_scope, a container's seccomp profile or "
                   "PR_SET_DUMPABLE)\n",
                   static_cast<int>(peer.pid));
    }
    return remote_error(IBV_WC_REM_OP_ERR);
  }
  return remote_error(IBV_WC_REM_ACCESS_ERR);
}

uint32_t needed_access(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
      return IBV_ACCESS_REMOTE_READ;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_ACCESS_REMOTE_WRITE;
    default:
      return IBV_ACCESS_REMOTE_ATOMIC;
  }
}

// What the responder checks before it touches memory; Done = go on.
ExecResult check_request(Qp& qp, const QpShared& target, const SendWr& wr, uint64_t* host,
                         uint32_t* event) {
  if (!responds(target, qp)) return no_answer();
  switch (check_sequence(qp, target)) {
    case Sequence::Match:
      break;
    case Sequence::Ahead:
      return no_answer();
    case Sequence::Duplicate:
      if (wr.opcode != IBV_WR_RDMA_READ) return no_effect();
      break;  // a repeated read is executed again
  }
  const uint32_t access = needed_access(wr.opcode);
  const bool reads = access != IBV_ACCESS_REMOTE_WRITE;
  if ((target.access & access) == 0 || (reads && target.max_dest_rd_atomic == 0)) {
    *event = kQpReqErr;
    return remote_error(IBV_WC_REM_INV_REQ_ERR);
  }
  *host = 0;
  if (wr.length != 0 && !translate(qp.peer->base, *qp.peer->hdr, wr.rkey, target.pd, access,
                                   wr.remote_addr, wr.length, host)) {
    *event = kQpAccessErr;
    return remote_error(IBV_WC_REM_ACCESS_ERR);
  }
  return done();
}

// A refusal takes the responder's queue pair to ERR.
void tell_refused(Qp& qp, QpShared& target, const ExecResult& result, uint32_t event) {
  if (result.outcome == Outcome::RemoteError && qp.type == IBV_QPT_RC) {
    nak_target(*qp.proc, *qp.peer, target, qp.attr.dest_qp_num, event);
  }
}

// Only from the number that this request has: a repeated read advances nothing, and neither does a
// request that was stopped for so long that the target began a new life.
void advance_psn(const Qp& qp, QpShared& target, uint32_t length) noexcept {
  uint32_t expected =
      qp.type == IBV_QPT_UC ? target.rx_psn.load(std::memory_order_relaxed) : qp.sq_psn;
  target.rx_psn.compare_exchange_strong(expected, psn_after(qp, length), std::memory_order_relaxed);
}

ExecResult move_data(Qp& qp, QpShared& target, const SendWr& wr, const LocalData& data,
                     uint32_t* event) {
  uint64_t host = 0;
  const ExecResult verdict = check_request(qp, target, wr, &host, event);
  if (verdict.outcome != Outcome::Done) return verdict;
  const int rc = wr.opcode == IBV_WR_RDMA_READ
                     ? dma_read(*qp.peer, host, data.pieces, data.count, wr.length)
                     : dma_write(*qp.peer, host, data.pieces, data.count, wr.length);
  kill_point(KillPoint::rdma_copied);
  if (!still_busy(*qp.proc, target)) return no_answer();
  if (rc != 0) {
    const ExecResult failed = copy_failed(*qp.peer, rc);
    if (failed.outcome == Outcome::RemoteError) *event = kQpAccessErr;
    return failed;
  }
  if (wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
    advance_psn(qp, target, wr.length);
    kill_point(KillPoint::rdma_psn_advanced);
  }
  return done();
}

ExecResult deliver_immediate(Qp& qp, QpShared& target, const SendWr& wr) {
  Message message;
  message.byte_len = wr.length;
  message.flags = kRecordImm | kRecordExtra | kRecordRdma | kRecordDirect;
  message.extra.imm = wr.imm;
  message.solicited = (wr.flags & IBV_SEND_SOLICITED) != 0;
  message.next_psn = psn_after(qp, wr.length);
  return deliver_message(qp, target, message);
}

}  // namespace

ExecResult execute_rdma(Qp& qp, const SendWr& wr) {
  const bool read = wr.opcode == IBV_WR_RDMA_READ;
  LocalData data;
  if (!collect_local(qp, wr, read ? IBV_ACCESS_LOCAL_WRITE : 0, &data)) {
    return local_error(IBV_WC_LOC_PROT_ERR);
  }
  if (read && qp.attr.max_rd_atomic == 0) return local_error(IBV_WC_LOC_QP_OP_ERR);
  QpShared* target = connected_target(qp);
  if (target == nullptr || !responds(*target, qp)) return no_answer();
  if (!take_busy(*qp.proc, *target)) return no_answer();
  kill_point(KillPoint::rdma_busy);
  uint32_t event = 0;
  const ExecResult result = move_data(qp, *target, wr, data, &event);
  if (!release_busy(*qp.proc, *target)) return no_answer();
  tell_refused(qp, *target, result, event);
  if (result.outcome == Outcome::Done && wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    return deliver_immediate(qp, *target, wr);
  }
  return result;
}

ExecResult begin_write(Qp& qp, const SendWr& wr, QpShared** target, uint64_t* host) {
  *target = connected_target(qp);
  if (*target == nullptr || !take_busy(*qp.proc, **target)) return no_answer();
  uint32_t event = 0;
  const ExecResult result = check_request(qp, **target, wr, host, &event);
  if (result.outcome == Outcome::Done) {
    advance_psn(qp, **target, wr.length);
    return result;
  }
  if (!release_busy(*qp.proc, **target)) return no_answer();
  tell_refused(qp, **target, result, event);
  return result;
}

namespace {

// Under the target's lock, so that atomics of all initiators exclude each other.
ExecResult run_atomic(Qp& qp, QpShared& target, const SendWr& wr, uint64_t* old, uint32_t* event) {
  uint64_t host = 0;
  const ExecResult verdict = check_request(qp, target, wr, &host, event);
  if (verdict.outcome != Outcome::Done) return verdict;
  if ((wr.remote_addr & 7) != 0) {
    *event = kQpReqErr;
    return remote_error(IBV_WC_REM_INV_REQ_ERR);
  }
  const iovec word{old, sizeof(*old)};
  int rc = dma_read(*qp.peer, host, &word, 1, sizeof(*old));
  if (rc == 0) {
    const bool swap = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    uint64_t fresh = swap ? (*old == wr.compare_add ? wr.swap : *old) : *old + wr.compare_add;
    const iovec out{&fresh, sizeof(fresh)};
    rc = dma_write(*qp.peer, host, &out, 1, sizeof(fresh));
  }
  if (rc != 0) return copy_failed(*qp.peer, rc);
  target.rx_psn.store(psn_add(qp.sq_psn, 1), std::memory_order_relaxed);
  return done();
}

}  // namespace

ExecResult execute_atomic(Qp& qp, const SendWr& wr) {
  LocalData data;
  if (!collect_local(qp, wr, IBV_ACCESS_LOCAL_WRITE, &data) || wr.length != sizeof(uint64_t)) {
    return local_error(wr.length != sizeof(uint64_t) ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
  }
  if (qp.attr.max_rd_atomic == 0) return local_error(IBV_WC_LOC_QP_OP_ERR);
  QpShared* target = connected_target(qp);
  if (target == nullptr || !qp.proc->lock(*qp.peer)) return no_answer();
  uint64_t old = 0;
  uint32_t event = 0;
  const ExecResult result = run_atomic(qp, *target, wr, &old, &event);
  qp.proc->unlock(*qp.peer);
  tell_refused(qp, *target, result, event);
  if (result.outcome == Outcome::Done) {
    const Peer& self = qp.proc->self();
    const iovec from{&old, sizeof(old)};
    dma_scatter(self, data.pieces, data.count, &from, 1, sizeof(old));
  }
  return result;
}

}  // namespace softhca
