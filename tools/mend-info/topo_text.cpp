#include <fmt/format.h>

#include <map>

#include "tools/mend-info/topo_view.h"

namespace mend::info {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string speed_of(const PortRow& port) {
  if (port.speed_gbps) return fmt::format("{:g} Gb/s", *port.speed_gbps);
  return port.pci_gbps > 0 ? fmt::format("PCI {:.0f} Gb/s", port.pci_gbps) : "speed unknown";
}

std::string port_line(const PortRow& port) {
  return fmt::format("{:<14} {:<13} {:<8} {}{}\n", port.name(),
                     port.pci.empty() ? "not on PCI" : port.pci, port.state, speed_of(port),
                     port.usable ? "" : "  (not used)");
}

std::string node_text(const Machine& machine, topo::NodeIndex index) {
  const topo::NumaNode& node = machine.snapshot.nodes[index];
  std::string text = fmt::format("  NUMA {}: {} CPUs", node.os_index, node.cpus.size());
  if (node.memory_bytes > 0)
    text += fmt::format(", {:.1f} GiB", static_cast<double>(node.memory_bytes) / kGiB);
  text += (node.kind.empty() ? "" : " " + node.kind) + "\n";
  for (const PortRow& port : machine.ports)
    if (port.numa == node.os_index) text += "    " + port_line(port);
  return text;
}

std::string tree(const Machine& machine) {
  std::map<int, std::string> packages;
  for (topo::NodeIndex i = 0; i < machine.snapshot.nodes.size(); ++i)
    packages[machine.snapshot.nodes[i].package] += node_text(machine, i);
  std::string text;
  for (const auto& [package, nodes] : packages)
    text += (package < 0 ? "No package\n" : fmt::format("Package {}\n", package)) + nodes;
  std::string elsewhere;
  for (const PortRow& port : machine.ports)
    if (port.numa < 0) elsewhere += "    " + port_line(port);
  if (!elsewhere.empty()) text += "On no one NUMA node\n" + elsewhere;
  return text;
}

std::string distances(const Machine& machine) {
  const topo::Snapshot& s = machine.snapshot;
  std::string text = "\nDistance (10 = on the node, or place unknown)\n  from NUMA     ";
  for (const topo::NumaNode& node : s.nodes) text += fmt::format("{:>6}", node.os_index);
  text += "\n";
  for (const PortRow& port : machine.ports) {
    text += fmt::format("  {:<14}", port.name());
    for (topo::NodeIndex i = 0; i < s.nodes.size(); ++i)
      text += fmt::format("{:>6g}", topo::device_distance(s, {i}, port.device));
    text += "\n";
  }
  return text;
}

std::string rank_line(const TopoView& view, const RankRow& row) {
  const auto usable = view.machine.usable();
  std::string nodes;
  for (const topo::NodeIndex node : row.binding)
    nodes +=
        fmt::format("{}{}", nodes.empty() ? "" : ",", view.machine.snapshot.nodes[node].os_index);
  std::string rails;
  for (const topo::RankedNic& nic : row.plan.rails)
    rails += fmt::format("{}{} (distance {:g})", rails.empty() ? "" : ", ",
                         usable[nic.index]->name(), nic.distance);
  const std::string who =
      view.is_preview ? fmt::format("  rank {:<4}", row.rank) : "  this process";
  return fmt::format("{} CPUs {:<12} NUMA {:<8} {}{}\n", who, row.cpus.empty() ? "any" : row.cpus,
                     nodes.empty() ? "any" : nodes, rails.empty() ? "no usable port" : rails,
                     row.plan.sharing > 1
                         ? fmt::format("  {} of {} that share", row.plan.turn + 1, row.plan.sharing)
                         : "");
}

}  // namespace

std::string as_text(const TopoView& view) {
  std::string text = fmt::format("{}\n{}", view.machine.source, tree(view.machine));
  if (view.machine.ports.empty())
    text += "No RDMA device\n";
  else
    text += distances(view.machine);
  text += fmt::format("\nRails, policy {}\n", view.policy);
  for (const RankRow& row : view.ranks) text += rank_line(view, row);
  return text;
}

}  // namespace mend::info
