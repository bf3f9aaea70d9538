// What the fault schedule holds back: packets that arrive late (of queue pairs that may be gone by
// then), bytes that are placed after their completion, completions that are not to be seen yet.
// Payloads are copied when they are held back. A placement keeps the target's busy word, so the
// owner of the target cannot leave the state (or drop the memory region) before the bytes are
// there: the write was acknowledged. Thread safe; the mutex is a leaf, packets run without it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "softhca/engine/qp.h"
#include "softhca/fault/fault_rule.h"

namespace softhca {

class LateWork {
 public:
  explicit LateWork(Process& process) : proc_(process) {}
  ~LateWork();
  LateWork(const LateWork&) = delete;
  LateWork& operator=(const LateWork&) = delete;

  // Delivers a copy of `wr`, with the sequence number that the QP has now, at `due`. behind_next:
  // at the latest then, but right after the next datagram of the QP.
  void deliver_later(Qp& qp, const SendWr& wr, uint64_t due, FaultKind why,
                     bool behind_next = false);
  // The next datagram has gone out.
  void datagram_sent(const Qp& qp);

  // Executes an RDMA write except for its bytes. Outcomes as execute().
  ExecResult place_later(Qp& qp, const SendWr& wr, uint64_t due);
  // Places what a queue pair has sent, or what a target is still to get.
  void place_of(const Qp& qp);
  void place_to(const QpShared& target);
  void place_everything();

  // `cq` shows no receives before `due`; its channel is notified then.
  void hide(Cq& cq, uint64_t due);

  void forget(const Context& ctx);
  void forget(const Cq& cq);

  bool empty();
  uint64_t next_due();
  void run_due(uint64_t now);

 private:
  struct Packet {
    uint64_t due = 0;
    FaultKind why = FaultKind::None;
    uint32_t behind = 0;     // QPN whose next datagram releases it
    std::unique_ptr<Qp> qp;  // as it was
    SendWr wr;
    ibv_sge sge{};
    ibv_ah_attr av{};
    std::vector<char> payload;
  };
  struct Placement {
    uint64_t due = 0;
    const Qp* qp = nullptr;
    Peer* peer = nullptr;
    QpShared* target = nullptr;
    uint64_t host = 0;
    std::vector<char> payload;
  };
  struct Hidden {
    uint64_t due = 0;
    Cq* cq = nullptr;
  };

  void run(const std::vector<std::unique_ptr<Packet>>& packets);
  void place(const Placement& placement);
  template <typename Which>
  void place_if(Which which);

  Process& proc_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Packet>> packets_;
  std::vector<Placement> placements_;
  std::vector<Hidden> hidden_;
};

}  // namespace softhca
