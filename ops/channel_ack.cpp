// Channel: acknowledgements in both directions, and the completion of log entries by acks and by
// CQEs.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/wr_id.h"
#include "plugin/verbs/mutate.h"

namespace mend::ops {
namespace {

// So long is a silent channel looked at, because arming the timer anew costs a system call.
constexpr std::uint32_t kSilentTicks = 8;
constexpr std::uint32_t kBusyTicks = 32;  // found the lock held; the next one waits for it

}  // namespace

// --- what the peer has ---

// Only what was ever sent can be acknowledged; anything else is old news (F7: taken by max).
void Channel::apply_ack(std::uint32_t ack) {
  const std::uint32_t distance = ack - static_cast<std::uint32_t>(acked_);
  if (distance != 0 && distance <= tx_sent_ - acked_) {
    accept_acked(acked_ + distance);
  }
}

void Channel::accept_acked(std::uint64_t acked) {
  settle_acked(acked);
  if (log_.posted() != log_.end()) [[unlikely]] {
    pump_pending();
  }
}

void Channel::settle_acked(std::uint64_t acked) {
  std::uint64_t newly = acked - acked_;
  acked_ = acked;
  if (special_ != 0) [[unlikely]] {
    advance_done();
    return;
  }
  // SENDs only: the next ones in the log are the ones acknowledged.
  std::uint64_t position = log_.done();
  for (; newly != 0; --newly) {
    const LogEntry& entry = log_.at(position++);
    release_peer(entry.frag());
  }
  log_.set_done(position);
}

// Nobody adds holds any more: whoever is alone needs no atomic exchange.
void Channel::release_peer(Frag& frag) {
  if (missing(Rule::I5) && frag.held.load(std::memory_order_relaxed) == 0) {
    return;  // given away at the fence already
  }
  if (frag.held.load(std::memory_order_acquire) == kHoldPeer) [[likely]] {
    frag.held.store(0, std::memory_order_relaxed);
    frag.pool->put(frag);
  } else {
    release_hold(frag, kHoldPeer);
  }
}

void Channel::on_peer_ack(Seq rx_next) {
  lock_.lock();
  apply_ack(rx_next.value);
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
}

// The cell only ever grows; 64 bits, so a word written long ago cannot look new.
void Channel::load_ack_cell() {
  const std::uint64_t told =
      std::atomic_ref<std::uint64_t>(cell_->from_peer).load(std::memory_order_acquire);
  if (told > acked_ && told <= tx_sent_) {
    settle_acked(told);
  }
}

void Channel::check_ack_cell() {
  lock_.lock();
  load_ack_cell();
  if (log_.posted() != log_.end()) {
    pump();
  }
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
}

// Moves the done cursor over everything that is complete, in log order.
void Channel::advance_done() {
  std::uint64_t position = log_.done();
  const auto acked32 = static_cast<std::uint32_t>(acked_);
  for (; position != log_.end(); ++position) {
    LogEntry& entry = log_.at(position);
    if (entry.kind == LogKind::Send) {
      if (!before(Seq{entry.seq}, Seq{acked32})) {
        break;
      }
      release_peer(entry.frag());
    } else if ((entry.flags & kLogDone) != 0) {
      special_ -= kOneRdma;
    } else {
      break;
    }
  }
  log_.set_done(position);
  if ((special_ & kNotSteady) != 0) [[unlikely]] {
    settle_cursors();
  }
}

void Channel::settle_cursors() {
  if (log_.posted() < log_.done()) {  // acknowledged while nothing may be posted
    log_.set_posted(log_.done());
    log_.set_retired(log_.done());
  }
  if (replaying_ && log_.done() >= replay_end_) {
    replaying_ = false;
    set_steady(state_.load(std::memory_order_relaxed) == LaneState::Posting);
    raise(kEvLogEmpty);
  }
}

// --- what left the send queue ---

void Channel::on_send_completion(const ibv_wc& wc) {
  const std::lock_guard guard(lock_);
  if (state_.load(std::memory_order_relaxed) == LaneState::None ||
      !wr_of_epoch(wc.wr_id, lane_.epoch)) [[unlikely]] {
    ++stats_.other_epoch;  // its wire holds went with its lane (F3)
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    note_send_error(wc);
    return;
  }
  retire_to(wr_lower(wc.wr_id));
  if (log_.posted() != log_.end()) [[unlikely]] {
    pump_pending();
  } else if (fast_sends_ == 0) {
    refill_fast_sends();  // the log or the queue was short of room
  }
}

// A success completion: this WR and all before it in the send queue were executed (R1, R4).
void Channel::retire_to(std::uint32_t sq_position) {
  sq_retired_ = sq_position + 1;
  if (wire_entries_ == 0) [[likely]] {
    // Inline SENDs only: nothing waits for this. Their log slots are free but for the WRs behind
    // this one.
    const std::uint64_t behind = sq_posted_ - sq_retired_;
    if (log_.posted() - log_.retired() > behind) {
      log_.set_retired(log_.posted() - behind);
    }
    return;
  }
  std::uint64_t position = log_.retired();
  for (; position != log_.posted(); ++position) {
    LogEntry& entry = log_.at(position);
    if (static_cast<std::int32_t>(entry.sq_position - sq_position) > 0) {
      break;
    }
    if (entry.kind != LogKind::Send) {
      retire_rdma(entry);
    } else {
      drop_wire(entry);
    }
  }
  log_.set_retired(position);
  advance_done();
}

void Channel::retire_rdma(LogEntry& entry) {
  if ((entry.flags & kLogDone) ==
      0) {  // else it was not posted on this lane: settled before the replay
    --wire_entries_;
    finish_piece(entry);
  }
}

void Channel::drop_wire(LogEntry& entry) {
  if ((entry.flags & kLogWire) != 0) {
    entry.flags &= static_cast<std::uint8_t>(~kLogWire);
    --wire_entries_;
    release_hold(entry.frag(), kHoldWire);
  }
}

void Channel::finish_piece(LogEntry& entry) {
  entry.flags |= kLogDone;
  RdmaOp& op = entry.rdma();
  if (--op.pieces_left == 0) {
    home_.push_done(op);
  }
}

// --- what I tell the peer ---

// Eight bytes into the peer's ack cell: no window, no receive buffer, no log entry. One slot of the
// send queue is kept for it.
bool Channel::write_ack() {
  if (!can_post() || sq_posted_ - sq_retired_ > send_depth_) {
    return false;
  }
  const std::uint64_t rx_next = rx_next_.load(std::memory_order_relaxed);
  std::atomic_ref<std::uint64_t>(cell_->to_peer).store(rx_next, std::memory_order_release);
  sge_.addr = reinterpret_cast<std::uint64_t>(&cell_->to_peer);
  sge_.length = sizeof(cell_->to_peer);
  unsigned flags = IBV_SEND_INLINE;
  if (max_inline_ < sizeof(cell_->to_peer)) {
    flags = 0;
    sge_.lkey = config_.ack_keys->lkey[lane_.local_rail.value].value;
  }
  // The reserved slot comes back only through its own completion.
  if (++unsignalled_ >= signal_every_ || sq_posted_ - sq_retired_ == send_depth_) {
    flags |= IBV_SEND_SIGNALED;
  }
  wr_.opcode = IBV_WR_RDMA_WRITE;
  wr_.wr.rdma.remote_addr = lane_.ack_cell_addr;
  wr_.wr.rdma.rkey = lane_.ack_cell_rkey.value;
  const bool posted = post(ack_wr_base_, flags);
  use_wr_for_sends();
  if (!posted) {
    return false;
  }
  note_told(rx_next);
  ++stats_.acks_written;
  return true;
}

bool Channel::post_probe(std::uint64_t wr_id) {
  const std::lock_guard guard(lock_);
  if (!can_post()) {
    return false;
  }
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = lane_.ack_cell_addr;
  wr.wr.rdma.rkey = lane_.ack_cell_rkey.value;
  probe_end_ = sq_posted_;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(lane_.qp, &wr, &bad) == 0;
}

void Channel::probe_succeeded(Epoch epoch) {
  const std::lock_guard guard(lock_);
  if (epoch == lane_.epoch && can_post() &&
      static_cast<std::int32_t>(probe_end_ - sq_retired_) > 0) {
    retire_to(probe_end_ - 1);
  }
}

Channel::Waiting Channel::waiting() const {
  const std::lock_guard guard(lock_);
  const bool posting = state_.load(std::memory_order_relaxed) == LaneState::Posting;
  return Waiting{
      .epoch = lane_.epoch,
      .retired = sq_retired_,
      .acked = acked_,
      .for_device = posting && static_cast<std::int32_t>(signalled_end_ - sq_retired_) > 0,
      .for_peer = posting && tx_sent_ != acked_};
}

void Channel::fall_asleep() {
  const std::lock_guard guard(lock_);
  asleep_ = true;
}

void Channel::write_ack_if_owed(bool force) {
  if (!ack_owed()) {
    return;
  }
  lock_.lock();
  const std::uint64_t owed = rx_next_.load(std::memory_order_relaxed) - told_peer();
  if (owed >= ack_threshold_ || (force && owed != 0)) {
    write_ack();
  }
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
}

// Whoever calls progress acknowledges by itself; what is still owed after a tick without a receive
// is owed by an application that went away to compute. Whoever holds the lock is not away; to wait
// for it costs time where they share a core, and the device is called under it. But an application
// that does nothing but post must not keep an acknowledgement back for long.
AckTick Channel::ack_tick() {
  if (!lock_.try_lock()) {
    if (++busy_ticks_ <= kBusyTicks) {
      return AckTick::Receiving;
    }
    lock_.lock();
  }
  busy_ticks_ = 0;
  const std::uint64_t rx_next = rx_next_.load(std::memory_order_relaxed);
  const bool receiving = rx_next != std::exchange(tick_rx_next_, rx_next);
  if (!receiving && ack_owed()) {
    write_ack();
  }
  silent_ticks_ = receiving || ack_owed() ? 0 : silent_ticks_ + 1;
  const bool done = silent_ticks_ >= kSilentTicks;
  if (done) {
    silent_ticks_ = 0;
    chores_ |= kChoreTimer;
  }
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
  return done ? AckTick::Done : receiving ? AckTick::Receiving : AckTick::Silent;
}

// Progress found nothing to do: pick up the peer's ack, write ours when it is idle for long, retry
// what lacked memory.
bool Channel::look(bool long_idle) {
  lock_.lock();
  if (!log_.all_done()) {
    load_ack_cell();
    if (log_.posted() != log_.end()) {
      pump();
    }
  }
  if (long_idle && ack_owed()) {
    write_ack();
  }
  const bool waiting = waiting_calls_ != nullptr || !waiting_replies_.empty();
  const bool stay = waiting || !log_.all_done() || ack_owed();
  if (!stay) {
    chores_ |= kChoreAttention;
    fast_sends_ = 0;
  }
  lock_.unlock();
  if (waiting) [[unlikely]] {
    retry_waiting();
  }
  return stay;
}

}  // namespace mend::ops
