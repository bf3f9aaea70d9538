#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

#include "plugin/conn/device_choice.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/gid.h"
#include "tools/mend-info/reports.h"

namespace mend::info {
namespace {

std::string memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return fmt::format("{} KiB (ulimit -l; registered memory counts against it)",
                     limit.rlim_cur / 1024);
}

void print_gids(const conn::Nic& nic, const verbs::PortInfo& port, const conn::Params& params) {
  const auto table = verbs::read_gid_table(nic.api(), nic.context(), port);
  const auto chosen = verbs::choose_gid(table, port.link, params.gid_index);
  for (const verbs::GidEntry& entry : table)
    fmt::print("    GID {:<3} {:<40} {}{}\n", entry.index, verbs::format_gid(entry.gid),
               verbs::to_string(entry.type),
               chosen && chosen->index == entry.index ? "  <- used" : "");
  if (!chosen && port.grh_required) fmt::print("    no usable GID: {}\n", chosen.error().message);
}

void print_port(const conn::Nic& nic, std::uint8_t number, const conn::Params& params) {
  const auto port = verbs::query_port(nic.api(), nic.context(), number);
  if (!port) {
    fmt::print("  port {}: {}\n", number, port.error().message);
    return;
  }
  fmt::print("  port {}: {}, {}, {:g} Gb/s, MTU {}, LID {}\n", number,
             verbs::port_state_name(port->state), verbs::to_string(port->link),
             port->speed_mbps / 1000.0, 128 << port->active_mtu, port->lid);
  if (port->active) print_gids(nic, *port, params);
}

void print_device(const conn::Nic& nic, const conn::Params& params) {
  const verbs::DeviceCaps& caps = nic.caps();
  const int numa = verbs::numa_node_of(*nic.context()->device);
  fmt::print("{}  vendor {:#06x} part {}, firmware {}, {}\n", caps.name, caps.vendor_id,
             caps.vendor_part_id, caps.firmware.empty() ? "unknown" : caps.firmware,
             numa < 0 ? "no NUMA node" : fmt::format("NUMA node {}", numa));
  fmt::print("  queue pairs {}, requests per queue {}, SGEs {}, completion queues {} of {}\n",
             caps.max_qp, caps.max_qp_wr, caps.max_sge, caps.max_cq, caps.max_cqe);
  if (caps.has_srq())
    fmt::print("  shared receive queues {} of {} buffers", caps.max_srq, caps.max_srq_wr);
  else
    fmt::print("  no shared receive queues");
  fmt::print(", registrations {}, READs at a time {} (as target {})\n", caps.max_mr,
             caps.max_qp_init_rd_atom, caps.max_qp_rd_atom);
  for (std::uint32_t port = 1; port <= caps.ports; ++port)
    print_port(nic, static_cast<std::uint8_t>(port), params);
}

}  // namespace

Result<void> report_devices(const conn::Params& params) {
  conn::Params all = params;
  all.if_include.clear();
  all.if_exclude.clear();
  const auto devices = conn::active_ports(all, conn::Identity{});
  fmt::print("memlock limit: {}\n", memlock());
  if (!devices) return tl::unexpected(devices.error());
  if (devices->kind == conn::DeviceKind::Softhca)
    fmt::print("the embedded device (libsofthca.so), within this host only\n");
  for (const auto& nic : devices->nics) print_device(*nic, params);
  return {};
}

}  // namespace mend::info
