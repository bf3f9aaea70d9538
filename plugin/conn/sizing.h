// How deep the queues are: the formulas, pure, with the reasoning next to each.
// Thread contract: none, pure functions.
#pragma once

#include <cstdint>

namespace mend::conn {

// Send requests kept free of data on every RC QP: one for the ack cell write, one for the fence's
// beacon or a probe.
constexpr std::uint32_t kReservedSendWrs = 2;
// The bandwidth-delay product is divided by this to get requests: small enough for message rate,
// large enough not to waste device memory at 1 KiB and up.
constexpr std::uint32_t kTypicalMessageBytes = 512;
constexpr std::uint32_t kMinSendDepth = 16;
constexpr std::uint32_t kMaxSendDepth = 4096;
// Peers whose whole window is given receive buffers by default; beyond it the 2 x rule and RNR
// back-pressure decide.
constexpr std::uint32_t kBufferedPeers = 4;
constexpr std::uint32_t kMinSrqDepth = 16;
// Requests an SRQ is created for at least (an empty one costs some ten bytes each): peers may come
// that nobody announced.
constexpr std::uint32_t kMinSrqCapacity = 1024;
// QPs a rail is sized for before any peer is known to need one; more are added by growing.
constexpr std::uint32_t kInitialPeers = 16;
// Handshakes in flight per process (protocol 1.10): each may hold one QP more than its connection.
constexpr std::uint32_t kRecoveriesInFlight = 32;

// The receive buffers are multiplied by this at most when the shared queue runs low.
constexpr std::uint32_t kMostRelief = 4;

struct SendDepthInput {
  std::uint32_t wanted = 0;      // btl_mend_send_queue_depth, 0 = from the formula
  std::uint32_t speed_mbps = 0;  // of the port
  std::uint32_t round_trip_us = 4;
  std::uint32_t window = 128;    // SENDs in flight
  std::uint32_t device_max = 0;  // max_qp_wr
};
// Data requests of one QP: rate x round trip x 1.5 / typical message, at least a window (up to 128
// of it) so that a full window needs no completion to be posted, rounded up to a power of two.
// Always: result + kReservedSendWrs <= device_max.
std::uint32_t send_queue_depth(const SendDepthInput& input);

// The 2 x rule: receive buffers that `live_qps` QPs demand.
constexpr std::uint32_t two_times(std::uint32_t live_qps) { return 2 * live_qps; }

struct SrqDepthInput {
  std::uint32_t wanted = 0;  // btl_mend_srq_depth, 0 = automatic
  std::uint32_t window = 128;
  std::uint32_t peers = 1;       // expected
  std::uint32_t live_qps = 1;    // QPs attached and not in RESET
  std::uint32_t device_max = 0;  // max_srq_wr
};
// Buffers posted: window x min(peers, kBufferedPeers) by default; never below 2 x live QPs,
// whatever was wanted. 0: the device's limit is below the rule.
std::uint32_t srq_depth(const SrqDepthInput& input);

// Receive buffers after the shared queue ran low: half as many again, at most four times as many as
// at first, since an application that computes would otherwise be given all memory; and none if the
// user has said how many there are to be.
struct ReliefInput {
  std::uint32_t depth = 0;
  std::uint32_t first_depth = 0;
  bool fixed = false;  // btl_mend_srq_depth is set
  std::uint32_t device_max = 0;
};
std::uint32_t relieved_depth(const ReliefInput& input);

// Requests the SRQ itself is created for, since most devices refuse to resize one: 2 x (peers +
// pool + recoveries in flight), at least the posted depth and kMinSrqCapacity, clamped to the
// device.
std::uint32_t srq_capacity(std::uint32_t posted_depth, std::uint32_t peers, std::uint32_t pool,
                           std::uint32_t device_max);

// Completion queue entries: every send request of every QP not yet drained (parked ones included)
// and every receive buffer may have an entry at one time. An overrun kills the device, so this is
// an upper bound, not an estimate.
std::uint64_t cq_depth(std::uint32_t qps, std::uint32_t send_wrs_per_qp, std::uint32_t recv_wrs);

}  // namespace mend::conn
