// ChannelTestAccess: the one way into a channel's private parts, for the unit tests, the fuzzers
// and the simulation.
//
// Thread contract: the channel's owner, while nobody else uses it.
#pragma once

#include <cstdint>

#include "ops/channel.h"

namespace mend::ops {

// What tests may see and set of a channel's inside.
struct ChannelTestAccess {
  // Both directions as if `count` SENDs had been exchanged and acknowledged.
  static void set_sequence(Channel& channel, std::uint64_t count) {
    channel.tx_next_ = channel.tx_sent_ = channel.acked_ = count;
    channel.rx_next_ = count;
    channel.note_told(count);
    channel.cell_->from_peer = count;
  }
  static std::uint64_t rx_next(const Channel& channel) { return channel.rx_next_; }
  static std::uint64_t acked(const Channel& channel) { return channel.acked_; }
  static const OpLog& log(const Channel& channel) { return channel.log_; }
};

}  // namespace mend::ops
