// How deep the queues of a rail are planned: the formulas of sizing.h applied to a device, a port
// and the parameters. Pure; the rail and mend-info size both ask here.
#pragma once

#include <cstdint>

#include "plugin/conn/params.h"
#include "plugin/verbs/device.h"

namespace mend::conn {

struct RailSizes {
  std::uint32_t send_depth = 0;    // data WRs per QP (kReservedSendWrs more are created)
  std::uint32_t max_inline = 0;    // bytes per WR, header included; settled by the first QP
  std::uint32_t recv_buffers = 0;  // posted now
  std::uint32_t srq_capacity = 0;  // 0: no SRQ on the device, every QP has a receive queue
  std::uint32_t cq_entries = 0;
  std::uint32_t per_qp_recv = 0;  // receive queue depth per QP, without an SRQ
};

// QPs that a rail makes room for before it knows more: of the first peers, the pool, and one.
std::uint32_t first_qps(const Params& params, std::uint32_t peers);

// Memory that one more connection takes in this process, in bytes: its objects, the smallest log
// and the cell for acknowledgements; without what the device's driver takes for the queue pair.
std::uint64_t host_bytes_per_connection();

// For `peers` other processes. What the device then grants may be less, never below the 2 x rule.
RailSizes plan_sizes(const verbs::DeviceCaps& caps, std::uint32_t speed_mbps, const Params& params,
                     std::uint32_t peers);

}  // namespace mend::conn
