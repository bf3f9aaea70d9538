// The address blob a process publishes (PMIx modex) so that others can send it control messages.
// Version byte first; the lengths in it let a newer process append fields that an older one skips.
// Pure; everything read is validated.
//
//  0    1     2      4          6     8      16       24
//  |ver |rails|length|record len| pad | boot | job_key| records...
//  record: 0    1    2    3   4   6        7   8      12      16         20  24
//          |rail|kind|link|mtu|lid|rd_atomic|pad|ud_qpn|ud_qkey|srq_buffer|pad|gid 16| = 40
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>
#include <vector>

#include "plugin/conn/ctl_wire.h"
#include "plugin/conn/wire_version.h"
#include "plugin/verbs/types.h"

namespace mend::conn {

// Devices of different kinds cannot reach each other.
enum class DeviceKind : std::uint8_t { Verbs = 1, Softhca = 2 };

// Where and how to reach one rail of a process.
struct RailAddress {
  RailId rail;
  DeviceKind kind = DeviceKind::Verbs;
  Link link = Link::Ethernet;
  std::uint8_t mtu = 3;  // verbs code 1..5
  std::uint16_t lid = 0;
  std::uint8_t rd_atomic = 1;  // RDMA READs it answers at a time (max_qp_rd_atom), at least 1
  Qpn ud_qpn;
  std::uint32_t ud_qkey = 0;
  std::uint32_t srq_buffer = 0;  // bytes of one receive buffer, header included
  Gid gid{};
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

struct ModexInfo {
  std::uint64_t boot = 0;  // random per process, never 0
  std::uint64_t job_key = 0;
  std::vector<RailAddress> rails;  // 1..kMaxRails
  friend bool operator==(const ModexInfo&, const ModexInfo&) = default;
};

enum class ModexError : std::uint8_t { Short, Version, Length, Rails, Range };
const char* to_string(ModexError);

std::vector<std::byte> encode_modex(const ModexInfo& info);
tl::expected<ModexInfo, ModexError> parse_modex(std::span<const std::byte> blob);

}  // namespace mend::conn
