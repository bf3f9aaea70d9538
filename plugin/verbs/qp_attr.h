// The attributes of every QP transition mend makes, with exactly the masks the verbs demand, and
// modify/query over the table.
//
// Thread contract: the *_attr functions are pure; modify() and confirm_state() may block on the
// driver for tens of milliseconds (worker thread only).
#pragma once

#include <chrono>
#include <cstdint>

#include "plugin/verbs/api.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/gid.h"
#include "plugin/verbs/types.h"

namespace mend::verbs {

// How to reach a port: used by RC paths and UD address handles.
struct PathParams {
  std::uint8_t port = 1;  // local port
  std::uint16_t dlid = 0;
  bool global = false;  // send a GRH (always on RoCE)
  Gid dgid{};
  std::uint8_t sgid_index = 0;
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};
ibv_ah_attr path_attr(const PathParams& path);

struct QpParams {
  // INIT
  std::uint8_t port = 1;
  std::uint16_t pkey_index = 0;
  unsigned access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  std::uint32_t qkey = 0;  // UD
  // RTR
  PathParams path;
  ibv_mtu mtu = IBV_MTU_1024;
  Qpn dest_qpn;
  Psn rq_psn;
  std::uint8_t max_dest_rd_atomic = 1;
  std::uint8_t min_rnr_timer = 12;
  // RTS
  Psn sq_psn;
  std::uint8_t timeout = 15;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t max_rd_atomic = 1;
};

struct QpChange {
  ibv_qp_attr attr;
  int mask;
};
QpChange rc_init(const QpParams& params);
QpChange rc_rtr(const QpParams& params);
QpChange rc_rts(const QpParams& params);
QpChange ud_init(const QpParams& params);
QpChange ud_rtr();
QpChange ud_rts(const QpParams& params);
QpChange to_error();
QpChange to_reset();

// Error::code is the errno of the device; the message names QP, target state and what it means.
Result<void> modify(const Api& api, ibv_qp* qp, const QpChange& change);

Result<ibv_qp_state> query_state(const Api& api, ibv_qp* qp);
// Asks until the QP reports `wanted` (some devices take ~15 ms), also when a query fails, unless
// with EIO: a dead device answers no more. ETIMEDOUT names the state it stayed in.
Result<void> confirm_state(const Api& api, ibv_qp* qp, ibv_qp_state wanted,
                           std::chrono::milliseconds limit);

const char* qp_state_name(ibv_qp_state state);

}  // namespace mend::verbs
