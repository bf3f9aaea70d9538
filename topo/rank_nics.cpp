#include "topo/rank_nics.h"

#include <algorithm>
#include <map>

namespace mend::topo {
namespace {

// Where the firmware says nothing: own node, same package, elsewhere (the usual SLIT values).
double guessed_latency(const NumaNode& a, const NumaNode& b) {
  return a.package >= 0 && a.package == b.package ? 12 : 20;
}

// Without the distances: ranks on different nodes may share what is equally far from all of them.
std::vector<std::size_t> indices(std::span<const RankedNic> near) {
  std::vector<std::size_t> list;
  for (const RankedNic& nic : near) list.push_back(nic.index);
  return list;
}

// Rails of `near` in the order in which the rank of that turn uses them.
std::vector<RankedNic> in_turn(std::span<const RankedNic> near, unsigned turn) {
  std::vector<RankedNic> rails(near.begin(), near.end());
  if (!rails.empty())
    std::rotate(rails.begin(), rails.begin() + static_cast<std::ptrdiff_t>(turn % rails.size()),
                rails.end());
  return rails;
}

}  // namespace

std::optional<Policy> parse_policy(const std::string& text) {
  if (text == "near") return Policy::Near;
  if (text == "spread") return Policy::Spread;
  if (text == "none") return Policy::None;
  return std::nullopt;
}

double node_distance(const Snapshot& s, NodeIndex from, NodeIndex to) {
  if (from == to) return kLocalDistance;
  if (s.latency.empty()) return guessed_latency(s.nodes[from], s.nodes[to]);
  const double own = s.latency[from][from];
  const double scale = own > 0 ? kLocalDistance / own : 1;
  return std::max(kLocalDistance, s.latency[from][to] * scale);
}

double device_distance(const Snapshot& s, const Binding& binding, const std::string& device) {
  const DevicePlace* place = s.find(device);
  if (place == nullptr || place->nodes.empty() || binding.empty()) return kLocalDistance;
  double best = node_distance(s, binding.front(), place->nodes.front());
  for (const NodeIndex from : binding)
    for (const NodeIndex to : place->nodes) best = std::min(best, node_distance(s, from, to));
  return best;
}

std::vector<RankedNic> rank_nics(const Snapshot& snapshot, std::span<const std::string> candidates,
                                 const Binding& binding) {
  std::vector<RankedNic> ranked;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    ranked.push_back(RankedNic{i, device_distance(snapshot, binding, candidates[i])});
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedNic& a, const RankedNic& b) { return a.distance < b.distance; });
  return ranked;
}

std::span<const RankedNic> nearest(std::span<const RankedNic> ranked) {
  std::size_t n = 0;
  while (n < ranked.size() && ranked[n].distance == ranked[0].distance) ++n;
  return ranked.first(n);
}

namespace {

RankPlan all_as_given(std::size_t candidates) {
  RankPlan plan;
  for (std::size_t i = 0; i < candidates; ++i) plan.rails.push_back(RankedNic{i, kLocalDistance});
  return plan;
}

// None if there are no candidates.
RankPlan one_in_turn(std::span<const RankedNic> ranked, std::size_t me, std::size_t ranks) {
  RankPlan plan;
  plan.turn = static_cast<unsigned>(me);
  plan.sharing = static_cast<unsigned>(ranks);
  for (const RankedNic& nic : ranked)
    if (nic.index == me % ranked.size()) plan.rails.push_back(nic);
  return plan;
}

}  // namespace

std::vector<RankPlan> plan_node(const Snapshot& snapshot, std::span<const std::string> candidates,
                                Policy policy, std::span<const Binding> bindings) {
  std::vector<RankPlan> plans;
  std::map<std::vector<std::size_t>, unsigned> sharing;  // how many begin with these, so far
  std::vector<unsigned*> shared;                         // by rank, for Near
  for (std::size_t me = 0; me < bindings.size(); ++me) {
    if (policy == Policy::None) {
      plans.push_back(all_as_given(candidates.size()));
      continue;
    }
    const std::vector<RankedNic> ranked = rank_nics(snapshot, candidates, bindings[me]);
    if (policy == Policy::Spread) {
      plans.push_back(one_in_turn(ranked, me, bindings.size()));
      continue;
    }
    const auto near = nearest(ranked);
    shared.push_back(&sharing[indices(near)]);
    RankPlan plan;
    plan.turn = (*shared.back())++;
    plan.rails = in_turn(near, plan.turn);
    plans.push_back(std::move(plan));
  }
  for (std::size_t me = 0; me < shared.size(); ++me) plans[me].sharing = *shared[me];
  return plans;
}

RankPlan plan_rank(const Snapshot& snapshot, std::span<const std::string> candidates, Policy policy,
                   std::span<const std::optional<Binding>> bindings, std::size_t me) {
  const Binding mine = me < bindings.size() && bindings[me] ? *bindings[me] : snapshot.process;
  std::vector<Binding> all(std::max(bindings.size(), me + 1), mine);
  for (std::size_t rank = 0; rank < bindings.size(); ++rank)
    if (bindings[rank]) all[rank] = *bindings[rank];
  return plan_node(snapshot, candidates, policy, all)[me];
}

}  // namespace mend::topo
