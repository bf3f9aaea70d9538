#include "plugin/conn/rail_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "plugin/verbs/device.h"
#include "plugin/verbs/log.h"
#include "topo/rank_nics.h"
#include "topo/snapshot.h"

namespace mend::conn {
namespace {

int driver_numa_node(const Nic& nic) { return verbs::numa_node_of(*nic.context()->device); }

// The embedded device has no place unless its configuration gives it one, and then reading the
// machine, which takes some ten milliseconds, decides nothing.
bool has_a_place(const Devices& devices) {
  if (devices.kind != DeviceKind::Softhca || std::getenv("HWLOC_XMLFILE") != nullptr) return true;
  return std::any_of(devices.ports.begin(), devices.ports.end(),
                     [](const ChosenPort& port) { return driver_numa_node(*port.nic) >= 0; });
}

std::vector<std::optional<topo::Binding>> bindings_of(const topo::Snapshot& snapshot,
                                                      const Identity& self) {
  std::vector<std::optional<topo::Binding>> bindings;
  for (const std::string& list : self.local_bindings) {
    const auto cpus = topo::parse_cpu_list(list);
    if (cpus)
      bindings.emplace_back(snapshot.nodes_of(*cpus));
    else
      bindings.emplace_back(std::nullopt);
  }
  bindings.resize(std::max<std::size_t>(bindings.size(), self.local_rank + 1));
  return bindings;
}

std::string words_of(const topo::Snapshot& snapshot, const topo::Binding& binding) {
  std::string words;
  for (const topo::NodeIndex node : binding)
    words += fmt::format("{}{}", words.empty() ? "" : ",", snapshot.nodes[node].os_index);
  return words.empty() ? "no NUMA node" : "NUMA " + words;
}

// Empty where it cannot be read or does not matter.
topo::Snapshot look_at_machine(const Devices& devices) {
  if (!has_a_place(devices)) return {};
  auto snapshot = topo::load();
  if (!snapshot) {
    log(LogLevel::Info, "the topology is unknown: " + snapshot.error().message);
    return {};
  }
  add_unknown_devices(devices, *snapshot);
  return std::move(*snapshot);
}

}  // namespace

void add_unknown_devices(const Devices& devices, topo::Snapshot& snapshot) {
  for (const auto& nic : devices.nics)
    if (snapshot.find(nic->name()) == nullptr)
      snapshot.add_device(nic->name(), driver_numa_node(*nic));
}

void order_by_place(const Params& params, const Identity& self, Devices& devices) {
  const topo::Snapshot snapshot = look_at_machine(devices);
  std::vector<std::string> candidates;
  for (ChosenPort& port : devices.ports) {
    candidates.push_back(port.nic->name());
    port.numa_node = snapshot.numa_node_of(port.nic->name());
  }
  const topo::Policy policy = topo::parse_policy(params.numa_policy).value_or(topo::Policy::Near);
  const auto bindings = bindings_of(snapshot, self);
  const topo::RankPlan plan =
      topo::plan_rank(snapshot, candidates, policy, bindings, self.local_rank);
  std::vector<ChosenPort> ordered;
  std::string words;
  for (const topo::RankedNic& nic : plan.rails) {
    ChosenPort port = devices.ports[nic.index];
    port.distance = nic.distance;
    words += fmt::format("{}{}:{} at distance {}", words.empty() ? "" : ", ", port.nic->name(),
                         port.port, nic.distance);
    ordered.push_back(port);
  }
  devices.ports = std::move(ordered);
  log(LogLevel::Info,
      fmt::format("local rank {} on {}, policy {}: uses {} (rank {} of {} that share them)",
                  self.local_rank,
                  words_of(snapshot, bindings[self.local_rank].value_or(snapshot.process)),
                  params.numa_policy, words, plan.turn + 1, plan.sharing));
}

}  // namespace mend::conn
