// create_qp of plugin/verbs/objects.h: clamping, then shrinking inline first and depth second.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugin/verbs/objects.h"

namespace mend::verbs {
namespace {

struct Sizes {
  std::uint32_t send = 0, recv = 0, inline_bytes = 0;
};

ibv_qp_init_attr init_attr(const QpRequest& request, const Sizes& sizes) {
  ibv_qp_init_attr init{};
  init.qp_type = request.type;
  init.send_cq = request.send_cq;
  init.recv_cq = request.recv_cq;
  init.srq = request.srq;
  init.sq_sig_all = 0;
  init.cap.max_send_wr = sizes.send;
  init.cap.max_recv_wr = request.srq != nullptr ? 0 : sizes.recv;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = request.srq != nullptr ? 0 : 1;
  init.cap.max_inline_data = sizes.inline_bytes;
  return init;
}

// The next smaller request: the inline size goes first, since it costs only speed. False: nothing
// left to give up.
bool shrink(const QpRequest& request, Sizes& sizes) {
  if (sizes.inline_bytes > 0) {
    sizes.inline_bytes = sizes.inline_bytes >= 64 ? sizes.inline_bytes / 2 : 0;
    return true;
  }
  const std::uint32_t send = std::max(sizes.send / 2, request.send_minimum);
  const std::uint32_t recv = std::max(sizes.recv / 2, request.recv_minimum);
  const bool smaller = send < sizes.send || recv < sizes.recv;
  sizes.send = std::min(send, sizes.send);
  sizes.recv = std::min(recv, sizes.recv);
  return smaller;
}

}  // namespace

Result<QpGrant> create_qp(const Api& api, ibv_pd* pd, const DeviceCaps& caps,
                          const QpRequest& request) {
  Sizes sizes{std::min(request.send_depth, caps.max_qp_wr),
              std::min(request.recv_depth, caps.max_qp_wr), request.max_inline};
  int code = EINVAL;
  bool possible = sizes.send >= request.send_minimum && sizes.recv >= request.recv_minimum;
  while (possible) {
    ibv_qp_init_attr init = init_attr(request, sizes);
    errno = 0;
    ibv_qp* qp = api.create_qp(pd, &init);
    if (qp != nullptr) {
      // The device reports what it gives; depths are used as asked (it may round up), inline as
      // given.
      return QpGrant{Qp(qp, api.destroy_qp), sizes.send, sizes.recv,
                     std::min(init.cap.max_inline_data, request.max_inline)};
    }
    code = errno != 0 ? errno : ENOMEM;
    possible = (code == ENOMEM || code == EINVAL) && shrink(request, sizes);
  }
  return fail(code, "create_qp",
              fmt::format("create_qp on {}: {}; asked for {} send and {} receive requests, at "
                          "least {} and {} are needed; the device allows {} per queue pair and {} "
                          "queue pairs{}",
                          caps.name, std::strerror(code), request.send_depth, request.recv_depth,
                          request.send_minimum, request.recv_minimum, caps.max_qp_wr, caps.max_qp,
                          memlock_hint(code)));
}

}  // namespace mend::verbs
