// The three ways to execute a work request against its target. The caller holds the sending QP's
// sq_lock; nothing here changes the sending QP except the cached target.
#pragma once

#include "softhca/engine/deliver.h"
#include "softhca/engine/qp.h"

namespace softhca {

// Data of a work request in this address space, keys checked.
struct LocalData {
  iovec pieces[kMaxSegments];
  unsigned count = 0;
};

// False: a key, range, PD or access right is wrong (LOC_PROT_ERR).
bool collect_local(const Qp& qp, const SendWr& wr, uint32_t access, LocalData* out) noexcept;

// The target of a connected QP, resolved and reachable; nullptr = nobody will answer.
QpShared* connected_target(Qp& qp) noexcept;
bool links_up(const Qp& qp, const QpShared& target) noexcept;

// How the sequence numbers stand. Duplicate: acknowledged, data ignored.
enum class Sequence : uint8_t { Match, Duplicate, Ahead };
Sequence check_sequence(const Qp& qp, const QpShared& target) noexcept;
uint32_t psn_after(const Qp& qp, uint32_t length) noexcept;

inline bool responds(const QpShared& target, const Qp& qp) noexcept {
  const uint32_t state = target.state.load(std::memory_order_seq_cst);
  return target.qpn.load(std::memory_order_relaxed) == qp.attr.dest_qp_num &&
         target.dest_qpn.load(std::memory_order_relaxed) == qp.ex.qp_base.qp_num &&
         target.type == static_cast<uint32_t>(qp.type) &&
         (state == IBV_QPS_RTS || state == IBV_QPS_RTR || state == IBV_QPS_SQD);
}

constexpr ExecResult done() noexcept { return {}; }
constexpr ExecResult no_effect() noexcept { return {Outcome::NoEffect, IBV_WC_SUCCESS, 0}; }
constexpr ExecResult no_answer() noexcept { return {Outcome::NoAnswer, IBV_WC_RETRY_EXC_ERR, 0}; }
constexpr ExecResult local_error(ibv_wc_status s) noexcept { return {Outcome::LocalError, s, 0}; }
constexpr ExecResult remote_error(ibv_wc_status s) noexcept { return {Outcome::RemoteError, s, 0}; }

// An RDMA write but for its bytes: checked, counted by the target, and its busy word kept. The
// caller writes them to `host` of qp.peer and releases the word.
ExecResult begin_write(Qp& qp, const SendWr& wr, QpShared** target, uint64_t* host);

ExecResult execute_send(Qp& qp, const SendWr& wr);
ExecResult execute_rdma(Qp& qp, const SendWr& wr);
ExecResult execute_atomic(Qp& qp, const SendWr& wr);
ExecResult execute_datagram(Qp& qp, const SendWr& wr);
// The message part of a connected send; for RDMA WRITE with immediate `length` data is none.
ExecResult deliver_message(Qp& qp, QpShared& target, Message& message);

}  // namespace softhca
