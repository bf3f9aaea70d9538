#include "ops/channel.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/wr_id.h"

namespace mend::ops {

const char* to_string(Fault fault) {
  switch (fault) {
    case Fault::UnknownKind:
      return "message of unknown kind";
    case Fault::ShortMessage:
      return "message shorter than its header";
    case Fault::MessageTooLong:
      return "message longer than the peer's receive buffers";
    case Fault::BadAtomic:
      return "atomic of unknown kind, misaligned or outside its region";
    case Fault::AtomicRefused:
      return "atomic refused by the peer";
    case Fault::UnknownReply:
      return "reply to no atomic of ours";
    case Fault::NoInlineNoKeys:
      return "put without keys that cannot go inline";
  }
  return "?";
}

Channel::Channel(Poller& home, const ChannelConfig& config, const ChannelEvents& events)
    : window_(config.window),
      send_depth_(config.send_depth),
      // Half the queue at most, so that a full send queue always has a signalled WR in flight.
      signal_every_(std::max(1u, std::min(config.signal_every, config.send_depth / 2))),
      max_inline_(config.max_inline),
      fast_payload_(std::min(config.max_payload,
                             std::max<std::uint32_t>(config.max_inline, sizeof(DataHeader)) -
                                 static_cast<std::uint32_t>(sizeof(DataHeader)))),
      ack_due_(std::max(1u, config.window / 4)),
      ack_threshold_(std::max(1u, config.window / 4)),
      cell_(config.ack_cell),
      home_(home),
      config_(config),
      events_(events) {
  wr_.sg_list = &sge_;
  use_wr_for_sends();
}

Channel::~Channel() = default;

bool Channel::quiet() const {
  const std::lock_guard guard(lock_);
  return log_.all_done() && calls_.live() == 0 && waiting_calls_ == nullptr &&
         waiting_replies_.empty() && !ack_owed();
}

ChannelStats Channel::stats() const {
  const std::lock_guard guard(lock_);
  ChannelStats stats = stats_;
  stats.sends = tx_next_ - control_sends_;
  stats.recvs = rx_next_.load(std::memory_order_relaxed) - control_receives_;
  stats.bytes_sent += send_bytes_;
  return stats;
}

std::uint64_t Channel::held_bytes() const {
  const std::lock_guard guard(lock_);
  for (std::uint64_t i = log_.done(); i != log_.end(); ++i) {
    if (const LogEntry& entry = log_.at(i); entry.kind == LogKind::Send) {
      return send_bytes_ - entry.offset;
    }
  }
  return 0;
}

void Channel::limit_window(std::uint32_t most) {
  {
    const std::lock_guard guard(lock_);
    window_ = std::clamp(most, 1u, std::max(config_.window, 1u));
    fast_sends_ = 0;  // refilled under the new limit
  }
  check_ack_cell();  // what the old limit held back goes on
}

TxRxProgress Channel::progress_now() const {
  const std::lock_guard guard(lock_);
  return TxRxProgress{
      .rx_next = Seq{static_cast<std::uint32_t>(rx_next_.load(std::memory_order_relaxed))},
      .tx_acked = Seq{static_cast<std::uint32_t>(acked_)},
      .tx_next = Seq{static_cast<std::uint32_t>(tx_next_)}};
}

// --- receiving ---

RxVerdict Channel::on_receive(const DataHeader& header, std::uint32_t payload_bytes,
                              const std::byte* payload, Epoch lane_epoch) {
  lock_.lock();
  const std::uint64_t expected = rx_next_.load(std::memory_order_relaxed);
  if (header.seq != static_cast<std::uint32_t>(expected) || lane_epoch.value != rx_epoch_ ||
      header.epoch_lo != static_cast<std::uint16_t>(lane_epoch.value)) [[unlikely]] {
    const RxVerdict verdict = refuse_receive(header, lane_epoch);
    lock_.unlock();
    return verdict;
  }
  rx_next_.store(expected + 1, std::memory_order_relaxed);
  if (chores_ != 0) [[unlikely]] {
    do_chores();
  }
  stats_.bytes_received += payload_bytes;
  apply_ack(header.ack);
  if (expected + 1 >= ack_due_.load(std::memory_order_relaxed)) [[unlikely]] {
    write_ack();
  }
  if (header.kind == static_cast<std::uint8_t>(Kind::Data)) [[likely]] {
    lock_.unlock();
    return RxVerdict::Deliver;
  }
  ++control_receives_;
  if (header.kind >= kKinds) {
    note_fault(Fault::UnknownKind, header.kind);
  }
  lock_.unlock();
  if (header.kind == static_cast<std::uint8_t>(Kind::AmoReq)) {
    run_atomic(header, payload_bytes, payload);
  } else if (header.kind == static_cast<std::uint8_t>(Kind::AmoRsp)) {
    finish_atomic(header, payload_bytes, payload);
  }
  return RxVerdict::Consumed;
}

void Channel::do_chores() {
  if ((chores_ & kChoreFirstRx) != 0) {
    chores_ &= static_cast<std::uint8_t>(~kChoreFirstRx);
    raise(kEvFirstRx);
  }
  if ((chores_ & kChoreTimer) != 0) {
    chores_ &= static_cast<std::uint8_t>(~kChoreTimer);
    raise(kEvReceiving);
  }
  need_attention();
}

RxVerdict Channel::refuse_receive(const DataHeader& header, Epoch lane_epoch) {
  if (lane_epoch.value != rx_epoch_ ||
      header.epoch_lo != static_cast<std::uint16_t>(lane_epoch.value)) {
    ++stats_.other_epoch;
    return RxVerdict::OtherEpoch;
  }
  const auto expected = static_cast<std::uint32_t>(rx_next_.load(std::memory_order_relaxed));
  if (before(Seq{header.seq}, Seq{expected})) {
    ++stats_.dup_rx;
    return RxVerdict::Duplicate;
  }
  note_lost(kStatusGap, 0);
  return RxVerdict::Gap;
}

void Channel::on_receive_error(const ibv_wc& wc, Epoch lane_epoch) {
  const std::lock_guard guard(lock_);
  if (lane_epoch.value == rx_epoch_) {
    note_lost(wc.status, wc.vendor_err);
  }
}

void Channel::on_short_message(std::uint32_t bytes) {
  const std::lock_guard guard(lock_);
  note_fault(Fault::ShortMessage, bytes);
}

// --- events ---

// Flush errors of a fence of ours are expected. Before that, the first error counts; only a root
// cause that comes before the event was delivered replaces a flush error, which says nothing
// (protocol.md 3, trap 22). The peer, or an event of the queue pair, may ask for a fence before
// anybody here has polled: then the fence finds the cause. Without it what is replayed would fail
// again, as often as the other is faster.
void Channel::note_lost(int status, std::uint32_t vendor_err) {
  const LaneState state = state_.load(std::memory_order_relaxed);
  const bool cause = status > 0 && status != IBV_WC_WR_FLUSH_ERR;
  if (state != LaneState::Attached && state != LaneState::Posting &&
      !(state == LaneState::Stopped && cause)) {
    return;
  }
  broken_ = true;
  fast_sends_ = 0;
  if (lost_reported_) {
    return;
  }
  const bool pending = (events_pending_.load(std::memory_order_relaxed) & kEvLost) != 0;
  if (!pending || (lost_status_ == IBV_WC_WR_FLUSH_ERR && status != IBV_WC_WR_FLUSH_ERR)) {
    lost_status_ = status;
    lost_vendor_err_ = vendor_err;
    op_fault_ = OpFault{};
    raise(kEvLost);
  }
}

void Channel::note_fault(Fault fault, std::uint64_t detail) {
  ++stats_.faults;
  faults_.push_back(PendingFault{fault, detail});
  raise(kEvFault);
}

void Channel::run_events() {
  lock_.lock();
  const std::uint32_t bits = events_pending_.exchange(0, std::memory_order_relaxed);
  const Epoch now{epoch_.load(std::memory_order_relaxed)};
  const int status = lost_status_;
  const std::uint32_t vendor_err = lost_vendor_err_;
  const std::vector<PendingFault> faults = std::move(faults_);
  faults_.clear();
  if ((bits & kEvLost) != 0) {
    lost_reported_ = true;
  }
  lock_.unlock();

  if ((bits & kEvWanted) != 0 && events_.wanted != nullptr) {
    events_.wanted(events_.context);
  }
  if ((bits & kEvFirstRx) != 0 && events_.first_receive != nullptr) {
    events_.first_receive(events_.context, now);
  }
  if ((bits & kEvReceiving) != 0 && events_.receiving != nullptr) {
    events_.receiving(events_.context);
  }
  if ((bits & kEvLogEmpty) != 0 && events_.log_empty != nullptr) {
    events_.log_empty(events_.context, now);
  }
  if ((bits & kEvLost) != 0 && events_.link_lost != nullptr) {
    events_.link_lost(events_.context, now, status, vendor_err);
  }
  for (const PendingFault& pending : faults) {
    if (events_.fault != nullptr) {
      events_.fault(events_.context, pending.fault, pending.detail);
    }
  }
}

}  // namespace mend::ops
