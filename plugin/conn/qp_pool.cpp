#include "plugin/conn/qp_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ops/recv_pool.h"
#include "plugin/conn/sizing.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/mutate.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {

const char* to_string(QpStage stage) {
  switch (stage) {
    case QpStage::Idle:
      return "Idle";
    case QpStage::Armed:
      return "Armed";
    case QpStage::Rtr:
      return "Rtr";
    case QpStage::Rts:
      return "Rts";
    case QpStage::Err:
      return "Err";
    case QpStage::Fenced:
      return "Fenced";
    case QpStage::Parked:
      return "Parked";
    case QpStage::Stuck:
      return "Stuck";
  }
  return "unknown";
}

QpPool::QpPool(Rail& rail, const Params& params)
    : rail_(rail),
      warm_wanted_(static_cast<std::uint32_t>(params.qp_pool_size)),
      linger_(static_cast<TimeNs>(params.qp_linger_ms) * kMillisecond) {}

QpPool::~QpPool() { clear(); }

Result<std::unique_ptr<RcQp>> QpPool::create() {
  const RailSizes& sizes = rail_.sizes();
  auto grant = verbs::create_qp(rail_.api(), rail_.nic().pd(), rail_.nic().caps(),
                                {.send_cq = rail_.cq(),
                                 .recv_cq = rail_.cq(),
                                 .srq = rail_.srq(),
                                 .send_depth = sizes.send_depth + kReservedSendWrs,
                                 .send_minimum = sizes.send_depth + kReservedSendWrs,
                                 .recv_depth = sizes.per_qp_recv,
                                 .recv_minimum = sizes.per_qp_recv,
                                 .max_inline = sizes.max_inline});
  if (!grant) return tl::unexpected<Error>(std::move(grant.error()));
  auto made = std::make_unique<RcQp>();
  made->qp = std::move(grant->qp);
  made->qpn = Qpn{made->qp->qp_num};
  made->send_depth = sizes.send_depth;
  made->max_inline = std::min(grant->max_inline, sizes.max_inline);
  return made;
}

// RESET -> INIT under a reservation: buffers first, then the QP may take them.
Result<void> QpPool::arm(RcQp& qp) {
  if (auto room = rail_.reserve_qps(1); !room) return room;
  auto moved = verbs::modify(rail_.api(), qp.qp.get(), verbs::rc_init(rail_.qp_params({})));
  if (moved && rail_.recv_pool().per_qp()) moved = rail_.recv_pool().attach_queue(qp.qp.get());
  if (!moved) {
    (void)verbs::modify(rail_.api(), qp.qp.get(), verbs::to_reset());
    if (rail_.recv_pool().per_qp()) rail_.recv_pool().detach_queue(qp.qp.get());
    rail_.release_qps(1);
    return moved;
  }
  qp.stage = QpStage::Armed;
  const std::scoped_lock lock(mutex_);
  ++counts_.live;
  counts_.live_max = std::max(counts_.live_max, counts_.live);
  return {};
}

// Back in RESET: it takes no buffer any more.
void QpPool::disarm(RcQp& qp) {
  if (rail_.recv_pool().per_qp()) rail_.recv_pool().detach_queue(qp.qp.get());
  rail_.release_qps(1);
  const std::scoped_lock lock(mutex_);
  --counts_.live;
}

Result<RcQp*> QpPool::make_armed() {
  auto made = create();
  while (!made && made.error().code == ENOMEM && forget_oldest_parked()) made = create();
  if (!made) return tl::unexpected<Error>(std::move(made.error()));
  RcQp* qp = made->get();
  if (auto armed = arm(*qp); !armed) return tl::unexpected<Error>(std::move(armed.error()));
  const std::scoped_lock lock(mutex_);
  all_.push_back(std::move(*made));
  ++counts_.created;
  return qp;
}

