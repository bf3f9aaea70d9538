#include "tools/mend-info/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "plugin/verbs/types.h"
#include "topo/split.h"

namespace mend::info {
namespace {

using Cpus = std::vector<unsigned>;

// "0-3,8" from 0, 1, 2, 3, 8.
std::string list_of(const Cpus& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

// A node without CPUs of its own (memory of a GPU, high-bandwidth memory beside the ordinary one)
// is nothing to bind to.
std::vector<Cpus> numa_units(const topo::Snapshot& s) {
  std::vector<Cpus> units;
  for (topo::NodeIndex i = 0; i < s.nodes.size(); ++i) {
    const Cpus& cpus = s.nodes[i].cpus;
    const topo::Binding places = s.nodes_of(cpus);
    const bool own = !cpus.empty() && std::find(places.begin(), places.end(), i) != places.end();
    if (own && std::find(units.begin(), units.end(), cpus) == units.end()) units.push_back(cpus);
  }
  return units;
}

std::vector<Cpus> package_units(const topo::Snapshot& s) {
  std::map<int, std::vector<bool>> packages;
  for (const topo::NumaNode& node : s.nodes) {
    if (node.package < 0) continue;
    auto& cpus = packages[node.package];
    for (const unsigned cpu : node.cpus) {
      if (cpus.size() <= cpu) cpus.resize(cpu + 1);
      cpus[cpu] = true;
    }
  }
  std::vector<Cpus> units;
  for (const auto& [package, set] : packages) {
    Cpus cpus;
    for (unsigned cpu = 0; cpu < set.size(); ++cpu)
      if (set[cpu]) cpus.push_back(cpu);
    units.push_back(cpus);
  }
  return units;
}

Result<std::vector<Cpus>> units_of(const topo::Snapshot& s, const std::string& unit) {
  if (unit == "core") return s.cores;
  if (unit == "numa") return numa_units(s);
  if (unit == "socket" || unit == "package") return package_units(s);
  if (unit == "none") return std::vector<Cpus>{Cpus{}};
  return fail(EINVAL, "--bind-to",
              fmt::format("\"{}\" is none of core, numa, socket, package, none", unit));
}

std::vector<RankRow> planned(const Machine& machine, const std::vector<Cpus>& cpus,
                             topo::Policy policy) {
  std::vector<topo::Binding> bindings;
  for (const Cpus& list : cpus) bindings.push_back(machine.snapshot.nodes_of(list));
  auto plans = topo::plan_node(machine.snapshot, machine.candidates(), policy, bindings);
  std::vector<RankRow> rows;
  for (unsigned rank = 0; rank < cpus.size(); ++rank) {
    cut_to_most_rails(plans[rank]);
    rows.push_back(RankRow{rank, list_of(cpus[rank]), bindings[rank], std::move(plans[rank])});
  }
  return rows;
}

}  // namespace

void cut_to_most_rails(topo::RankPlan& plan) {
  if (plan.rails.size() > kMaxRails) plan.rails.resize(kMaxRails);
}

Result<std::vector<RankRow>> preview(const Machine& machine, unsigned ranks,
                                     const std::string& unit, topo::Policy policy) {
  const auto units = units_of(machine.snapshot, unit);
  if (!units) return tl::unexpected(units.error());
  if (units->empty())
    return fail(EINVAL, "--bind-to", fmt::format("this machine has nothing that is a {}", unit));
  std::vector<Cpus> cpus;
  for (unsigned rank = 0; rank < ranks; ++rank) cpus.push_back((*units)[rank % units->size()]);
  return planned(machine, cpus, policy);
}

Result<std::vector<RankRow>> preview_bindings(const Machine& machine, const std::string& lists,
                                              topo::Policy policy) {
  std::vector<Cpus> cpus;
  for (const std::string& text : topo::split(lists, '/')) {
    auto list = topo::parse_cpu_list(text);
    if (!list) return tl::unexpected(list.error());
    cpus.push_back(std::move(*list));
  }
  return planned(machine, cpus, policy);
}

}  // namespace mend::info
