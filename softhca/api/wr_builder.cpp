// ibv_wr_*: requests are collected between wr_start and wr_complete and then take the same way as
// those of ibv_post_send. The send queue's lock is held in between.
#include <cerrno>

#include "softhca/api/extended.h"

namespace softhca {

namespace {

Qp& of(ibv_qp_ex* qp) { return *reinterpret_cast<Qp*>(qp); }

BuiltWr& last(ibv_qp_ex* qp) { return of(qp).built.back(); }

BuiltWr& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  BuiltWr& built = of(qp).built.emplace_back();
  built.wr.opcode = opcode;
  built.wr.wr_id = qp->wr_id;
  built.wr.flags = qp->wr_flags;
  return built;
}

void begin_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr) {
  BuiltWr& built = begin(qp, opcode);
  built.wr.rkey = rkey;
  built.wr.remote_addr = addr;
}

void wr_start(ibv_qp_ex* qp) {
  of(qp).sq_lock.lock();
  of(qp).built.clear();
}

void wr_abort(ibv_qp_ex* qp) {
  of(qp).built.clear();
  of(qp).sq_lock.unlock();
}

// Everything is checked before anything is executed: a refused list has no effect.
int check(const Qp& qp, BuiltWr& built) {
  SendWr& wr = built.wr;
  const bool is_inline = !built.inline_data.empty();
  if (is_inline && built.inline_data.size() > qp.init.cap.max_inline_data) return EINVAL;
  if (!is_inline && built.sge.size() > qp.init.cap.max_send_sge) return EINVAL;
  if (qp.type == IBV_QPT_UD) {
    if (built.ah == nullptr || built.ah->owner != qp.owner) return EINVAL;
    wr.av = &built.ah->attr;
  }
  if (is_inline) {
    built.sge.assign(1, {reinterpret_cast<uint64_t>(built.inline_data.data()),
                         static_cast<uint32_t>(built.inline_data.size()), 0});
    wr.flags |= IBV_SEND_INLINE;
  } else {
    wr.flags &= ~static_cast<uint32_t>(IBV_SEND_INLINE);
  }
  wr.sge = built.sge.data();
  wr.num_sge = static_cast<uint32_t>(built.sge.size());
  uint64_t length = 0;
  for (const ibv_sge& sge : built.sge) length += sge.length;
  if (length > qp.ctx->limits().max_msg_size) return EINVAL;
  wr.length = static_cast<uint32_t>(length);
  return 0;
}

int wr_complete(ibv_qp_ex* qp_ex) {
  Qp& qp = of(qp_ex);
  int rc = 0;
  if (qp.posted - qp.freed.load() + qp.built.size() > qp.max_send_wr) rc = ENOMEM;
  for (BuiltWr& built : qp.built) {
    if (rc == 0) rc = check(qp, built);
  }
  for (BuiltWr& built : qp.built) {
    if (rc == 0) rc = submit(qp, built.wr);
  }
  qp.built.clear();
  qp.sq_lock.unlock();
  return rc;
}

void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }

void wr_send_imm(ibv_qp_ex* qp, __be32 imm) { begin(qp, IBV_WR_SEND_WITH_IMM).wr.imm = imm; }

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
  begin_rdma(qp, IBV_WR_RDMA_WRITE, rkey, addr);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, __be32 imm) {
  begin_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);
  last(qp).wr.imm = imm;
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
  begin_rdma(qp, IBV_WR_RDMA_READ, rkey, addr);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t compare,
                       uint64_t swap) {
  begin_rdma(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);
  last(qp).wr.compare_add = compare;
  last(qp).wr.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t add) {
  begin_rdma(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);
  last(qp).wr.compare_add = add;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  BuiltWr& built = last(qp);
  built.ah = ah_of(ah);
  built.wr.remote_qpn = qpn;
  built.wr.remote_qkey = qkey;
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  last(qp).sge.assign(1, {addr, length, lkey});
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  last(qp).sge.assign(list, list + count);
}

void wr_set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  const auto* from = static_cast<const char*>(addr);
  last(qp).inline_data.assign(from, from + length);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  auto& data = last(qp).inline_data;
  data.clear();
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const char*>(list[i].addr);
    data.insert(data.end(), from, from + list[i].length);
  }
}

}  // namespace

void install_builder(Qp& qp) {
  ibv_qp_ex& ex = qp.ex;
  qp.has_builder = true;
  ex.wr_start = wr_start;
  ex.wr_complete = wr_complete;
  ex.wr_abort = wr_abort;
  ex.wr_send = wr_send;
  ex.wr_send_imm = wr_send_imm;
  ex.wr_rdma_write = wr_rdma_write;
  ex.wr_rdma_write_imm = wr_rdma_write_imm;
  ex.wr_rdma_read = wr_rdma_read;
  ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
  ex.wr_set_ud_addr = wr_set_ud_addr;
  ex.wr_set_sge = wr_set_sge;
  ex.wr_set_sge_list = wr_set_sge_list;
  ex.wr_set_inline_data = wr_set_inline_data;
  ex.wr_set_inline_data_list = wr_set_inline_data_list;
}

}  // namespace softhca
