#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "ops/wire.h"
#include "plugin/conn/device_choice.h"
#include "plugin/conn/rail_sizes.h"
#include "plugin/conn/sizing.h"
#include "plugin/verbs/device.h"
#include "tools/mend-info/reports.h"

namespace mend::info {
namespace {

const conn::ChosenPort* find_port(const conn::Devices& devices, const std::string& device) {
  for (const conn::ChosenPort& port : devices.ports)
    if (device.empty() || port.nic->name() == device) return &port;
  return nullptr;
}

double kib(double bytes) { return bytes / 1024; }

void print_sizes(const conn::ChosenPort& chosen, const conn::Params& params, unsigned peers) {
  const verbs::DeviceCaps& caps = chosen.nic->caps();
  const auto port = verbs::query_port(chosen.nic->api(), chosen.nic->context(), chosen.port);
  const std::uint32_t speed = port ? port->speed_mbps : 0;
  const conn::RailSizes sizes = conn::plan_sizes(caps, speed, params, peers);
  const double buffer = params.max_send_size + static_cast<double>(sizeof(ops::DataHeader));
  const auto qps = peers + static_cast<unsigned>(params.qp_pool_size);
  const unsigned wanted = std::max(sizes.recv_buffers, conn::two_times(qps));
  const unsigned ruled = sizes.srq_capacity > 0 ? std::min(wanted, sizes.srq_capacity) : wanted;
  fmt::print("{}:{}, {} peers ({} queue pairs with the pool)\n", caps.name, chosen.port, peers,
             qps);
  fmt::print("  send queue of each peer     {:>8} requests, {} more for mend itself\n",
             sizes.send_depth, conn::kReservedSendWrs);
  if (sizes.srq_capacity > 0) {
    fmt::print(
        "  shared receive queue        {:>8} buffers at start, {} with all peers connected "
        "(2 x queue pairs at least)\n",
        sizes.recv_buffers, ruled);
    fmt::print("                              {:>8} buffers if it runs low, {} is its capacity\n",
               std::min(ruled * conn::kMostRelief, sizes.srq_capacity), sizes.srq_capacity);
  } else {
    fmt::print("  receive queue of each peer  {:>8} buffers (the device has no shared ones)\n",
               sizes.per_qp_recv);
  }
  if (ruled < wanted || qps > caps.max_qp)
    fmt::print("  beyond the device: {} queue pairs and {} buffers are the most that it has\n",
               caps.max_qp, caps.max_srq_wr);
  fmt::print("  completion queue            {:>8} entries at start\n", sizes.cq_entries);
  const double buffers =
      sizes.srq_capacity > 0 ? ruled : static_cast<double>(sizes.per_qp_recv) * peers;
  fmt::print("  registered receive buffers  {:>8.0f} KiB of {:.1f} KiB each\n",
             kib(buffers * buffer), kib(buffer));
  fmt::print(
      "  host memory of the peers    {:>8.0f} KiB, what the driver takes for queue pairs aside\n",
      kib(static_cast<double>(conn::host_bytes_per_connection()) * peers));
  fmt::print(
      "  largest memory held for one peer while its connection is down: {:.0f} KiB and the "
      "messages that must not wait\n",
      kib(static_cast<double>(params.held_bytes_per_peer)));
}

}  // namespace

Result<void> report_sizes(const conn::Params& params, unsigned peers, const std::string& device) {
  const auto devices = conn::active_ports(params, conn::Identity{});
  if (!devices) return tl::unexpected(devices.error());
  const conn::ChosenPort* port = find_port(*devices, device);
  if (port == nullptr)
    return fail(ENODEV, "--device", fmt::format("no usable port of a device \"{}\"", device));
  print_sizes(*port, params, peers);
  return {};
}

}  // namespace mend::info
