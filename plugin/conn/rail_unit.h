// RailUnit: everything of one rail that the connection layer drives, in destruction order.
// Thread contract: that of its parts.
#pragma once

#include <memory>

#include "plugin/conn/modex.h"
#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"
#include "plugin/conn/ud_channel.h"

namespace mend::conn {

struct RailUnit {
  std::unique_ptr<Rail> rail;
  std::unique_ptr<QpPool> pool;
  std::unique_ptr<UdChannel> control;
  DeviceKind kind = DeviceKind::Verbs;
  TimeNs tend_at = kNever;  // when the pool is looked at next; worker thread
  TimeNs starved_at = 0;    // when the user was last told; worker thread
};

}  // namespace mend::conn
