// Channel: lanes come and go. What is settled when a QP died, what is in doubt, and where posting
// starts again (docs/protocol.md 1.6; the rules are named in the code).
#include <algorithm>
#include <mutex>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/wr_id.h"
#include "plugin/verbs/mutate.h"

namespace mend::ops {

void Channel::attach(const Lane& lane) {
  const std::lock_guard guard(lock_);
  lane_ = lane;
  epoch_.store(lane.epoch.value, std::memory_order_relaxed);
  rx_epoch_ = lane.epoch.value;
  log_wr_base_ = make_wr_id(WrKind::Log, lane.epoch, 0);
  ack_wr_base_ = make_wr_id(WrKind::Ack, lane.epoch, 0);
  sq_posted_ = 0;
  sq_retired_ = 0;
  signalled_end_ = 0;
  probe_end_ = 0;
  unsignalled_ = 0;
  wire_entries_ = 0;
  post_send_ = lane.qp->context->ops.post_send;
  broken_ = false;
  chores_ |= kChoreFirstRx;
  fast_sends_ = 0;
  epoch_lo_ = static_cast<std::uint16_t>(lane.epoch.value);
  lost_reported_ = false;
  // A loss of the lane before that nobody has taken yet would be told as one of this lane.
  events_pending_.store(events_pending_.load(std::memory_order_relaxed) & ~kEvLost,
                        std::memory_order_relaxed);
  wanted_raised_ = false;
  state_.store(LaneState::Attached, std::memory_order_relaxed);
}

ReplayVerdict Channel::start(Seq peer_rx_next) {
  lock_.lock();
  const std::uint32_t distance = peer_rx_next.value - static_cast<std::uint32_t>(acked_);
  if (static_cast<std::int32_t>(distance) < 0) {
    lock_.unlock();
    return ReplayVerdict::DataLoss;  // F7: it forgot what it had acknowledged
  }
  if (distance > tx_next_ - acked_) {
    lock_.unlock();
    return ReplayVerdict::Corrupt;  // F7: it has what I never submitted
  }
  settle_by_peer(acked_ + distance);
  log_.set_posted(log_.done());
  log_.set_retired(log_.done());
  replay_end_ = log_.end();
  replaying_ = !log_.all_done();
  set_steady(!replaying_);
  if (!replaying_) {
    raise(kEvLogEmpty);
  }
  state_.store(LaneState::Posting, std::memory_order_relaxed);
  pump();
  lock_.unlock();
  if (events_pending()) {
    run_events();
  }
  return ReplayVerdict::Ok;
}

// S1, P1, P2, P4. Only the entries handed to a QP before are a question; they form the front of the
// log.
void Channel::settle_by_peer(std::uint64_t rx_next) {
  const auto next32 = static_cast<std::uint32_t>(rx_next);
  std::uint64_t settled_end = log_.done();  // behind the youngest SEND the peer has
  std::uint64_t position = log_.done();
  for (; position != log_.end(); ++position) {
    const LogEntry& entry = log_.at(position);
    if ((entry.flags & kLogEverPosted) == 0) {
      break;
    }
    if (entry.kind == LogKind::Send && before(Seq{entry.seq}, Seq{next32})) {
      settled_end = position + 1;
    }
  }
  for (std::uint64_t i = log_.done(); i != position; ++i) {
    LogEntry& entry = log_.at(i);
    if (entry.kind != LogKind::Put || (entry.flags & kLogDone) != 0) {
      continue;
    }
    if (i < settled_end && !missing(Rule::P2)) {
      finish_piece(entry);  // P2: the same QP executed it before that SEND
    } else {
      ++stats_.in_doubt;  // P4
    }
  }
  acked_ = rx_next;
  advance_done();  // S1
}

void Channel::stop_posting() {
  const std::lock_guard guard(lock_);
  if (state_.load(std::memory_order_relaxed) != LaneState::None) {
    state_.store(LaneState::Stopped, std::memory_order_relaxed);
    set_steady(false);
  }
  fast_sends_ = 0;
  set_blocked(false);
}

TxRxProgress Channel::detach(bool fenced) {
  const std::lock_guard guard(lock_);
  unfenced_ = !fenced;
  release_wire();
  state_.store(LaneState::None, std::memory_order_relaxed);
  set_steady(false);
  fast_sends_ = 0;
  lane_.qp = nullptr;
  rx_epoch_ = kNoEpoch;  // nothing is counted after the sample below (F1)
  set_blocked(false);
  replaying_ = false;
  const std::uint64_t rx_next = rx_next_.load(std::memory_order_relaxed);
  // The peer learns this number in the handshake; only what comes later is owed.
  note_told(rx_next);
  const TxRxProgress sample{.rx_next = Seq{static_cast<std::uint32_t>(rx_next)},
                            .tx_acked = Seq{static_cast<std::uint32_t>(acked_)},
                            .tx_next = Seq{static_cast<std::uint32_t>(tx_next_)}};
  fail_if_abandoned();
  return sample;
}

// The QP reached RESET: the device reads nothing of ours any more (R3).
void Channel::release_wire() {
  for (std::uint64_t i = log_.retired(); i != log_.posted(); ++i) {
    drop_wire(log_.at(i));
    if (missing(Rule::I5) && log_.at(i).kind == LogKind::Send) {
      release_peer(log_.at(i).frag());
    }
  }
  wire_entries_ = 0;
  log_.set_posted(log_.done());
  log_.set_retired(log_.done());
}

}  // namespace mend::ops
