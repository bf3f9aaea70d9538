#include "tools/mend-info/machine.h"

#include <algorithm>
#include <cerrno>

#include "plugin/conn/device_choice.h"
#include "plugin/conn/rail_order.h"
#include "plugin/verbs/device.h"
#include "topo/device_list.h"

namespace mend::info {
namespace {

void place(PortRow& row, const topo::Snapshot& snapshot) {
  const topo::DevicePlace* device = snapshot.find(row.device);
  if (device == nullptr) return;
  row.numa = snapshot.numa_node_of(row.device);
  row.pci = device->pci;
  row.pci_gbps = device->pci_gbps;
  for (std::size_t i = 0; i < device->nodes.size(); ++i) {
    const int package = snapshot.nodes[device->nodes[i]].package;
    row.package = i == 0 || package == row.package ? package : -1;
    if (row.package < 0) break;
  }
}

// The ports that a description names; one that says nothing of a device's ports has one for it.
std::vector<PortRow> described_ports(const topo::Snapshot& snapshot) {
  std::vector<PortRow> rows;
  for (const topo::DevicePlace& device : snapshot.devices) {
    auto ports = device.ports;
    if (ports.empty()) ports.push_back(topo::PortPlace{1, "unknown"});
    for (const topo::PortPlace& port : ports) {
      PortRow row;
      row.device = device.name;
      row.port = port.number;
      row.state = port.state;
      row.usable = port.state == "ACTIVE" || port.state == "unknown";
      rows.push_back(row);
    }
  }
  return rows;
}

Result<void> select(std::vector<PortRow>& rows, const conn::Params& params) {
  std::vector<topo::Port> present;
  for (const PortRow& row : rows) present.push_back(topo::Port{row.device, row.port});
  const auto selected = topo::select_ports(present, params.if_include, params.if_exclude);
  if (!selected) return tl::unexpected(selected.error());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (std::find(selected->begin(), selected->end(), i) == selected->end()) rows[i].usable = false;
  return {};
}

void add_ports_of(const conn::Nic& nic, std::vector<PortRow>& rows) {
  for (std::uint32_t number = 1; number <= nic.caps().ports; ++number) {
    const auto port =
        verbs::query_port(nic.api(), nic.context(), static_cast<std::uint8_t>(number));
    PortRow row;
    row.device = nic.name();
    row.port = static_cast<int>(number);
    row.state = port ? verbs::port_state_name(port->state) : "unknown";
    if (port && port->speed_mbps > 0) row.speed_gbps = port->speed_mbps / 1000.0;
    row.usable = port && port->active;
    rows.push_back(row);
  }
}

Result<Machine> this_machine(const topo::Source& source, const conn::Params& params) {
  Machine machine;
  machine.source = "this machine";
  auto snapshot = topo::load(source);
  if (!snapshot) return tl::unexpected(snapshot.error());
  machine.snapshot = std::move(*snapshot);
  // Ports that are down, or left out by the lists, are shown as well.
  conn::Params all = params;
  all.if_include.clear();
  all.if_exclude.clear();
  const auto devices = conn::active_ports(all, conn::Identity{});
  if (!devices && devices.error().code != ENODEV) return tl::unexpected(devices.error());
  if (devices) {
    for (const auto& nic : devices->nics) add_ports_of(*nic, machine.ports);
    conn::add_unknown_devices(*devices, machine.snapshot);
  }
  return machine;
}

}  // namespace

std::vector<const PortRow*> Machine::usable() const {
  std::vector<const PortRow*> rows;
  for (const PortRow& row : ports)
    if (row.usable) rows.push_back(&row);
  return rows;
}

std::vector<std::string> Machine::candidates() const {
  std::vector<std::string> names;
  for (const PortRow* row : usable()) names.push_back(row->device);
  return names;
}

Result<Machine> look_at(const topo::Source& source, const conn::Params& params) {
  const bool described = !source.xml.empty() || !source.synthetic.empty() || !source.fsroot.empty();
  Result<Machine> machine = Machine{};
  if (described) {
    auto snapshot = topo::load_untrusted(source);
    if (!snapshot) return tl::unexpected(snapshot.error());
    machine->snapshot = std::move(*snapshot);
    machine->ports = described_ports(machine->snapshot);
    machine->source = source.xml + source.synthetic + source.fsroot;
  } else {
    machine = this_machine(source, params);
    if (!machine) return machine;
  }
  std::stable_sort(
      machine->ports.begin(), machine->ports.end(),
      [](const PortRow& a, const PortRow& b) { return topo::name_less(a.device, b.device); });
  if (auto selected = select(machine->ports, params); !selected)
    return tl::unexpected(selected.error());
  for (PortRow& row : machine->ports) place(row, machine->snapshot);
  return machine;
}

}  // namespace mend::info
