// The path of a small SEND, inline: a call between the layer above and the device costs a tenth of
// the message. Included by channel.h only.
//
// Thread contract: that of Channel. Invariant: send_fast() leaves the channel as
// channel_submit.cpp's pump() would have.
#pragma once

#include "ops/channel.h"

namespace mend::ops {

// A small SEND that may go at once: everything that could forbid or complicate it was looked at
// when fast_sends_ was filled, and whatever changes the answer for the worse sets it to 0. False:
// nothing happened.
template <bool kCallback>
inline bool Channel::send_fast(Frag& frag, std::uint8_t tag, std::uint8_t user_hold) {
  const std::uint32_t length = frag.length;
  if (fast_sends_ == 0 || length > fast_payload_) [[unlikely]] {
    return false;
  }
  --fast_sends_;
  const std::uint64_t rx_next = rx_next_.load(std::memory_order_relaxed);
  const std::uint64_t tx = tx_next_;
  const auto seq = static_cast<std::uint32_t>(tx);
  const std::uint32_t position = sq_posted_;
  LogEntry& entry = log_.append_posted();
  entry.object = &frag;
  entry.length = length;
  entry.seq = seq;
  entry.sq_position = position;
  entry.kind = LogKind::Send;
  entry.flags = kLogEverPosted;
  entry.spare = 0;
  tx_next_ = tx + 1;
  tx_sent_ = tx + 1;
  frag.held.store(static_cast<std::uint8_t>(kHoldPeer | user_hold), std::memory_order_relaxed);
  frag.header = DataHeader{.seq = seq,
                           .ack = static_cast<std::uint32_t>(rx_next),
                           .epoch_lo = epoch_lo_,
                           .tag = tag,
                           .kind = static_cast<std::uint8_t>(Kind::Data),
                           .aux = 0};
  entry.offset = send_bytes_;
  send_bytes_ += length;
  sge_.addr = reinterpret_cast<std::uint64_t>(&frag.header);
  sge_.length = length + static_cast<std::uint32_t>(sizeof(DataHeader));
  wr_.wr_id = log_wr_base_ | position;
  note_told(rx_next);
  if constexpr (kCallback) {
    push_sent(frag);
  }
  const int refused = post_send_(lane_.qp, &wr_, &bad_wr_);
  if (refused != 0) [[unlikely]] {
    undo_fast_send(entry, refused);
    return true;
  }
  sq_posted_ = position + 1;
  ++unsignalled_;
  return true;
}

inline void Channel::send_owned(Frag& frag, std::uint8_t tag) {
  lock_.lock();
  if (!send_fast<false>(frag, tag, 0)) [[unlikely]] {
    send_slow(frag, tag, false, 0);
    return;
  }
  lock_.unlock();
}

inline void Channel::send(Frag& frag, std::uint8_t tag, bool want_callback) {
  lock_.lock();
  const bool sent = want_callback ? send_fast<true>(frag, tag, kHoldUser)
                                  : send_fast<false>(frag, tag, kHoldUser);
  if (!sent) [[unlikely]] {
    send_slow(frag, tag, want_callback, kHoldUser);
    return;
  }
  lock_.unlock();
}

}  // namespace mend::ops
