// wr_id: what the 64 bits of a work request id mean. On an error completion only wr_id, status,
// qp_num and vendor_err are valid, so everything needed to find the owner is in here; wc.opcode is
// never read.
//
//  63..60 kind | 59..0 value
//  Recv   value = address of the RecvBuf (user addresses fit in 60 bits)
//  Log    value = epoch (28 bits) | position in the send queue of that epoch (32 bits)
//  Ack    as Log; the WR is an ack cell write and belongs to no log entry
//  Flag   value = generation (28 bits) | slot (32 bits) of the Poller's flag table (beacons,
//  probes)
#pragma once

#include <cstdint>

#include "plugin/verbs/types.h"

namespace mend::ops {

enum class WrKind : std::uint8_t { Recv = 0, Log = 1, Ack = 2, Flag = 3 };

constexpr unsigned kWrKindShift = 60;
constexpr std::uint32_t kWrEpochMask = (1u << 28) - 1;

constexpr WrKind wr_kind(std::uint64_t wr_id) { return static_cast<WrKind>(wr_id >> kWrKindShift); }
constexpr std::uint64_t make_wr_id(WrKind kind, std::uint32_t upper28, std::uint32_t lower32) {
  return (static_cast<std::uint64_t>(kind) << kWrKindShift) |
         (static_cast<std::uint64_t>(upper28 & kWrEpochMask) << 32) | lower32;
}
constexpr std::uint64_t make_wr_id(WrKind kind, Epoch epoch, std::uint32_t sq_position) {
  return make_wr_id(kind, epoch.value, sq_position);
}
constexpr std::uint32_t wr_upper(std::uint64_t wr_id) {
  return static_cast<std::uint32_t>(wr_id >> 32) & kWrEpochMask;
}
constexpr std::uint32_t wr_lower(std::uint64_t wr_id) { return static_cast<std::uint32_t>(wr_id); }
constexpr bool wr_of_epoch(std::uint64_t wr_id, Epoch epoch) {
  return wr_upper(wr_id) == (epoch.value & kWrEpochMask);
}

}  // namespace mend::ops