Result<RcQp*> QpPool::take(Qpn last) {
  if constexpr (missing(Rule::F4)) {
    if (!parked_.empty()) {
      RcQp* again = parked_.back();
      parked_.pop_back();
      if (auto armed = arm(*again); !armed) return tl::unexpected<Error>(std::move(armed.error()));
      return again;
    }
  }
  for (std::size_t i = 0; i < warm_.size(); ++i) {
    if (warm_[i]->qpn == last) continue;
    RcQp* qp = warm_[i];
    warm_.erase(warm_.begin() + static_cast<std::ptrdiff_t>(i));
    return qp;
  }
  auto qp = make_armed();
  if (!qp || (*qp)->qpn != last) return qp;
  // The device gave the number back that the connection's ghosts still know: keep it warm for
  // another connection while a second one is made, which cannot have the same number.
  warm_.push_back(*qp);
  return make_armed();
}

Result<void> QpPool::to_rtr(RcQp& qp, const verbs::QpParams& params) {
  auto moved = verbs::modify(rail_.api(), qp.qp.get(), verbs::rc_rtr(params));
  if (moved) qp.stage = QpStage::Rtr;
  return moved;
}

Result<void> QpPool::to_rts(RcQp& qp, const verbs::QpParams& params) {
  auto moved = verbs::modify(rail_.api(), qp.qp.get(), verbs::rc_rts(params));
  if (moved) qp.stage = QpStage::Rts;
  return moved;
}

void QpPool::park(RcQp* qp, TimeNs now) {
  if (qp->stage == QpStage::Stuck) return;
  disarm(*qp);
  qp->stage = QpStage::Parked;
  qp->parked_at = now;
  parked_.push_back(qp);
}

TimeNs QpPool::reap(TimeNs now) {
  while (!parked_.empty()) {
    RcQp* oldest = parked_.front();
    const TimeNs due = after(oldest->parked_at, linger_);
    if (now < due) return due;
    forget_oldest_parked();
  }
  return kNever;
}

Result<void> QpPool::refill() {
  while (warm_.size() < warm_wanted_) {
    auto qp = make_armed();
    if (!qp) return tl::unexpected<Error>(std::move(qp.error()));
    warm_.push_back(*qp);
  }
  return {};
}

void QpPool::clear() {
  while (forget_oldest_parked()) {
  }
  for (RcQp* qp : warm_) {
    // A QP in INIT has sent and received nothing: RESET drops nothing, and gives its own buffers
    // back.
    if (auto moved = verbs::modify(rail_.api(), qp->qp.get(), verbs::to_reset()); !moved) {
      log(LogLevel::Debug, moved.error().message);
    }
    disarm(*qp);
    destroy(qp);
  }
  warm_.clear();
}

bool QpPool::forget_oldest_parked() {
  if (parked_.empty()) return false;
  RcQp* qp = parked_.front();
  parked_.erase(parked_.begin());
  destroy(qp);
  return true;
}

void QpPool::destroy(RcQp* qp) {
  std::unique_ptr<RcQp> owned;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [qp](const auto& entry) { return entry.get() == qp; });
    if (found == all_.end()) return;
    owned = std::move(*found);
    all_.erase(found);
    ++counts_.destroyed;
  }
  // The device's call outside the lock: it waits for unacknowledged events, whose reader needs the
  // register.
  owned.reset();
}

bool QpPool::on_last_wqe(Qpn qpn) {
  const std::scoped_lock lock(mutex_);
  for (const auto& qp : all_) {
    if (qp->qpn != qpn) continue;
    qp->last_wqe.store(true, std::memory_order_release);
    rail_.nic().set_last_wqe(LastWqe::Delivered);
    return true;
  }
  return false;
}

bool QpPool::owns(Qpn qpn) const {
  const std::scoped_lock lock(mutex_);
  return std::any_of(all_.begin(), all_.end(), [qpn](const auto& qp) { return qp->qpn == qpn; });
}

QpCounts QpPool::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

}  // namespace mend::conn
