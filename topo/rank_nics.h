// How near each NIC port is to a process, and which ones a process of a node uses. Pure: everything
// is in the snapshot.
//
// Candidates are given by the names of their devices, one for each port, so that two ports of one
// device are two candidates.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topo/snapshot.h"

namespace mend::topo {

enum class Policy {
  Near,    // the nearest candidates; ranks that share them begin with different ones
  Spread,  // one candidate, ranks of the node take them in turn whatever the distance
  None,    // all, as given
};
std::optional<Policy> parse_policy(const std::string& text);  // "near", "spread", "none"

struct RankedNic {
  std::size_t index = 0;  // into the candidates
  double distance = 0;    // relative; 10 = on the process's own node, or not known
  friend bool operator==(const RankedNic&, const RankedNic&) = default;
};

constexpr double kLocalDistance = 10;

// Between two nodes: what the firmware says, scaled so that a node's own memory is 10; where it
// says nothing 10, 12 within a package, else 20 (the usual values).
double node_distance(const Snapshot& snapshot, NodeIndex from, NodeIndex to);

// The nearest pair of a node of the binding and one of the device counts. 10 where either has no
// place: a host whose devices all lack one treats them alike.
double device_distance(const Snapshot& snapshot, const Binding& binding, const std::string& device);

// Every candidate once, nearest first; equals keep their order.
std::vector<RankedNic> rank_nics(const Snapshot& snapshot, std::span<const std::string> candidates,
                                 const Binding& binding);

// The leading ones that are all as near as the first.
std::span<const RankedNic> nearest(std::span<const RankedNic> ranked);

// What one rank of a node uses.
struct RankPlan {
  std::vector<RankedNic> rails;  // best first; messages take the first, large transfers all
  unsigned turn = 0;             // which of the ranks that share its nearest candidates it is
  unsigned sharing = 1;          // how many those are
};

// For rank `me` of the node, given the bindings of all its ranks in the order of their local ranks
// (nullopt: not known, taken to be bound as `me` is). Every rank that knows the same bindings gets
// the same answer for everyone: among ranks that share a set of nearest candidates each candidate
// is the first of as many ranks as any other, give or take one.
RankPlan plan_rank(const Snapshot& snapshot, std::span<const std::string> candidates, Policy policy,
                   std::span<const std::optional<Binding>> bindings, std::size_t me);

// The same for all ranks of a node at once, whose bindings are all known.
std::vector<RankPlan> plan_node(const Snapshot& snapshot, std::span<const std::string> candidates,
                                Policy policy, std::span<const Binding> bindings);

}  // namespace mend::topo
