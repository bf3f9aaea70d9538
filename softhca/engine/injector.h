// Makes the fault schedule happen in one process. The process shows it to the engine only while it
// has something to do (Process::injector() is null otherwise), so that a device without faults pays
// one test of a pointer per question. Works on a copy of the fabric's rules (fault_board.h),
// renewed when their epoch changes. In simulations it also keeps the log of executed requests.
// Thread safe: the rules and what is held back have a mutex each, both leaves of the lock order.
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <vector>

#include "softhca/engine/late_work.h"
#include "softhca/engine/qp.h"
#include "softhca/fault/fault_board.h"
#include "softhca/fault/fault_log.h"

namespace softhca {

// What a rule is asked about. Fields that do not apply keep their values and match every selector
// but those that name something.
struct FaultQuestion {
  const Context* ctx = nullptr;
  uint8_t port = 0;
  uint8_t qp_type = 0;  // qp_type_bit()
  uint32_t qpn = 0;
  uint32_t dest_qpn = 0;
  int32_t opcode = -1;
  uint64_t wr_id = 0;
  FaultCall call = FaultCall::kCount;
  int32_t to_state = -1;
};

class Injector {
 public:
  explicit Injector(Process& process) : proc_(process), late_(process) {}
  ~Injector() = default;
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  // Takes over the rules of the fabric that concern this process.
  void refresh();
  // There are rules, something is held back, or a simulation wants its log.
  bool needed();

  // 0, or the errno of a call that fails; sleeps if the call is slow.
  int on_call(Context& ctx, FaultCall call, int32_t to_state = -1);

  // ---- send side (inject_send.cpp); the caller holds sq_lock
  // Decides about a new request and runs it.
  ExecResult first_attempt(Qp& qp, const SendWr& wr);
  // Runs a request that waits.
  ExecResult attempt(Qp& qp, const SendWr& wr, Flight& flight);
  // A request was queued behind others: executes it already if their answers are being lost.
  void run_ahead(Qp& qp, PendingWr& pending);
  // Before anything of the QP is dropped: what was acknowledged must be in its place.
  void settle(const Qp& qp) { late_.place_of(qp); }

  // ---- queue pairs, completion queues
  // Until when the requests of a QP that went to ERR wait for their flush; 0 = not at all.
  uint64_t flush_time(const Qp& qp);
  bool hides_last_wqe(const Qp& qp);
  // The number of a new queue pair; 0 = the next one as always.
  uint32_t reused_qpn(Context& ctx, uint32_t last_released);
  // A published completion at the head of `cq`: true if it is not to be seen yet.
  bool holds_back(Cq& cq);
  LateWork& late() noexcept { return late_; }

  // ---- time (inject_time.cpp)
  void run_due(uint64_t now);
  uint64_t next_due();

 private:
  struct ActiveRule : FaultCopy {
    uint64_t seen = 0;           // matching questions
    uint64_t next_at = kNoTime;  // of kinds that have a time of their own in each process
    uint64_t firings = 0;
  };

  // ---- rules; mutex_ is held
  bool matches(const ActiveRule& active, const FaultQuestion& q) const;
  bool triggered(ActiveRule& active);
  bool fire_if_due(ActiveRule& active, uint64_t now);
  bool takes_back(const ActiveRule& active, uint64_t now);
  // Whether the rule hits; counts and logs it.
  bool ask(ActiveRule& active, const FaultQuestion& q);
  // ---- rules; copies, no lock needed
  bool count_hit(const ActiveRule& active);
  FaultHit hit_of(const ActiveRule& active, const FaultQuestion& q) const;
  void log_hit(const ActiveRule& active, const FaultHit& hit);

  Flight decide(Qp& qp, const SendWr& wr);
  void apply(const ActiveRule& active, const SendWr& wr, Flight& flight);
  ExecResult run(Qp& qp, const SendWr& wr, Flight& flight);
  ExecResult datagram(Qp& qp, const SendWr& wr, Flight& flight);
  ExecResult keep_answer(Qp& qp, const SendWr& wr, Flight& flight);
  ExecResult fail_by_rule(Qp& qp, const SendWr& wr, Flight& flight);

  bool acts_here(const FaultRule& rule) const;
  // ---- what happens; the registry is held if `qp` is null
  void act_alone(const ActiveRule& active);
  void act(const ActiveRule& active, Qp* qp);
  bool is_victim(const FaultRule& rule, const DirEntry& entry, const QpShared& qp) const;
  void kill_some_qp(const ActiveRule& active);
  bool kill_one(const FaultRule& rule, uint32_t qpn, FaultHit* hit);
  bool kill_victim(const ActiveRule& active, FaultHit hit);
  bool kill_by(uint32_t serial, const Qp& qp, const SendWr& wr);
  void change_ports(const ActiveRule& active, const Qp* qp);
  void raise_one(Context& ctx, const FaultRule& rule, Qp* chosen);
  bool name_queue(Context& ctx, const Qp* chosen, ibv_async_event* event);
  void raise_events(const ActiveRule& active, Qp* qp);
  void break_devices(const ActiveRule& active, Qp* qp);
  void finish_fatal();

  FaultSlot& slot_of(const ActiveRule& active) const {
    return proc_.global()->faults.slots[active.slot];
  }

  Process& proc_;
  std::mutex mutex_;
  bool used_ = false;  // there were rules: requests that they held back may still be on their way
  std::vector<ActiveRule> rules_;
  FaultLogFile log_;
  LateWork late_;
};

// Takes ports up again that a port-down rule may have taken down.
void restore_ports(Process& proc, const FaultRule& rule);

// 0, or the errno with which the schedule fails this call.
inline int fault_on_call(Context& ctx, FaultCall call, int32_t to_state = -1) {
  Injector* injector = ctx.proc->injector();
  return injector == nullptr ? 0 : injector->on_call(ctx, call, to_state);
}

}  // namespace softhca
