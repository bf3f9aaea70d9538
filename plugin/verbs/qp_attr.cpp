#include "plugin/verbs/qp_attr.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "plugin/verbs/clock.h"

namespace mend::verbs {

ibv_ah_attr path_attr(const PathParams& path) {
  ibv_ah_attr attr{};
  attr.port_num = path.port;
  attr.dlid = path.dlid;
  attr.sl = path.service_level;
  attr.is_global = path.global ? 1 : 0;
  if (path.global) {
    std::memcpy(attr.grh.dgid.raw, path.dgid.data(), path.dgid.size());
    attr.grh.sgid_index = path.sgid_index;
    attr.grh.hop_limit = path.hop_limit;
    attr.grh.traffic_class = path.traffic_class;
  }
  return attr;
}

QpChange rc_init(const QpParams& params) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = params.pkey_index;
  attr.port_num = params.port;
  attr.qp_access_flags = params.access;
  return {attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
}

QpChange rc_rtr(const QpParams& params) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.ah_attr = path_attr(params.path);
  attr.path_mtu = params.mtu;
  attr.dest_qp_num = params.dest_qpn.value;
  attr.rq_psn = params.rq_psn.value & kPsnMask;
  attr.max_dest_rd_atomic = params.max_dest_rd_atomic;
  attr.min_rnr_timer = params.min_rnr_timer;
  return {attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
}

QpChange rc_rts(const QpParams& params) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = params.timeout;
  attr.retry_cnt = params.retry_count;
  attr.rnr_retry = params.rnr_retry;
  attr.sq_psn = params.sq_psn.value & kPsnMask;
  attr.max_rd_atomic = params.max_rd_atomic;
  return {attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC};
}

QpChange ud_init(const QpParams& params) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = params.pkey_index;
  attr.port_num = params.port;
  attr.qkey = params.qkey;
  return {attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY};
}

QpChange ud_rtr() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  return {attr, IBV_QP_STATE};
}

QpChange ud_rts(const QpParams& params) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = params.sq_psn.value & kPsnMask;
  return {attr, IBV_QP_STATE | IBV_QP_SQ_PSN};
}

QpChange to_error() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return {attr, IBV_QP_STATE};
}

QpChange to_reset() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  return {attr, IBV_QP_STATE};
}

Result<void> modify(const Api& api, ibv_qp* qp, const QpChange& change) {
  ibv_qp_attr attr = change.attr;
  const int rc = api.modify_qp(qp, &attr, change.mask);
  if (rc == 0) return {};
  const int code = rc > 0 ? rc : (errno != 0 ? errno : EIO);
  return fail(code, "modify_qp",
              fmt::format("modify_qp {:#x} on {} to {}: {}", qp->qp_num, qp->context->device->name,
                          qp_state_name(change.attr.qp_state), std::strerror(code)));
}

Result<ibv_qp_state> query_state(const Api& api, ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int rc = api.query_qp(qp, &attr, IBV_QP_STATE, &init);
  if (rc == 0) return attr.qp_state;
  const int code = rc > 0 ? rc : (errno != 0 ? errno : EIO);
  return fail(code, "query_qp",
              fmt::format("query_qp {:#x} on {}: {}", qp->qp_num, qp->context->device->name,
                          std::strerror(code)));
}

Result<void> confirm_state(const Api& api, ibv_qp* qp, ibv_qp_state wanted,
                           std::chrono::milliseconds limit) {
  const auto deadline = process_clock().now() + limit;
  while (true) {
    const Result<ibv_qp_state> state = query_state(api, qp);
    if (state && *state == wanted) return {};
    const bool late = process_clock().now() >= deadline;
    // A query that failed for want of something is asked again; a dead device answers no more.
    if (!state && (late || state.error().code == EIO)) return tl::unexpected<Error>(state.error());
    if (late) {
      return fail(ETIMEDOUT, "query_qp",
                  fmt::format("QP {:#x} on {} is still {} after {} ms, not {}", qp->qp_num,
                              qp->context->device->name, qp_state_name(*state), limit.count(),
                              qp_state_name(wanted)));
    }
    process_clock().pause(std::chrono::microseconds(200));
  }
}

const char* qp_state_name(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    case IBV_QPS_UNKNOWN:
      break;
  }
  return "UNKNOWN";
}

}  // namespace mend::verbs
