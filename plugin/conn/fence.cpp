#include "plugin/conn/fence.h"

#include <algorithm>
#include <cerrno>

#include "ops/poller.h"
#include "plugin/verbs/clock.h"
#include "plugin/verbs/qp_attr.h"

namespace mend::conn {
namespace {

using std::chrono::nanoseconds;

constexpr auto kPollPause = std::chrono::microseconds(20);
// How long LAST_WQE_REACHED is waited for: generously where the device is known to raise it, once
// and shortly to find out.
constexpr auto kLastWqeKnown = std::chrono::milliseconds(100);
// How long a device may take to show the state it was told to take.
constexpr auto kConfirmLimit = std::chrono::milliseconds(500);
constexpr auto kLastWqeUnknown = std::chrono::milliseconds(10);
// A device short of something may refuse a transition for a moment; the job should not end for
// that.
constexpr auto kRefusedPause = std::chrono::milliseconds(10);

// The beacon: a zero-byte SEND that can only be flushed, in the SQ slot reserved for it.
class Beacon {
 public:
  Beacon(ops::Poller& poller, RcQp& qp) : poller_(poller), qp_(qp) {
    qp.beacon.store(0, std::memory_order_relaxed);
    wr_id_ = poller.make_beacon_wr_id(&qp.beacon);
  }
  ~Beacon() { poller_.cancel_beacon(wr_id_); }
  Beacon(const Beacon&) = delete;
  Beacon& operator=(const Beacon&) = delete;

  bool post() {
    ibv_send_wr wr{};
    wr.wr_id = wr_id_;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_.qp.get(), &wr, &bad) == 0;
  }
  bool seen() const { return qp_.beacon.load(std::memory_order_acquire) != 0; }

 private:
  ops::Poller& poller_;
  RcQp& qp_;
  std::uint64_t wr_id_ = 0;
};

// Drains until done() or the deadline; the last drain follows the moment done() was seen.
template <typename Done>
bool drain_until(ops::Poller& poller, nanoseconds deadline, Done done) {
  for (int look = 0;; ++look) {
    const bool finished = done();
    poller.drain_for_fence();
    if (finished) return true;
    if (process_clock().now() >= deadline) return done();
    // What a device flushes at once was drained just now; a pause may cost a time slice.
    if (look > 0) process_clock().pause(kPollPause);
  }
}

void wait_for_beacon(Rail& rail, RcQp& qp, nanoseconds deadline, FenceReport& report) {
  Beacon beacon(rail.poller(), qp);
  bool posted = false;
  // A full SQ lets the beacon in as soon as its flushed requests were polled.
  report.beacon_seen = drain_until(rail.poller(), deadline, [&] {
    if (!posted) posted = beacon.post();
    return posted && beacon.seen();
  });
}

void wait_for_last_wqe(Rail& rail, RcQp& qp, nanoseconds deadline, FenceReport& report) {
  Nic& nic = rail.nic();
  const LastWqe known = nic.last_wqe();
  if (rail.srq() == nullptr || known == LastWqe::Missing) return;
  const auto patience = known == LastWqe::Delivered ? kLastWqeKnown : kLastWqeUnknown;
  report.last_wqe_seen =
      drain_until(rail.poller(), std::min(deadline, process_clock().now() + patience),
                  [&] { return qp.last_wqe.load(std::memory_order_acquire); });
  if (!report.last_wqe_seen && known == LastWqe::Unknown) nic.set_last_wqe(LastWqe::Missing);
}

bool is_dead(Rail& rail, const Error& error) { return error.code == EIO || rail.nic().fatal(); }

// What a refusal means: a dead device does nothing any more, which fences as well.
bool refused(Rail& rail, const Error& error, FenceReport& report) {
  report.reason = error.message;
  const bool dead = is_dead(rail, error);
  if (dead) rail.nic().set_fatal();
  report.outcome = dead ? FenceOutcome::DeviceGone : FenceOutcome::Failed;
  return false;
}

// A transition that must succeed, and be seen to have: devices take up to 15 ms to show a new
// state. What is refused is tried again for as long as a state is waited for. False: report.outcome
// says what it means.
bool move(Rail& rail, RcQp& qp, const verbs::QpChange& change, ibv_qp_state state,
          FenceReport& report) {
  const auto until = process_clock().now() + kConfirmLimit;
  auto moved = verbs::modify(rail.api(), qp.qp.get(), change);
  while (!moved && !is_dead(rail, moved.error()) && process_clock().now() < until) {
    process_clock().pause(kRefusedPause);
    moved = verbs::modify(rail.api(), qp.qp.get(), change);
  }
  if (!moved) return refused(rail, moved.error(), report);
  const auto seen = verbs::confirm_state(rail.api(), qp.qp.get(), state, kConfirmLimit);
  return seen.has_value() || refused(rail, seen.error(), report);
}

void run_fence(Rail& rail, RcQp& qp, nanoseconds deadline, FenceReport& report) {
  if (!move(rail, qp, verbs::to_error(), IBV_QPS_ERR, report)) return;
  qp.stage = QpStage::Err;
  wait_for_beacon(rail, qp, deadline, report);
  wait_for_last_wqe(rail, qp, deadline, report);
  // Without the beacon (a device that lost its completion) RESET fences all the same: what was not
  // polled by then is not counted, and what is not counted is replayed.
  if (!move(rail, qp, verbs::to_reset(), IBV_QPS_RESET, report)) return;
  // Some devices leave the completions of a reset QP in the CQ: they count as long as nothing was
  // sampled.
  rail.poller().drain_for_fence();
  report.outcome = FenceOutcome::Fenced;
}

bool in_reset(QpStage stage) {
  return stage == QpStage::Idle || stage == QpStage::Fenced || stage == QpStage::Parked;
}

}  // namespace

const char* to_string(FenceOutcome outcome) {
  switch (outcome) {
    case FenceOutcome::Fenced:
      return "Fenced";
    case FenceOutcome::DeviceGone:
      return "DeviceGone";
    case FenceOutcome::Failed:
      return "Failed";
  }
  return "unknown";
}

FenceReport fence(Rail& rail, RcQp& qp, std::chrono::milliseconds limit) {
  FenceReport report;
  const auto start = process_clock().now();
  if (in_reset(qp.stage)) {
    report.outcome = FenceOutcome::Fenced;
    return report;
  }
  run_fence(rail, qp, start + limit, report);
  if (report.outcome == FenceOutcome::DeviceGone) rail.poller().drain_for_fence();
  qp.stage = report.fenced() ? QpStage::Fenced : QpStage::Stuck;
  report.microseconds = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(process_clock().now() - start).count());
  return report;
}

}  // namespace mend::conn
