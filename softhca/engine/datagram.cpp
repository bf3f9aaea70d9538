// Unreliable datagrams: one packet, a queue key, a 40-byte GRH in front of the payload, and silence
// when anything at the receiver is not as it should be.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "softhca/engine/execute.h"
#include "softhca/engine/gid_table.h"

namespace softhca {

namespace {

const PortConf& port_of(const Qp& qp) noexcept { return qp.ctx->conf->ports[qp.attr.port_num - 1]; }

// What is at the address handle's index now, whatever was there when it was made; empty: nobody.
GidConf source_of(const Qp& qp, const ibv_ah_attr& av) noexcept {
  const GidTable table(*qp.ctx, qp.attr.port_num);
  const GidConf* found = table.at(av.grh.sgid_index);
  return found != nullptr ? *found : GidConf{};
}

// The IPv4 header that RoCE v2 over IPv4 has instead of a GRH, in the last 20 bytes. Its checksum
// is zero and so is the first half, as with the kernel's soft-RoCE when sender and receiver share a
// host: what reads it must not insist on either.
void build_ipv4(const GidConf& from, const ibv_ah_attr& av, uint32_t payload,
                ibv_grh* grh) noexcept {
  constexpr uint8_t kUdp = 17;
  constexpr uint32_t kHeaders = 20 + 8 + 12 + 8 + 4;  // IPv4, UDP, BTH, DETH, ICRC
  auto* ip = reinterpret_cast<uint8_t*>(grh) + 20;
  const uint32_t total = payload + kHeaders;
  ip[0] = 0x45;
  ip[1] = av.grh.traffic_class;
  ip[2] = static_cast<uint8_t>(total >> 8);
  ip[3] = static_cast<uint8_t>(total & 0xff);
  ip[8] = av.grh.hop_limit;
  ip[9] = kUdp;
  std::memcpy(ip + 12, from.raw.data() + kIpv4Mapped.size(), 4);
  std::memcpy(ip + 16, av.grh.dgid.raw + kIpv4Mapped.size(), 4);
}

// IPv6 form, as InfiniBand and RoCE over IPv6 have it.
void build_ipv6(const GidConf& from, const ibv_ah_attr& av, uint32_t payload,
                ibv_grh* grh) noexcept {
  constexpr uint8_t kNextIba = 0x1b;
  const uint32_t version =
      (6U << 28) | (uint32_t{av.grh.traffic_class} << 20) | (av.grh.flow_label & 0xfffff);
  grh->version_tclass_flow = htonl(version);
  grh->paylen = htons(static_cast<uint16_t>(payload));
  grh->next_hdr = kNextIba;
  grh->hop_limit = av.grh.hop_limit;
  std::memcpy(grh->sgid.raw, from.raw.data(), sizeof(grh->sgid.raw));
  grh->dgid = av.grh.dgid;
}

void build_grh(const Qp& qp, const ibv_ah_attr& av, uint32_t payload, ibv_grh* grh) noexcept {
  std::memset(grh, 0, sizeof(*grh));
  const GidConf from = source_of(qp, av);
  const bool ipv4 = std::equal(kIpv4Mapped.begin(), kIpv4Mapped.end(), from.raw.begin());
  if (from.type == IBV_GID_TYPE_ROCE_V2 && ipv4) {
    build_ipv4(from, av, payload, grh);
  } else {
    build_ipv6(from, av, payload, grh);
  }
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
