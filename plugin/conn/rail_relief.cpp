// Rail: what is done when its shared receive queue runs low. It is never emptied silently: either
// more buffers are posted, or a line says who holds the ones there are.
#include <fmt/format.h>

#include <algorithm>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/peer.h"
#include "plugin/conn/rail.h"
#include "plugin/conn/sizing.h"
#include "plugin/conn/transport.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {

std::uint32_t Rail::low_watermark() const {
  const std::uint32_t depth = recv_pool_->depth();
  const auto wanted = static_cast<std::uint32_t>(params_.srq_low_watermark);
  return std::min(wanted != 0 ? wanted : depth / 4, depth - 1);
}

void Rail::watch_srq() {
  if (!srq_ || low_watermark() == 0) return;
  if (const int refused = recv_pool_->arm_limit(low_watermark()); refused != 0)
    log(LogLevel::Info, fmt::format("{}: the device does not tell when its shared receive queue "
                                    "runs low (error {})",
                                    info_.name, refused));
}

bool Rail::relieve_srq() {
  const std::uint32_t have = recv_pool_->depth();
  const std::uint32_t goal = relieved_depth({.depth = have,
                                             .first_depth = first_recv_buffers_,
                                             .fixed = params_.srq_depth != 0,
                                             .device_max = nic_.caps().max_srq_wr});
  if (goal <= have) return false;
  auto grown = grow_receive_buffers(goal);
  if (!grown) {
    log(LogLevel::Info, info_.name + ": no further receive buffers: " + grown.error().message);
    return false;
  }
  log(LogLevel::Info, fmt::format("{}: {} receive buffers instead of {}, because fewer than {} "
                                  "were free",
                                  info_.name, recv_pool_->depth(), have, low_watermark()));
  return true;
}

// The CQ and the queue itself first: once the buffers are posted, each may complete.
Result<void> Rail::grow_receive_buffers(std::uint32_t depth) {
  if (auto room = make_cq_room(reserved_qps_, depth); !room) return room;
  if (depth > sizes_.srq_capacity) {
    if (auto grown = verbs::grow_srq(api(), srq_.get(), nic_.caps(), depth); !grown) return grown;
    sizes_.srq_capacity = depth;
    recv_pool_->set_max_depth(depth);
  }
  if (auto grown = recv_pool_->grow(depth); !grown) return grown;
  sizes_.recv_buffers = recv_pool_->depth();
  return {};
}

std::string Rail::srq_holders() const {
  const ops::RecvLedger ledger = recv_pool_->ledger();
  const std::uint32_t free = std::min(low_watermark(), ledger.posted);
  std::string text = fmt::format(
      "SRQ starving on {}: fewer than {} of {} receive buffers are free; at least {} hold messages "
      "that MPI has not been called to take, {} are being delivered, {} are stashed",
      info_.name, low_watermark(), ledger.depth, ledger.posted - free, ledger.delivered,
      ledger.stashed);
  for (const auto& [context, count] : poller_->stashed_by_context()) {
    const auto* origin = static_cast<const Origin*>(context);
    text += fmt::format(", {} of them from process {} on {}", count, origin->peer->rank,
                        origin->peer->host);
  }
  return text + "; peers wait until buffers come back (btl_mend_srq_depth raises their number)";
}

}  // namespace mend::conn
