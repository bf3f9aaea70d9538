// RailUnit: everything of one rail that the connection layer drives, in destruction order.
// Thread contract: that of its parts.
#pragma once

#include <cstdint>
#include <memory>

#include "plugin/conn/modex.h"
#include "plugin/conn/moving_timer.h"
#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"
#include "plugin/conn/ud_channel.h"

namespace mend::conn {

constexpr std::uint32_t kPlenty = ~0u;

struct RailUnit {
  std::unique_ptr<Rail> rail;
  std::unique_ptr<QpPool> pool;
  std::unique_ptr<UdChannel> control;
  DeviceKind kind = DeviceKind::Verbs;
  MovingTimer tend;  // when the pool is looked at next; worker thread
  // Of a shared receive queue that runs low and cannot grow; worker thread.
  TimeNs starved_at = 0;  // when the log last said so
  TimeNs told_at = 0;     // when the user was last told
  TimeNs low_since = 0;   // beginning of the present shortage
  TimeNs low_at = 0;      // when it was last seen
  // Service thread: what one connection may count on while receive buffers are short, and how often
  // they have run low.
  std::uint32_t free_share = kPlenty;
  std::uint64_t low_events = 0;
};

}  // namespace mend::conn
