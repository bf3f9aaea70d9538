// How a request fares under the fault schedule: what was decided when it was posted, attempt by
// attempt.
#include <utility>

#include "softhca/engine/deliver.h"
#include "softhca/engine/execute.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/wr_log.h"

namespace softhca {

namespace {

constexpr ExecResult held() noexcept { return {Outcome::Held, IBV_WC_SUCCESS, 0}; }

bool counts_down(uint32_t& left) noexcept {
  if (left == 0) return false;
  if (left != kForever) --left;
  return true;
}

bool is_atomic(const SendWr& wr) noexcept {
  return wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// The eight bytes that an atomic returns its result in.
void exchange_result(const Qp& qp, const SendWr& wr, uint64_t* value) {
  LocalData data;
  if (!collect_local(qp, wr, IBV_ACCESS_LOCAL_WRITE, &data)) return;
  auto* word = reinterpret_cast<unsigned char*>(value);
  std::size_t at = 0;
  for (unsigned i = 0; i < data.count; ++i) {
    auto* bytes = static_cast<unsigned char*>(data.pieces[i].iov_base);
    for (std::size_t k = 0; k < data.pieces[i].iov_len && at < sizeof(*value); ++k) {
      std::swap(bytes[k], word[at++]);
    }
  }
}

bool fails_by_rule(const Flight& f) noexcept {
  return f.kill_serial != 0 || f.status != IBV_WC_SUCCESS;
}

bool waits_for_answer(const Flight& f) noexcept {
  return f.ack_drops != 0 || f.cqe_delay != 0 || (f.silent && f.execute_first);
}

}  // namespace

ExecResult Injector::first_attempt(Qp& qp, const SendWr& wr) {
  if (const int error = on_call(*qp.ctx, FaultCall::PostSend); error != 0) {
    qp.fresh.refusal = error;
    return {Outcome::Refused, IBV_WC_SUCCESS, 0};
  }
  qp.fresh = Flight{};
  return attempt(qp, wr, qp.fresh);
}

ExecResult Injector::attempt(Qp& qp, const SendWr& wr, Flight& flight) {
  if (!flight.asked) flight = decide(qp, wr);
  // What was acknowledged before is in its place before anything new happens.
  settle(qp);
  if (qp.type == IBV_QPT_UD) return datagram(qp, wr, flight);
  if (flight.fetch_at > proc_.now()) {
    flight.wake = flight.fetch_at;
    return held();
  }
  if (fails_by_rule(flight)) return fail_by_rule(qp, wr, flight);
  if (waits_for_answer(flight) || flight.executed) return keep_answer(qp, wr, flight);
  if (flight.silent) {
    flight.wake = UINT64_MAX;
    return held();
  }
  return run(qp, wr, flight);
}

// Everything that does not outlive the attempt.
ExecResult Injector::run(Qp& qp, const SendWr& wr, Flight& flight) {
  ExecResult result = no_answer();
  if (flight.ghost_delay != 0) {
    late_.deliver_later(qp, wr, proc_.now() + flight.ghost_delay, FaultKind::Ghost);
    flight.ghost_delay = 0;
  }
  if (counts_down(flight.drops)) {
    log_attempt(qp, wr, result, {.fault = flight.kind});
    return result;
  }
  if (counts_down(flight.not_ready)) {
    const QpShared* target = connected_target(qp);
    result = {Outcome::NotReady, IBV_WC_RNR_RETRY_EXC_ERR,
              target != nullptr ? target->min_rnr_timer : uint8_t{1}};
    log_attempt(qp, wr, result, {.fault = flight.kind});
    return result;
  }
  if (flight.place_delay != 0) {
    result = late_.place_later(qp, wr, proc_.now() + flight.place_delay);
  } else {
    result = execute(qp, wr);
  }
  log_attempt(qp, wr, result, {.executed = result.outcome == Outcome::Done, .fault = flight.kind});
  return result;
}

// Executes once and answers as the schedule wants.
ExecResult Injector::keep_answer(Qp& qp, const SendWr& wr, Flight& flight) {
  // The answer of a read is its data: a lost one is as good as a lost request.
  if (flight.ack_drops != 0 && wr.opcode == IBV_WR_RDMA_READ) {
    flight.drops = flight.ack_drops;
    flight.ack_drops = 0;
    return run(qp, wr, flight);
  }
  const bool answer_travels = flight.cqe_delay == 0;
  if (!flight.executed) {
    if (is_atomic(wr)) exchange_result(qp, wr, &flight.result);
    const ExecResult result = execute(qp, wr);
    // The result of an atomic does not arrive before the answer does.
    if (is_atomic(wr)) exchange_result(qp, wr, &flight.result);
    if (result.outcome != Outcome::Done) {
      log_attempt(qp, wr, result, {.fault = flight.kind});
      return result;
    }
    flight.executed = true;
    flight.answer = result;
    const ExecResult seen = flight.ack_drops != 0 ? no_answer() : held();
    log_attempt(qp, wr, seen, {.executed = true, .fault = flight.kind});
    qp.sq_psn = psn_after(qp, wr.length);
    qp.run_ahead = flight.window;
    flight.acked = !answer_travels;
    flight.wake = flight.silent ? UINT64_MAX : proc_.now() + flight.cqe_delay;
    if (flight.silent || !answer_travels) return held();
  }
  if (flight.silent || flight.wake > proc_.now()) return held();
  if (counts_down(flight.ack_drops)) return no_answer();
  if (is_atomic(wr)) exchange_result(qp, wr, &flight.result);
  return flight.answer;
}

void Injector::run_ahead(Qp& qp, PendingWr& pending) {
  if (qp.run_ahead == 0) return;
  for (const PendingWr& before : qp.pending) {
    if (&before != &pending && !before.flight.executed) return;
  }
  Flight& flight = pending.flight;
  flight = decide(qp, pending.wr);
  if (flight.kind != FaultKind::None || pending.wr.opcode == IBV_WR_RDMA_READ) return;
  const uint32_t left = qp.run_ahead == kForever ? kForever : qp.run_ahead - 1;
  flight.kind = FaultKind::DropAck;
  flight.ack_drops = 1;
  (void)keep_answer(qp, pending.wr, flight);
  flight.ack_drops = 0;
  qp.run_ahead = flight.executed ? left : 0;
}

// status and kill-qp.
ExecResult Injector::fail_by_rule(Qp& qp, const SendWr& wr, Flight& flight) {
  bool executed = false;
  if (flight.execute_first) {
    const ExecResult result = execute(qp, wr);
    if (result.outcome == Outcome::NotReady || result.outcome == Outcome::NoAnswer) return result;
    executed = result.outcome == Outcome::Done;
  }
  if (flight.kill_serial == 0) {
    const ExecResult failed = local_error(flight.status);
    log_attempt(qp, wr, failed, {.executed = executed, .fault = flight.kind});
    return failed;
  }
  const bool own = kill_by(std::exchange(flight.kill_serial, 0), qp, wr);
  // The acknowledgement is lost with the queue pair that was to send or to take it.
  ExecResult result = own ? local_error(IBV_WC_WR_FLUSH_ERR) : no_answer();
  if (!own && !executed) return run(qp, wr, flight);
  if (executed) flight.drops = kForever;
  log_attempt(qp, wr, result, {.executed = executed, .fault = FaultKind::KillQp});
  return result;
}

ExecResult Injector::datagram(Qp& qp, const SendWr& wr, Flight& flight) {
  const uint64_t now = proc_.now();
  if (fails_by_rule(flight)) return fail_by_rule(qp, wr, flight);
  if (flight.cqe_delay != 0 || flight.silent || flight.executed) return keep_answer(qp, wr, flight);
  if (flight.fetch_at > now) {
    flight.wake = flight.fetch_at;
    return held();
  }
  ExecResult result = no_effect();
  const bool sent = !counts_down(flight.drops);
  if (sent && flight.late_by != 0) {
    late_.deliver_later(qp, wr, now + flight.late_by, flight.kind, flight.behind_next);
  } else if (sent) {
    result = execute(qp, wr);
    if (flight.copy_delay != 0)
      late_.deliver_later(qp, wr, now + flight.copy_delay, FaultKind::Duplicate);
  }
  log_attempt(qp, wr, result, {.executed = result.outcome == Outcome::Done, .fault = flight.kind});
  if (sent && flight.late_by == 0) late_.datagram_sent(qp);
  return result;
}

}  // namespace softhca
