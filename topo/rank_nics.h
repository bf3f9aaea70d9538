// Orders rails (device + port) by how near they are to this process. Pure: everything is in the
// snapshot.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topo/snapshot.h"

namespace mend::topo {

enum class Policy {
  Near,    // nearest first; use nearest() of the result
  Spread,  // nearest first, ranks of one host start at different ones among equals
  None,    // as given
};
std::optional<Policy> parse_policy(const std::string& text);  // "near", "spread", "none"

struct RankedNic {
  std::size_t index = 0;  // into the list that was given
  double distance = 0;    // relative; 10 = on the process's own node, or not known
};

constexpr double kLocalDistance = 10;

// Every name in `devices` appears once in the result. Devices without locality count as local, so
// that a host whose devices all lack one keeps them in the order given. Deterministic: same input,
// same result on every rank.
std::vector<RankedNic> rank_nics(const Snapshot& snapshot, std::span<const std::string> devices,
                                 Policy policy, unsigned local_rank);

// The leading ones that are all as near as the first.
std::span<const RankedNic> nearest(std::span<const RankedNic> ranked);

}  // namespace mend::topo
