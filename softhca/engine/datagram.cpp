// Unreliable datagrams: one packet, a queue key, a 40-byte GRH in front of the payload, and silence
// when anything at the receiver is not as it should be.
#include <arpa/inet.h>

#include <cstring>

#include "softhca/engine/execute.h"

namespace softhca {

namespace {

const PortConf& port_of(const Qp& qp) noexcept { return qp.ctx->conf->ports[qp.attr.port_num - 1]; }

// IPv6 form, as InfiniBand and RoCE v2 over IPv6 have it.
void build_grh(const Qp& qp, const ibv_ah_attr& av, uint32_t payload, ibv_grh* grh) noexcept {
  constexpr uint8_t kNextIba = 0x1b;
  std::memset(grh, 0, sizeof(*grh));
  const uint32_t version =
      (6U << 28) | (uint32_t{av.grh.traffic_class} << 20) | (av.grh.flow_label & 0xfffff);
  grh->version_tclass_flow = htonl(version);
  grh->paylen = htons(static_cast<uint16_t>(payload));
  grh->next_hdr = kNextIba;
  grh->hop_limit = av.grh.hop_limit;
  const auto& gids = port_of(qp).gids;
  if (av.grh.sgid_index < gids.size()) {
    std::memcpy(grh->sgid.raw, gids[av.grh.sgid_index].raw.data(), sizeof(grh->sgid.raw));
  }
  grh->dgid = av.grh.dgid;
}

bool admits(const Qp& qp, const QpShared& target, const SendWr& wr) noexcept {
  const uint32_t state = target.state.load();
  // The high bit asks for the queue pair's own key.
  const uint32_t qkey = (wr.remote_qkey & 0x80000000U) != 0 ? qp.attr.qkey : wr.remote_qkey;
  return target.qpn.load() == wr.remote_qpn && target.type == IBV_QPT_UD && target.qkey == qkey &&
         (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

}  // namespace

ExecResult execute_datagram(Qp& qp, const SendWr& wr) {
  if (wr.length > qp.mtu) return local_error(IBV_WC_LOC_LEN_ERR);
  LocalData data;
  if (!collect_local(qp, wr, 0, &data)) return local_error(IBV_WC_LOC_PROT_ERR);
  Process& proc = *qp.proc;
  Peer* peer = nullptr;
  QpShared* target = proc.find_qp(wr.remote_qpn, &peer);
  if (target == nullptr || !links_up(qp, *target) ||
      !address_matches(proc.fabric().conf, *wr.av, target->device, target->port) ||
      !proc.lock(*peer)) {
    return no_effect();
  }
  kill_point(KillPoint::deliver_locked);
  WakeUps wakes;
  ExecResult result = no_effect();
  if (admits(qp, *target, wr)) {
    ibv_grh grh;
    Message message;
    message.pieces = data.pieces;
    message.count = data.count;
    message.length = wr.length;
    message.byte_len = wr.length + kGrhBytes;
    message.flags = kRecordExtra;
    if (wr.opcode == IBV_WR_SEND_WITH_IMM) message.flags |= kRecordImm;
    if (wr.av->is_global != 0) message.flags |= kRecordGrh;
    message.solicited = (wr.flags & IBV_SEND_SOLICITED) != 0;
    message.extra.imm = wr.imm;
    message.extra.src_qp = qp.ex.qp_base.qp_num;
    message.extra.slid = port_of(qp).lid;
    message.next_psn = target->rx_psn.load();
    build_grh(qp, *wr.av, wr.length, &grh);
    message.grh = &grh;
    if (deliver(proc, *peer, *target, message, &wakes) == Verdict::Delivered) result = done();
  }
  proc.unlock(*peer);
  send_wakes(proc, *peer, wakes);
  return result;
}

}  // namespace softhca
