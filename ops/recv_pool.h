// RecvPool: the receive buffers of one shared receive queue and the ledger that knows where each one is.
//
// Thread contract: post/return from any thread; resize from the worker thread.
// Invariants: posted + delivered + stashed == depth (I6); depth >= 2 x live QPs at all times (the 2 x rule); a buffer
// is re-posted before its receive callback's caller returns to progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/request.h"
#include "plugin/verbs/error.h"

struct ibv_srq;
struct ibv_qp;

namespace mend::ops {

enum class BufferState : std::uint8_t { Posted, Delivered, Stashed };

struct RecvLedger {
  std::uint32_t depth = 0, posted = 0, delivered = 0, stashed = 0;
  std::uint32_t min_posted = 0;  // lowest number of posted buffers ever seen (srq_min_free of the stats line)
  std::uint32_t lost = 0;        // buffers found missing by an audit and posted again (srq_lost)
};

}  // namespace mend::ops
