// Which rails of two processes talk to each other. Both sides compute the same list from the two
// published lists, so that connection k means the same pair to both, in whatever order each side
// prefers its rails. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plugin/conn/modex.h"

namespace mend::conn {

// Devices of one kind and link layer; on InfiniBand in one subnet; embedded devices on one host.
bool can_talk(const RailAddress& a, const RailAddress& b, bool same_host);

struct RailPair {
  std::uint32_t leader;    // index into the rails of the process that leads
  std::uint32_t follower;  // and of the other
  friend bool operator==(const RailPair&, const RailPair&) = default;
};

// Connection k of the pair of processes is element k. First rail k with rail k (of a shorter list
// again from its beginning) where the two can talk, max(p, q) of them; then a partner for each rail
// that is left and has one. A rail that can talk to nothing of the other's is in no pair.
std::vector<RailPair> pair_rails(std::span<const RailAddress> leader,
                                 std::span<const RailAddress> follower, bool same_host);

}  // namespace mend::conn
