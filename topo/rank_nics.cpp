#include "topo/rank_nics.h"

#include <algorithm>

namespace mend::topo {
namespace {

// Where the firmware says nothing: own node, same package, elsewhere (the usual SLIT values).
double guessed_latency(const NumaNode& a, const NumaNode& b) {
  return a.package >= 0 && a.package == b.package ? 12 : 20;
}

double node_distance(const Snapshot& s, NodeIndex from, NodeIndex to) {
  if (from == to) return kLocalDistance;
  if (s.latency.empty()) return guessed_latency(s.nodes[from], s.nodes[to]);
  const double own = s.latency[from][from];
  const double scale = own > 0 ? kLocalDistance / own : 1;
  return std::max(kLocalDistance, s.latency[from][to] * scale);
}

// The nearest pair counts: a process that may run anywhere is near to everything, and ties are then
// resolved by the policy.
double device_distance(const Snapshot& s, const std::string& device) {
  const DevicePlace* place = s.find(device);
  if (place == nullptr || place->nodes.empty() || s.process.empty()) return kLocalDistance;
  double best = node_distance(s, s.process.front(), place->nodes.front());
  for (const NodeIndex from : s.process)
    for (const NodeIndex to : place->nodes) best = std::min(best, node_distance(s, from, to));
  return best;
}

// Rotates each run of equally near devices by the local rank.
void rotate_equals(std::vector<RankedNic>& ranked, unsigned local_rank) {
  for (auto first = ranked.begin(); first != ranked.end();) {
    const double distance = first->distance;
    const auto last = std::find_if(
        first, ranked.end(), [distance](const RankedNic& nic) { return nic.distance != distance; });
    std::rotate(first, first + local_rank % (last - first), last);
    first = last;
  }
}

}  // namespace

std::optional<Policy> parse_policy(const std::string& text) {
  if (text == "near") return Policy::Near;
  if (text == "spread") return Policy::Spread;
  if (text == "none") return Policy::None;
  return std::nullopt;
}

std::vector<RankedNic> rank_nics(const Snapshot& snapshot, std::span<const std::string> devices,
                                 Policy policy, unsigned local_rank) {
  std::vector<RankedNic> ranked;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool measure = policy != Policy::None;
    ranked.push_back(
        RankedNic{i, measure ? device_distance(snapshot, devices[i]) : kLocalDistance});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedNic& a, const RankedNic& b) { return a.distance < b.distance; });
  if (policy == Policy::Spread) rotate_equals(ranked, local_rank);
  return ranked;
}

std::span<const RankedNic> nearest(std::span<const RankedNic> ranked) {
  std::size_t n = 0;
  while (n < ranked.size() && ranked[n].distance == ranked[0].distance) ++n;
  return ranked.first(n);
}

}  // namespace mend::topo
