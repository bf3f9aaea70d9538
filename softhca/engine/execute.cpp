#include "softhca/engine/execute.h"

#include "softhca/engine/gid_table.h"
#include "softhca/engine/mr.h"
#include "softhca/rules/timers.h"

namespace softhca {

bool collect_local(const Qp& qp, const SendWr& wr, uint32_t access, LocalData* out) noexcept {
  const Process& proc = *qp.proc;
  const bool is_inline = (wr.flags & IBV_SEND_INLINE) != 0;
  const Peer& self = const_cast<Process&>(proc).self();
  out->count = 0;
  for (uint32_t i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sge[i];
    if (sge.length == 0) continue;
    uint64_t host = sge.addr;
    if (!is_inline && !translate(self.base, *self.hdr, sge.lkey, qp.owner->id, access, sge.addr,
                                 sge.length, &host)) {
      return false;
    }
    out->pieces[out->count++] = {reinterpret_cast<void*>(host), sge.length};
  }
  return true;
}

namespace {

// Its packets name the address that is now at its GID index, and the peer hears only the one it was
// connected to.
bool source_holds(const Qp& qp) noexcept {
  const ibv_ah_attr& av = qp.attr.ah_attr;
  if (qp.type == IBV_QPT_UD || av.is_global == 0) return true;
  const GidTable table(*qp.ctx, qp.attr.port_num);
  const GidConf* now = table.at(av.grh.sgid_index);
  return now != nullptr && now->raw == qp.source;
}

}  // namespace

bool links_up(const Qp& qp, const QpShared& target) noexcept {
  const Process& proc = *qp.proc;
  if (proc.global()->ports_disturbed.load(std::memory_order_relaxed) == 0) [[likely]]
    return true;
  return port_works(proc, qp.ctx->device->index, qp.attr.port_num) && source_holds(qp) &&
         port_works(proc, target.device, target.port);
}

QpShared* connected_target(Qp& qp) noexcept {
  if (qp.target != nullptr && qp.address_ok &&
      qp.target->qpn.load(std::memory_order_relaxed) == qp.attr.dest_qp_num) [[likely]] {
    return links_up(qp, *qp.target) ? qp.target : nullptr;
  }
  Peer* peer = nullptr;
  QpShared* target = qp.proc->find_qp(qp.attr.dest_qp_num, &peer);
  if (target == nullptr) return nullptr;
  qp.peer = peer;
  qp.target = target;
  qp.address_ok =
      address_matches(qp.proc->fabric().conf, qp.attr.ah_attr, target->device, target->port);
  qp.proc->watch(*peer);
  return qp.address_ok && links_up(qp, *target) ? target : nullptr;
}

Sequence check_sequence(const Qp& qp, const QpShared& target) noexcept {
  if (qp.type == IBV_QPT_UC) return Sequence::Match;
  const int32_t ahead = psn_diff(qp.sq_psn, target.rx_psn.load(std::memory_order_relaxed));
  if (ahead == 0) [[likely]]
    return Sequence::Match;
  return ahead > 0 ? Sequence::Ahead : Sequence::Duplicate;
}

uint32_t psn_after(const Qp& qp, uint32_t length) noexcept {
  if (length <= qp.mtu) [[likely]]
    return psn_add(qp.sq_psn, 1);
  return psn_add(qp.sq_psn, (length + qp.mtu - 1) / qp.mtu);
}

ExecResult deliver_message(Qp& qp, QpShared& target, Message& message) {
  Process& proc = *qp.proc;
  Peer& peer = *qp.peer;
  if (!proc.lock(peer)) return no_answer();
  kill_point(KillPoint::deliver_locked);
  if (!responds(target, qp)) [[unlikely]] {
    proc.unlock(peer);
    return no_answer();
  }
  if (const Sequence seq = check_sequence(qp, target); seq != Sequence::Match) [[unlikely]] {
    proc.unlock(peer);
    return seq == Sequence::Duplicate ? no_effect() : no_answer();
  }
  WakeUps wakes;
  const uint8_t rnr_timer = target.min_rnr_timer;
  const Verdict verdict = deliver(proc, peer, target, message, &wakes);
  if (target.state.load(std::memory_order_relaxed) == IBV_QPS_RTR && verdict == Verdict::Delivered)
      [[unlikely]] {
    report_established(peer, target, &wakes);
  }
  if (verdict != Verdict::Unlocked) proc.unlock(peer);
  send_wakes(proc, peer, wakes);
  switch (verdict) {
    case Verdict::Delivered:
      return done();
    case Verdict::NotReady:
      return {Outcome::NotReady, IBV_WC_RNR_RETRY_EXC_ERR, rnr_timer};
    case Verdict::BufferTooSmall:
      return remote_error(IBV_WC_REM_INV_REQ_ERR);
    case Verdict::BufferForbidden:
      return remote_error(IBV_WC_REM_OP_ERR);
    case Verdict::QueueDead:
    case Verdict::Unlocked:
    case Verdict::Gone:
      break;
  }
  return no_answer();
}

ExecResult execute_send(Qp& qp, const SendWr& wr) {
  LocalData data;
  if (!collect_local(qp, wr, 0, &data)) return local_error(IBV_WC_LOC_PROT_ERR);
  QpShared* target = connected_target(qp);
  if (target == nullptr) return no_answer();
  Message message;
  message.pieces = data.pieces;
  message.count = data.count;
  message.length = wr.length;
  message.byte_len = wr.length;
  if (wr.opcode == IBV_WR_SEND_WITH_IMM) {
    message.flags = kRecordImm | kRecordExtra;
    message.extra.imm = wr.imm;
  }
  message.solicited = (wr.flags & IBV_SEND_SOLICITED) != 0;
  message.next_psn = psn_after(qp, wr.length);
  return deliver_message(qp, *target, message);
}

ExecResult execute(Qp& qp, const SendWr& wr) {
  if (qp.type == IBV_QPT_UD) return execute_datagram(qp, wr);
  ExecResult result;
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      result = execute_send(qp, wr);
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      result = execute_rdma(qp, wr);
      break;
    default:
      result = execute_atomic(qp, wr);
      break;
  }
  // An unreliable connection hears nothing back: what was not delivered is lost.
  if (qp.type == IBV_QPT_UC && result.outcome != Outcome::LocalError &&
      result.outcome != Outcome::Done) {
    return no_effect();
  }
  return result;
}

}  // namespace softhca
