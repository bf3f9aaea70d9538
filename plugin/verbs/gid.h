// Which GID of a port to use: pure functions on a GID table that someone else has read. No locking,
// no device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "plugin/verbs/error.h"

namespace mend::verbs {

using Gid = std::array<std::uint8_t, 16>;  // network byte order, as on the wire

enum class LinkLayer : std::uint8_t { Infiniband = 1, Ethernet = 2 };  // values of IBV_LINK_LAYER_*
const char* to_string(LinkLayer link);

// Unknown: the library is too old to tell; on Ethernet it is taken for RoCE v1, the safe and
// unroutable reading.
enum class GidType : std::uint8_t { Ib, RoceV1, RoceV2, Unknown };
const char* to_string(GidType type);

struct GidEntry {
  std::uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::Unknown;
};

// How good a GID is for reaching peers; higher is better, Unusable is never chosen by itself.
enum class GidRank : std::uint8_t {
  Unusable,          // all zero
  RoceV1,            // cannot cross a router
  RoceV2LinkLocal,   // fe80::/10, or 169.254/16 mapped
  RoceV2GlobalIpv6,  // routable
  RoceV2Ipv4,        // routable, what sites number their NICs with
  Infiniband,
};
GidRank rank(const GidEntry& entry, LinkLayer link);

// The entry to use. wanted_index >= 0 forces an index (btl_mend_gid_index); -1 chooses: index 0 on
// InfiniBand, the best rank and then the lowest index on Ethernet. Error EINVAL: the wanted index
// is outside the table or empty; ENOENT: no usable GID.
Result<GidEntry> choose_gid(std::span<const GidEntry> table, LinkLayer link, int wanted_index);

std::string format_gid(const Gid& gid);  // "fe80::1", "::ffff:10.0.0.1"

}  // namespace mend::verbs
