// The fence (docs/protocol.md 1.8): after it the QP accepts nothing, produces nothing and writes
// nothing, and everything it had received counts. Only then may rx_next be sampled (rule F1).
//
// Thread contract: worker thread; blocks up to the limit. The caller has called
// Channel::stop_posting() before, and calls Channel::detach() after. Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"

namespace mend::conn {

enum class FenceOutcome : std::uint8_t {
  Fenced,      // RESET reached
  DeviceGone,  // the device is dead (EIO, DEVICE_FATAL): counts as fenced
  Failed,      // neither: the connection is Failed, the QP Stuck
};
const char* to_string(FenceOutcome outcome);

struct FenceReport {
  FenceOutcome outcome = FenceOutcome::Failed;
  std::string reason;  // for Failed and DeviceGone
  bool beacon_seen = false;
  bool last_wqe_seen = false;
  std::uint32_t microseconds = 0;
  bool fenced() const { return outcome != FenceOutcome::Failed; }
};

FenceReport fence(Rail& rail, RcQp& qp, std::chrono::milliseconds limit);

}  // namespace mend::conn
