// QpPool: the RC queue pairs of one rail, from creation to destruction, and the register of all of
// them.
//
//   Idle(RESET) -> Armed(INIT, warm) -> Rtr -> Rts -> Err -> Fenced(RESET) -> Parked(linger) ->
//   destroyed
//
// Thread contract: take, to_rtr, to_rts, park, reap, refill and clear on the worker thread (they
// block); on_last_wqe(), owns() and counts() from any thread.
// Invariants: every QP that exists is registered (I9); a QP leaves RESET only under a reservation
// of the rail (2 x rule), and counts().live is the number of the pool's reservations; a QP is
// destroyed only from RESET, after its linger; one that cannot be fenced is kept until the pool
// goes, never reused or destroyed before.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plugin/conn/clock.h"
#include "plugin/conn/rail.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/qp_attr.h"
#include "plugin/verbs/types.h"
#include "plugin/verbs/unique.h"

namespace mend::conn {

enum class QpStage : std::uint8_t { Idle, Armed, Rtr, Rts, Err, Fenced, Parked, Stuck };
const char* to_string(QpStage stage);

struct RcQp {
  verbs::Qp qp;
  Qpn qpn;
  std::uint32_t send_depth = 0;  // data WRs; kReservedSendWrs more exist
  std::uint32_t max_inline = 0;
  QpStage stage = QpStage::Idle;
  TimeNs parked_at{};
  std::atomic<int> beacon{0};         // written by the Poller, see ops/poller.h
  std::atomic<bool> last_wqe{false};  // LAST_WQE_REACHED was seen
};

struct QpCounts {
  std::uint64_t created = 0, destroyed = 0;
  // QPs that may take receive buffers, as the 2 x rule counts them: from INIT until they are
  // fenced; warm and stuck ones are live, parked ones are not.
  std::uint32_t live = 0, live_max = 0;

  std::uint64_t existing() const { return created - destroyed; }
};

class QpPool {
 public:
  QpPool(Rail& rail, const Params& params);
  ~QpPool();  // clear()s; QPs still with a connection must have come back
  QpPool(const QpPool&) = delete;
  QpPool& operator=(const QpPool&) = delete;

  // A QP in INIT. Its number differs from `last` (the connection's previous QP, rule F4).
  // ENOMEM/EINVAL: the device or the 2 x rule allows no more now; parked QPs are given up early
  // first, then the caller backs off.
  Result<RcQp*> take(Qpn last);
  Result<void> to_rtr(RcQp& qp, const verbs::QpParams& params);
  Result<void> to_rts(RcQp& qp, const verbs::QpParams& params);
  // After the fence: the QP waits out its linger. A Stuck one stays registered for ever.
  void park(RcQp* qp, TimeNs now);

  // Destroys what has lingered long enough. Returns when to call again (kNever: nothing is parked).
  TimeNs reap(TimeNs now);
  // Creates warm QPs up to qp_pool_size; an error only means that the pool stays short.
  Result<void> refill();
  // Destroys warm and parked QPs at once (end of the process' communication: no linger is needed
  // then).
  void clear();

  // LAST_WQE_REACHED or another event of one of our QPs; false: not ours.
  bool on_last_wqe(Qpn qpn);
  bool owns(Qpn qpn) const;
  QpCounts counts() const;

 private:
  Result<std::unique_ptr<RcQp>> create();
  Result<void> arm(RcQp& qp);
  void disarm(RcQp& qp);
  Result<RcQp*> make_armed();
  void destroy(RcQp* qp);
  bool forget_oldest_parked();

  Rail& rail_;
  const std::uint32_t warm_wanted_;
  const TimeNs linger_;
  mutable std::mutex
      mutex_;  // guards all_ (the register); the QPs' contents belong to the worker thread
  std::vector<std::unique_ptr<RcQp>> all_;
  std::vector<RcQp*> warm_;
  std::vector<RcQp*> parked_;  // oldest first
  QpCounts counts_;            // guarded by mutex_
};

}  // namespace mend::conn
