// Factories of verbs objects: the only way to make an Unique. Every refusal gets a message for a
// person: the object, what was asked, the device's limit, and the memlock limit where that is the
// likely cause. Asked sizes are clamped to the device's limits; a device that still refuses gets
// smaller requests down to the caller's minimum; the result says what was granted.
//
// Thread contract: any thread; every call may block on the driver (worker thread during recovery).
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugin/verbs/api.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/types.h"
#include "plugin/verbs/unique.h"

namespace mend::verbs {

Result<Pd> alloc_pd(const Api& api, ibv_context* context);

// access: IBV_ACCESS_* flags.
Result<Mr> register_memory(const Api& api, ibv_pd* pd, void* base, std::size_t bytes, int access);

// The channel's file descriptor is made non-blocking.
Result<CompChannel> create_comp_channel(const Api& api, ibv_context* context);

struct CqRequest {
  std::uint32_t depth = 0;    // entries wanted
  std::uint32_t minimum = 0;  // fewer are refused (EINVAL/ENOMEM naming the limit)
  ibv_comp_channel* channel = nullptr;
};
// The granted depth is the queue's own cqe field.
Result<Cq> create_cq(const Api& api, ibv_context* context, const DeviceCaps& caps,
                     const CqRequest& request);
// Grows in place; afterwards cq->cqe is at least depth, or an error names the limit and the queue
// is as before.
Result<void> grow_cq(const Api& api, ibv_cq* cq, const DeviceCaps& caps, std::uint32_t depth);

struct SrqRequest {
  std::uint32_t depth = 0;
  std::uint32_t minimum = 0;
};
struct SrqGrant {
  Srq srq;
  std::uint32_t depth = 0;  // receive requests it holds
};
Result<SrqGrant> create_srq(const Api& api, ibv_pd* pd, const DeviceCaps& caps,
                            const SrqRequest& request);
// Grows in place where the device can (many refuse: EINVAL/ENOSYS/EOPNOTSUPP), never shrinks.
Result<void> grow_srq(const Api& api, ibv_srq* srq, const DeviceCaps& caps, std::uint32_t depth);

struct QpRequest {
  ibv_qp_type type = IBV_QPT_RC;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_srq* srq = nullptr;        // null: the QP has a receive queue of its own
  std::uint32_t send_depth = 0;  // WRs wanted
  std::uint32_t send_minimum = 0;
  std::uint32_t recv_depth = 0;  // without srq only
  std::uint32_t recv_minimum = 0;
  std::uint32_t max_inline = 0;  // bytes wanted; less is never an error
};
struct QpGrant {
  Qp qp;
  std::uint32_t send_depth = 0;
  std::uint32_t recv_depth = 0;
  std::uint32_t max_inline = 0;
};
Result<QpGrant> create_qp(const Api& api, ibv_pd* pd, const DeviceCaps& caps,
                          const QpRequest& request);

// Resolves a RoCE destination; can block for seconds (worker thread).
Result<Ah> create_ah(const Api& api, ibv_pd* pd, ibv_ah_attr attr);

// " (memlock limit 64 KiB: raise it with 'ulimit -l unlimited')" when code is ENOMEM and locked
// memory is limited, else empty.
std::string memlock_hint(int code);

}  // namespace mend::verbs
