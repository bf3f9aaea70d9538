// Queue pairs. The send side is private to the owner: work requests execute when they are posted
// and only those that cannot (receiver not ready, no acknowledgement) wait in the pending ring, in
// order. The receive side is in shared memory (QpShared). sq_lock serialises everything on the send
// side and every state change by the owner. Invariant: a send queue slot is taken from post until a
// completion of this or a later work request of the same QP has been polled: posted - freed <=
// max_send_wr.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "softhca/engine/context.h"
#include "softhca/engine/cq.h"
#include "softhca/engine/recv_queue.h"
#include "softhca/engine/spin_lock.h"
#include "softhca/engine/wr_log.h"
#include "softhca/fault/fault_rule.h"

namespace softhca {

// One send work request as the engine sees it. sge and inline_data point into the caller's arrays
// while it executes from post, into a PendingWr afterwards.
struct SendWr {
  uint64_t wr_id = 0;
  uint64_t index = 0;  // send queue position
  const ibv_sge* sge = nullptr;
  uint32_t num_sge = 0;
  uint32_t length = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t flags = 0;  // ibv_send_flags; IBV_SEND_INLINE means: no key checks
  uint32_t imm = 0;
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  const ibv_ah_attr* av = nullptr;  // UD
  uint32_t remote_qpn = 0;
  uint32_t remote_qkey = 0;
  bool reachable = true;
};

struct ExecResult {
  Outcome outcome = Outcome::Done;
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint8_t rnr_timer = 0;
};

// What the fault schedule has decided about one request (injector.h). All zero: nothing.
struct Flight {
  bool asked = false;      // the rules were
  uint32_t drops = 0;      // attempts that are still to be lost
  uint32_t ack_drops = 0;  // answers that are still to be lost
  uint32_t not_ready = 0;  // answers that the receiver is not ready
  uint32_t window = 0;     // requests behind it that are executed without an answer as well
  bool executed = false;   // by the responder; `answer` is what it said
  bool acked = false;      // the answer came: the completion does not depend on the QP any more
  bool silent = false;     // never completes
  bool lost = false;       // not even when it is flushed
  bool execute_first = false;
  uint32_t kill_serial = 0;          // of the rule that kills a queue pair; 0: none does
  FaultKind kind = FaultKind::None;  // for the log
  ibv_wc_status status = IBV_WC_SUCCESS;
  int refusal = 0;
  uint64_t fetch_at = 0;   // not executed before
  uint64_t cqe_delay = 0;  // completes so long after it was executed
  uint64_t place_delay = 0;
  uint64_t ghost_delay = 0;
  uint64_t copy_delay = 0;  // datagram: another one arrives so much later
  uint64_t late_by = 0;     // datagram: arrives so much later
  bool behind_next = false;
  uint64_t wake = 0;  // Outcome::Held: look again then
  ExecResult answer;
  uint64_t result = 0;  // of an atomic, until the answer comes
};

struct PendingWr {
  SendWr wr;
  std::vector<ibv_sge> sge;
  std::vector<char> inline_data;
  ibv_ah_attr av{};
  Flight flight;
};

struct BuiltWr;

struct Qp {
  ibv_qp_ex ex{};
  Process* proc = nullptr;
  Context* ctx = nullptr;
  Pd* owner = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  QpShared* sh = nullptr;
  Off off = 0;
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};  // what query_qp reports, except the state

  alignas(kLine) SpinLock sq_lock;
  ibv_qp_state state = IBV_QPS_RESET;  // as the owner has processed it; sh->state may be ahead
  uint32_t max_send_wr = 0;
  uint32_t sq_psn = 0;
  uint32_t mtu = 4096;
  Peer* peer = nullptr;        // of the destination, once resolved
  QpShared* target = nullptr;  // the destination
  bool address_ok = false;
  std::array<uint8_t, 16> source{};  // the GID at its index when its path was set
  uint64_t posted = 0;
  std::atomic<uint64_t> freed{0};
  std::deque<PendingWr> pending;
  std::atomic<uint64_t> next_try{UINT64_MAX};
  uint32_t tries = 0;
  uint32_t rnr_tries = 0;
  bool sq_signal_all = false;
  bool last_wqe_reported = false;
  bool established_reported = false;
  bool drained_wanted = false;
  Flight fresh;                // of the request that is being posted
  uint32_t run_ahead = 0;      // requests that are still executed while answers are being lost
  uint64_t flush_at = 0;       // in ERR: requests are flushed then
  bool flush_decided = false;  // the schedule was asked about this flush

  RecvQueue rq;
  uint32_t events_fetched = 0;  // under ex.qp_base.mutex

  std::vector<BuiltWr> built;  // ibv_wr_* between start and complete
  bool has_builder = false;
};

struct BuiltWr {
  SendWr wr;
  std::vector<ibv_sge> sge;
  std::vector<char> inline_data;
  const Ah* ah = nullptr;
};

inline Qp* qp_of(ibv_qp* qp) noexcept { return reinterpret_cast<Qp*>(qp); }
inline ibv_qp* base_of(Qp* qp) noexcept { return reinterpret_cast<ibv_qp*>(qp); }

Qp* create_qp(Pd& pd, ibv_qp_init_attr& init);
int destroy_qp(Qp* qp);
int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask);
int query_qp(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init);

// send_queue.cpp
int post_send(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
// Queues or executes one request; the caller holds sq_lock. 0 or errno.
int submit(Qp& qp, SendWr& wr);
// Executes pending work as far as it goes; the caller holds sq_lock.
void drive_pending(Qp& qp, uint64_t now);

// execute.cpp: runs one work request against its target; the caller holds sq_lock.
ExecResult execute(Qp& qp, const SendWr& wr);

// qp_error.cpp
// Completes `wr` with `status`, and moves the QP to ERR (SQE for UD and UC); sq_lock held.
void fail_request(Qp& qp, const SendWr& wr, ibv_wc_status status);
void complete_request(Qp& qp, const SendWr& wr, ibv_wc_status status);
// What the fault schedule still has in hand for this life of the QP; sq_lock held.
void forget_flights(Qp& qp);
// The owner's part of entering ERR: flush both queues, report the last WQE; sq_lock held.
void flush_qp(Qp& qp);
// Sees what peers did to this QP (events, ERR); takes sq_lock.
void service_qp(Qp& qp);

}  // namespace softhca
