#include "plugin/conn/rail_sizes.h"

#include <algorithm>

#include "ops/op_log.h"
#include "plugin/conn/ack_cells.h"
#include "plugin/conn/connection.h"
#include "plugin/conn/sizing.h"

namespace mend::conn {

std::uint32_t first_qps(const Params& params, std::uint32_t peers) {
  return std::min(peers, kInitialPeers) + static_cast<std::uint32_t>(params.qp_pool_size) + 1;
}

std::uint64_t host_bytes_per_connection() {
  const ops::OpLog smallest;
  return sizeof(Connection) + sizeof(Peer) + smallest.capacity() * sizeof(ops::LogEntry) +
         sizeof(ops::AckCell);
}

RailSizes plan_sizes(const verbs::DeviceCaps& caps, std::uint32_t speed_mbps, const Params& params,
                     std::uint32_t peers) {
  RailSizes sizes;
  const auto window = static_cast<std::uint32_t>(params.window);
  const auto pool = static_cast<std::uint32_t>(params.qp_pool_size);
  sizes.send_depth =
      send_queue_depth({.wanted = static_cast<std::uint32_t>(params.send_queue_depth),
                        .speed_mbps = speed_mbps,
                        .window = window,
                        .device_max = caps.max_qp_wr});
  if (caps.has_srq()) {
    sizes.recv_buffers = srq_depth({.wanted = static_cast<std::uint32_t>(params.srq_depth),
                                    .window = window,
                                    .peers = peers,
                                    .live_qps = 1,
                                    .device_max = caps.max_srq_wr});
    sizes.srq_capacity = srq_capacity(sizes.recv_buffers, peers, pool, caps.max_srq_wr);
  } else {
    sizes.per_qp_recv = std::min(std::max(window, two_times(1)), caps.max_qp_wr);
  }
  const std::uint64_t entries =
      cq_depth(first_qps(params, peers), sizes.send_depth + kReservedSendWrs + sizes.per_qp_recv,
               sizes.recv_buffers);
  sizes.cq_entries = static_cast<std::uint32_t>(std::min<std::uint64_t>(entries, UINT32_MAX));
  return sizes;
}

}  // namespace mend::conn
