#include "softhca/engine/wr_log.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "softhca/engine/execute.h"

namespace softhca {

namespace {

void copy_head(const Qp& qp, const SendWr& wr, WrLogEntry* entry) {
  LocalData data;
  if (wr.opcode == IBV_WR_RDMA_READ || !collect_local(qp, wr, 0, &data)) return;
  for (unsigned i = 0; i < data.count; ++i) {
    const std::size_t room = entry->head.size() - entry->head_length;
    const std::size_t n = std::min(room, data.pieces[i].iov_len);
    std::memcpy(entry->head.data() + entry->head_length, data.pieces[i].iov_base, n);
    entry->head_length = static_cast<uint8_t>(entry->head_length + n);
  }
}

}  // namespace

void log_attempt(Qp& qp, const SendWr& wr, const ExecResult& result, const AttemptNote& note) {
  Fabric& fabric = qp.proc->fabric();
  if (fabric.log == nullptr) return;
  WrLogEntry entry;
  entry.time = qp.proc->now();
  entry.wr_id = wr.wr_id;
  entry.src_qpn = qp.ex.qp_base.qp_num;
  entry.dest_qpn = qp.type == IBV_QPT_UD ? wr.remote_qpn : qp.attr.dest_qp_num;
  entry.src_node = qp.proc->rank();
  Peer* peer = nullptr;
  if (qp.proc->find_qp(entry.dest_qpn, &peer) != nullptr) {
    entry.dest_node = qp.proc->global()->slots[peer->slot].rank;
  }
  entry.length = wr.length;
  entry.psn = qp.sq_psn;
  entry.remote_addr = wr.remote_addr;
  entry.opcode = wr.opcode;
  entry.qp_type = static_cast<uint8_t>(qp.type);
  entry.outcome = static_cast<uint8_t>(result.outcome);
  entry.executed = note.executed;
  entry.ghost = note.ghost;
  entry.fault = note.fault;
  copy_head(qp, wr, &entry);
  std::lock_guard guard(fabric.log_mutex);
  fabric.log->push_back(entry);
}

}  // namespace softhca
