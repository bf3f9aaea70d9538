#include "plugin/conn/sizing.h"

#include <algorithm>
#include <bit>

namespace mend::conn {

std::uint32_t send_queue_depth(const SendDepthInput& input) {
  const std::uint32_t ceiling = std::min(
      kMaxSendDepth, input.device_max > kReservedSendWrs ? input.device_max - kReservedSendWrs : 0);
  if (input.wanted != 0) return std::min(std::max(input.wanted, 1u), ceiling);
  // megabits per second are bits per microsecond
  const std::uint64_t in_flight_bytes =
      std::uint64_t{input.speed_mbps} * input.round_trip_us / 8 * 3 / 2;
  const std::uint64_t from_rate = in_flight_bytes / kTypicalMessageBytes;
  const std::uint64_t from_window = std::min(input.window, 128u);
  const std::uint64_t depth = std::max({from_rate, from_window, std::uint64_t{kMinSendDepth}});
  return static_cast<std::uint32_t>(std::min(
      std::bit_ceil(std::min(depth, std::uint64_t{kMaxSendDepth})), std::uint64_t{ceiling}));
}

std::uint32_t srq_depth(const SrqDepthInput& input) {
  const std::uint32_t rule = two_times(std::max(input.live_qps, 1u));
  if (rule > input.device_max) return 0;
  std::uint32_t depth = input.wanted;
  if (depth == 0) {
    depth = std::max(input.window * std::clamp(input.peers, 1u, kBufferedPeers), kMinSrqDepth);
  }
  return std::min(std::max(depth, rule), input.device_max);
}

std::uint32_t relieved_depth(const ReliefInput& input) {
  if (input.fixed) return input.depth;
  const std::uint64_t most =
      std::min(std::uint64_t{input.first_depth} * kMostRelief, std::uint64_t{input.device_max});
  const std::uint64_t wanted = std::uint64_t{input.depth} + std::max(input.depth / 2, 1u);
  return static_cast<std::uint32_t>(std::max(std::min(wanted, most), std::uint64_t{input.depth}));
}

std::uint32_t srq_capacity(std::uint32_t posted_depth, std::uint32_t peers, std::uint32_t pool,
                           std::uint32_t device_max) {
  const std::uint64_t by_rule =
      2 * (std::uint64_t{peers} + pool + std::min(peers, kRecoveriesInFlight));
  const std::uint64_t wanted =
      std::max({std::uint64_t{posted_depth}, by_rule, std::uint64_t{kMinSrqCapacity}});
  return static_cast<std::uint32_t>(std::min(wanted, std::uint64_t{device_max}));
}

std::uint64_t cq_depth(std::uint32_t qps, std::uint32_t send_wrs_per_qp, std::uint32_t recv_wrs) {
  return std::uint64_t{qps} * send_wrs_per_qp + recv_wrs;
}

}  // namespace mend::conn
