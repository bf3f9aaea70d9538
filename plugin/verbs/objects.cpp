#include "plugin/verbs/objects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace mend::verbs {
namespace {

// Object-returning calls report through errno; some providers forget to set it.
int call_errno() { return errno != 0 ? errno : ENOMEM; }

// Status-returning calls give the errno value; some providers give -1 and errno.
int status_errno(int rc) { return rc > 0 ? rc : call_errno(); }

const char* device_name(const ibv_context* context) { return context->device->name; }

// Worth asking again for less?
bool may_shrink(int code) { return code == ENOMEM || code == EINVAL; }

}  // namespace

std::string memlock_hint(int code) {
  rlimit limit{};
  if (code != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {};
  }
  return fmt::format(" (memlock limit {} KiB; raise it with 'ulimit -l unlimited')",
                     limit.rlim_cur / 1024);
}

Result<Pd> alloc_pd(const Api& api, ibv_context* context) {
  errno = 0;
  ibv_pd* pd = api.alloc_pd(context);
  if (pd == nullptr) {
    const int code = call_errno();
    return fail(code, "alloc_pd",
                fmt::format("alloc_pd on {}: {}", device_name(context), std::strerror(code)));
  }
  return Pd(pd, api.dealloc_pd);
}

Result<Mr> register_memory(const Api& api, ibv_pd* pd, void* base, std::size_t bytes, int access) {
  errno = 0;
  ibv_mr* mr = api.reg_mr(pd, base, bytes, access);
  if (mr == nullptr) {
    const int code = call_errno();
    return fail(code, "reg_mr",
                fmt::format("registering {} bytes at {} on {}: {}{}", bytes, base,
                            device_name(pd->context), std::strerror(code), memlock_hint(code)));
  }
  return Mr(mr, api.dereg_mr);
}

Result<CompChannel> create_comp_channel(const Api& api, ibv_context* context) {
  errno = 0;
  ibv_comp_channel* channel = api.create_comp_channel(context);
  if (channel == nullptr) {
    const int code = call_errno();
    return fail(
        code, "create_comp_channel",
        fmt::format("create_comp_channel on {}: {}", device_name(context), std::strerror(code)));
  }
  CompChannel owned(channel, api.destroy_comp_channel);
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    const int code = errno;
    return fail(code, "create_comp_channel",
                fmt::format("completion channel of {} cannot be made non-blocking: {}",
                            device_name(context), std::strerror(code)));
  }
  return owned;
}

Result<Cq> create_cq(const Api& api, ibv_context* context, const DeviceCaps& caps,
                     const CqRequest& request) {
  const std::uint32_t minimum = std::max(request.minimum, 1u);
  std::uint32_t depth = std::min(std::max(request.depth, minimum), caps.max_cqe);
  int code = EINVAL;
  while (depth >= minimum) {
    errno = 0;
    ibv_cq* cq = api.create_cq(context, static_cast<int>(depth), nullptr, request.channel, 0);
    if (cq != nullptr) return Cq(cq, api.destroy_cq);
    code = call_errno();
    if (!may_shrink(code) || depth == minimum) break;
    depth = std::max(depth / 2, minimum);
  }
  return fail(code, "create_cq",
              fmt::format("create_cq on {}: {}; asked for {} entries, at least {} are needed; the "
                          "device allows {} entries and {} queues{}",
                          caps.name, std::strerror(code), request.depth, minimum, caps.max_cqe,
                          caps.max_cq, memlock_hint(code)));
}

Result<void> grow_cq(const Api& api, ibv_cq* cq, const DeviceCaps& caps, std::uint32_t depth) {
  if (cq->cqe >= 0 && static_cast<std::uint32_t>(cq->cqe) >= depth) return {};
  int code = EINVAL;
  if (depth <= caps.max_cqe) {
    const int rc = api.resize_cq(cq, static_cast<int>(depth));
    if (rc == 0 && static_cast<std::uint32_t>(cq->cqe) >= depth) return {};
    code = rc == 0 ? ENOMEM : status_errno(rc);
  }
  return fail(
      code, "resize_cq",
      fmt::format("resize_cq on {} from {} to {} entries: {} (the device allows {}){}", caps.name,
                  cq->cqe, depth, std::strerror(code), caps.max_cqe, memlock_hint(code)));
}

Result<SrqGrant> create_srq(const Api& api, ibv_pd* pd, const DeviceCaps& caps,
                            const SrqRequest& request) {
  const std::uint32_t minimum = std::max(request.minimum, 1u);
  std::uint32_t depth = std::min(std::max(request.depth, minimum), caps.max_srq_wr);
  int code = EINVAL;
  while (depth >= minimum) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = depth;
    init.attr.max_sge = 1;
    errno = 0;
    ibv_srq* srq = api.create_srq(pd, &init);
    // The device may round up; what was asked is what is used, so that its limit is never crossed.
    if (srq != nullptr) return SrqGrant{Srq(srq, api.destroy_srq), depth};
    code = call_errno();
    if (!may_shrink(code) || depth == minimum) break;
    depth = std::max(depth / 2, minimum);
  }
  return fail(code, "create_srq",
              fmt::format("create_srq on {}: {}; asked for {} receive requests, at least {} are "
                          "needed; the device allows {} requests and {} queues{}",
                          caps.name, std::strerror(code), request.depth, minimum, caps.max_srq_wr,
                          caps.max_srq, memlock_hint(code)));
}

Result<void> grow_srq(const Api& api, ibv_srq* srq, const DeviceCaps& caps, std::uint32_t depth) {
  int code = EINVAL;
  if (depth <= caps.max_srq_wr) {
    ibv_srq_attr attr{};
    attr.max_wr = depth;
    const int rc = api.modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
    if (rc == 0) return {};
    code = status_errno(rc);
  }
  return fail(
      code, "modify_srq",
      fmt::format("growing the shared receive queue of {} to {} requests: {} (the device "
                  "allows {}){}",
                  caps.name, depth, std::strerror(code), caps.max_srq_wr, memlock_hint(code)));
}

Result<Ah> create_ah(const Api& api, ibv_pd* pd, ibv_ah_attr attr) {
  errno = 0;
  ibv_ah* ah = api.create_ah(pd, &attr);
  if (ah == nullptr) {
    const int code = call_errno();
    Gid gid;
    std::memcpy(gid.data(), attr.grh.dgid.raw, gid.size());
    return fail(code, "create_ah",
                fmt::format("no path from {}:{} to {} (LID {}), the address handle was refused: {}",
                            device_name(pd->context), attr.port_num, format_gid(gid), attr.dlid,
                            std::strerror(code)));
  }
  return Ah(ah, api.destroy_ah);
}

}  // namespace mend::verbs
