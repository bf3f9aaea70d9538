// Channel: accepting operations and posting them in log order, within the window and the send
// queue.
#include <algorithm>
#include <mutex>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/wr_id.h"

namespace mend::ops {
namespace {

// Frag memory that unsignalled WRs may hold back until the next completion.
constexpr std::uint32_t kMaxUnsignalledHold = 4096;

}  // namespace

void Channel::send_slow(Frag& frag, std::uint8_t tag, bool want_callback, std::uint8_t user_hold) {
  submit_locked(frag, Kind::Data, tag, 0, want_callback, user_hold);
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
}

void Channel::push_sent(Frag& frag) { home_.push_sent(frag); }

// Accepted all the same: it goes with the next lane.
void Channel::undo_fast_send(LogEntry& entry, int refused) {
  entry.flags = 0;
  log_.set_posted(log_.posted() - 1);
  --tx_sent_;
  note_lost(kStatusPostFailed, static_cast<std::uint32_t>(refused));
}

// Called when the whole log is posted.
void Channel::refill_fast_sends() {
  if (!can_post() || (chores_ & kChoreAttention) != 0 || max_inline_ < sizeof(DataHeader)) {
    return;
  }
  const std::uint64_t in_flight = tx_next_ - acked_;
  const std::uint32_t queued = sq_posted_ - sq_retired_;
  if (in_flight < window_ && queued < send_depth_ && unsignalled_ + 1 < signal_every_) {
    fast_sends_ = static_cast<std::uint32_t>(
        std::min({window_ - in_flight, std::uint64_t{send_depth_ - queued},
                  std::uint64_t{signal_every_ - 1 - unsignalled_}, log_.room()}));
  }
}

void Channel::submit_locked(Frag& frag, Kind kind, std::uint8_t tag, std::uint32_t aux,
                            bool want_callback, std::uint8_t user_hold) {
  if (frag.length > config_.max_payload) [[unlikely]] {
    refuse_submission(frag, user_hold);
    return;
  }
  LogEntry& entry = log_.append();
  entry.object = &frag;
  entry.length = frag.length;
  entry.seq = static_cast<std::uint32_t>(tx_next_);
  entry.kind = LogKind::Send;
  entry.flags = want_callback ? std::uint8_t{kLogCallback} : std::uint8_t{0};
  ++tx_next_;
  frag.held.store(static_cast<std::uint8_t>(kHoldPeer | user_hold), std::memory_order_relaxed);
  frag.header.tag = tag;
  frag.header.kind = static_cast<std::uint8_t>(kind);
  frag.header.aux = aux;
  if (kind != Kind::Data) {
    ++control_sends_;
  }
  entry.offset = send_bytes_;
  send_bytes_ += frag.length;
  need_attention();
  pump();
}

void Channel::refuse_submission(Frag& frag, std::uint8_t user_hold) {
  note_fault(Fault::MessageTooLong, frag.length);
  if (user_hold == 0) {
    release_hold(frag, kHoldUser);
  }
}

void Channel::rdma(RdmaOp& op) {
  lock_.lock();
  const bool put = op.dir == RdmaOp::Dir::Put;
  if (op.local_keys == nullptr && op.length != 0 && (!put || op.length > max_inline_))
      [[unlikely]] {
    note_fault(Fault::NoInlineNoKeys, op.length);
  } else {
    if (!renewed_.empty()) [[unlikely]] {
      use_renewed_keys(op);
    }
    const std::uint64_t piece = config_.max_message;
    const std::uint64_t pieces = op.length == 0 ? 1 : (op.length + piece - 1) / piece;
    op.pieces_left = static_cast<std::uint32_t>(pieces);
    for (std::uint64_t i = 0; i < pieces; ++i) {
      LogEntry& entry = log_.append();
      entry.object = &op;
      entry.offset = i * piece;
      entry.length = static_cast<std::uint32_t>(std::min(piece, op.length - i * piece));
      entry.kind = put ? LogKind::Put : LogKind::Get;
      entry.flags = 0;
      special_ += kOneRdma;
    }
    ++(put ? stats_.puts : stats_.gets);
    (put ? stats_.bytes_sent : stats_.bytes_received) += op.length;
    need_attention();
    pump();
  }
  lock_.unlock();
  if (events_pending()) [[unlikely]] {
    run_events();
  }
}

// --- posting ---

void Channel::pump() {
  fast_sends_ = 0;
  if (!can_post()) [[unlikely]] {
    want_lane();
    return;
  }
  while (log_.posted() != log_.end()) {
    if (sq_posted_ - sq_retired_ >= send_depth_) [[unlikely]] {
      ++stats_.sq_full;
      if (blocked_) {
        set_blocked(false);  // completions will tell
      }
      return;
    }
    LogEntry& entry = log_.at(log_.posted());
    const bool passed = entry.kind == LogKind::Send ? post_send(entry) : post_rdma(entry);
    if (!passed) [[unlikely]] {
      return;
    }
    log_.set_posted(log_.posted() + 1);
  }
  if (blocked_) [[unlikely]] {
    set_blocked(false);
  }
  refill_fast_sends();
}

void Channel::pump_pending() { pump(); }

void Channel::want_lane() {
  if (abandoned_) {
    fail_if_abandoned();
    return;
  }
  if (state_.load(std::memory_order_relaxed) == LaneState::None && !wanted_raised_) {
    wanted_raised_ = true;
    raise(kEvWanted);
  }
}

// True: the entry is on the wire or needs not be. False: it has to wait.
bool Channel::post_send(LogEntry& entry) {
  const std::uint32_t distance = entry.seq - static_cast<std::uint32_t>(acked_);
  if (distance >= window_) [[unlikely]] {
    if (window_refuses(entry, distance)) {
      return false;
    }
    if (before(Seq{entry.seq}, Seq{static_cast<std::uint32_t>(acked_)})) {
      entry.sq_position = sq_posted_ - 1;
      return true;  // replay: the peer has it already
    }
  }
  Frag& frag = entry.frag();
  const std::uint64_t rx_next = rx_next_.load(std::memory_order_relaxed);
  frag.header.seq = entry.seq;
  frag.header.ack = static_cast<std::uint32_t>(rx_next);
  frag.header.epoch_lo = epoch_lo_;
  const auto bytes = entry.length + static_cast<std::uint32_t>(sizeof(DataHeader));
  sge_.addr = reinterpret_cast<std::uint64_t>(&frag.header);
  sge_.length = bytes;
  unsigned flags = IBV_SEND_INLINE;
  if (bytes > max_inline_) {
    flags = 0;
    sge_.lkey = frag.keys->lkey[lane_.local_rail.value].value;
    entry.flags |= kLogWire;
    frag.held.fetch_or(kHoldWire, std::memory_order_relaxed);
    unsignalled_ += signal_share(frag);
    ++wire_entries_;
  }
  if (++unsignalled_ >= signal_every_) [[unlikely]] {
    flags |= IBV_SEND_SIGNALED;
  }
  entry.sq_position = sq_posted_;
  const bool posted = post(log_wr_base_, flags);
  use_wr_for_sends();
  if (!posted) [[unlikely]] {
    drop_wire(entry);
    return false;
  }
  note_told(rx_next);
  const std::uint8_t before_post = entry.flags;
  entry.flags = before_post | kLogEverPosted;
  if ((before_post & (kLogEverPosted | kLogCallback)) == 0) [[likely]] {
    ++tx_sent_;
  } else if ((before_post & kLogEverPosted) == 0) {
    ++tx_sent_;
    home_.push_sent(frag);
  } else {
    note_replay(entry);
  }
  return true;
}

// Of signal_every_: so that unsignalled WRs never hold back more than kMaxUnsignalledHold bytes of
// Frags.
std::uint32_t Channel::signal_share(const Frag& frag) const {
  return static_cast<std::uint32_t>(std::uint64_t{frag.capacity} * signal_every_ /
                                    kMaxUnsignalledHold);
}

// A distance of half the number space or more is a SEND acknowledged while it waited to be
// replayed.
bool Channel::window_refuses(LogEntry& entry, std::uint32_t distance) {
  if (before(Seq{entry.seq}, Seq{static_cast<std::uint32_t>(acked_)})) {
    return false;
  }
  load_ack_cell();
  distance = entry.seq - static_cast<std::uint32_t>(acked_);
  const bool refuse = distance >= window_ && distance < 0x80000000u;
  if (refuse && !blocked_) {
    ++stats_.window_full;
    set_blocked(true);
  }
  return refuse;
}

bool Channel::post_rdma(LogEntry& entry) {
  if ((entry.flags & kLogDone) != 0) {
    entry.sq_position = sq_posted_ - 1;
    return true;  // replay: rule P1 or P2
  }
  RdmaOp& op = entry.rdma();
  const bool put = entry.kind == LogKind::Put;
  unsigned flags = IBV_SEND_SIGNALED;
  sge_.addr = reinterpret_cast<std::uint64_t>(op.local) + entry.offset;
  sge_.length = entry.length;
  if (put && entry.length <= max_inline_) {
    flags |= IBV_SEND_INLINE;
  } else if (op.local_keys != nullptr) {
    sge_.lkey = op.local_keys->lkey[lane_.local_rail.value].value;
  }
  wr_.opcode = put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  wr_.num_sge = entry.length != 0 ? 1 : 0;  // some devices read a zero-length element as 2 GiB
  wr_.wr.rdma.remote_addr = op.remote + entry.offset;
  wr_.wr.rdma.rkey = op.remote_keys.rkey[lane_.remote_rail.value].value;
  entry.sq_position = sq_posted_;
  const bool posted = post(log_wr_base_, flags);
  use_wr_for_sends();
  if (!posted) [[unlikely]] {
    return false;
  }
  ++wire_entries_;
  if ((entry.flags & kLogEverPosted) != 0) [[unlikely]] {
    note_replay(entry);
  }
  entry.flags |= kLogEverPosted;
  return true;
}

// wr_ always stands ready for an inline SEND; whoever changes it puts it back.
void Channel::use_wr_for_sends() {
  wr_.opcode = IBV_WR_SEND;
  wr_.num_sge = 1;
  wr_.send_flags = IBV_SEND_INLINE;
}

// Hands wr_ to the device at position sq_posted_.
bool Channel::post(std::uint64_t wr_base, unsigned flags) {
  fast_sends_ = 0;
  wr_.wr_id = wr_base | sq_posted_;
  wr_.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  const int refused = post_send_(lane_.qp, &wr_, &bad);
  if (refused != 0) [[unlikely]] {
    note_lost(kStatusPostFailed, static_cast<std::uint32_t>(refused));
    return false;
  }
  ++sq_posted_;
  if ((flags & IBV_SEND_SIGNALED) != 0) {
    unsignalled_ = 0;
    signalled_end_ = sq_posted_;
  }
  return true;
}

void Channel::note_replay(const LogEntry& entry) {
  ++stats_.replayed;
  stats_.replayed_bytes += entry.length;
}

void Channel::set_blocked(bool blocked) {
  if (blocked != blocked_) {
    blocked_ = blocked;
    home_.note_blocked(blocked ? 1 : -1);
  }
}

void Channel::join_attention() {
  chores_ &= static_cast<std::uint8_t>(~kChoreAttention);
  home_.want_attention(*this);
  if (asleep_) [[unlikely]] {
    asleep_ = false;
    raise(kEvWanted);
  }
}

}  // namespace mend::ops
