#include "softhca/rules/modify_rules.h"

#include <array>
#include <cerrno>
#include <cstddef>

namespace softhca {
namespace {

struct Masks {
  int required;
  int optional;
};

struct Row {
  ibv_qp_state from;
  ibv_qp_state to;
  Masks rc;
  Masks uc;
  Masks ud;
};

constexpr int kInitRc = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitUd = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kRtrUc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRtrRc = kRtrUc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtrOpt = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRtsRc =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kLiveUc =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kLiveRc = kLiveUc | IBV_QP_MIN_RNR_TIMER;
constexpr int kLiveUd = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kSqdUc =
    IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
constexpr int kSqdRc = kSqdUc | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr Masks kNone{0, 0};
constexpr Masks kNotify{0, IBV_QP_EN_SQD_ASYNC_NOTIFY};

// Transitions to RESET and to ERR take no attribute and are not listed.
constexpr std::array kRows{
    Row{IBV_QPS_RESET, IBV_QPS_INIT, {kInitRc, 0}, {kInitRc, 0}, {kInitUd, 0}},
    Row{IBV_QPS_INIT, IBV_QPS_INIT, {0, kInitRc}, {0, kInitRc}, {0, kInitUd}},
    Row{IBV_QPS_INIT,
        IBV_QPS_RTR,
        {kRtrRc, kRtrOpt},
        {kRtrUc, kRtrOpt},
        {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Row{IBV_QPS_RTR,
        IBV_QPS_RTS,
        {kRtsRc, kLiveRc},
        {IBV_QP_SQ_PSN, kLiveUc},
        {IBV_QP_SQ_PSN, kLiveUd}},
    Row{IBV_QPS_RTS, IBV_QPS_RTS, {0, kLiveRc}, {0, kLiveUc}, {0, kLiveUd}},
    Row{IBV_QPS_RTS, IBV_QPS_SQD, kNotify, kNotify, kNotify},
    Row{IBV_QPS_SQD, IBV_QPS_RTS, {0, kLiveRc}, {0, kLiveUc}, {0, kLiveUd}},
    Row{IBV_QPS_SQD, IBV_QPS_SQD, {0, kSqdRc}, {0, kSqdUc}, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Row{IBV_QPS_SQE, IBV_QPS_RTS, kNone, {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS}, {0, kLiveUd}},
};

constexpr int kQpAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

constexpr bool known_state(ibv_qp_state s) noexcept {
  const int v = static_cast<int>(s);
  return v >= IBV_QPS_RESET && v <= IBV_QPS_ERR;
}

constexpr bool served_type(ibv_qp_type t) noexcept {
  return t == IBV_QPT_RC || t == IBV_QPT_UC || t == IBV_QPT_UD;
}

// The caller's idea of the current state must name a state that work can be in, and must be right.
bool cur_state_ok(ibv_qp_state cur, const ibv_qp_attr& attr, int mask) noexcept {
  if ((mask & IBV_QP_CUR_STATE) == 0) return true;
  const bool live =
      cur == IBV_QPS_RTR || cur == IBV_QPS_RTS || cur == IBV_QPS_SQD || cur == IBV_QPS_SQE;
  return live && attr.cur_qp_state == cur;
}

bool port_ok(uint8_t port, const ModifyCaps& caps) noexcept {
  return port >= 1 && port <= caps.port_count;
}

bool address_ok(const ibv_ah_attr& ah, const ModifyCaps& caps) noexcept {
  if (!port_ok(ah.port_num, caps)) return false;
  if (ah.is_global == 0) return !caps.require_grh;
  return ah.grh.sgid_index < caps.gid_table_len;
}

bool placement_ok(const ibv_qp_attr& attr, int mask, const ModifyCaps& caps) noexcept {
  if ((mask & IBV_QP_PORT) != 0 && !port_ok(attr.port_num, caps)) return false;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index >= caps.pkey_table_len) return false;
  if ((mask & IBV_QP_AV) != 0 && !address_ok(attr.ah_attr, caps)) return false;
  if ((mask & IBV_QP_DEST_QPN) != 0 && attr.dest_qp_num > 0xffffff) return false;
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > caps.active_mtu))
    return false;
  return true;
}

bool transport_ok(const ibv_qp_attr& attr, int mask, const ModifyCaps& caps) noexcept {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (attr.qp_access_flags & ~unsigned{kQpAccess}) != 0)
    return false;
  if ((mask & IBV_QP_TIMEOUT) != 0 && attr.timeout > 31) return false;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && attr.retry_cnt > 7) return false;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && attr.rnr_retry > 7) return false;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr.min_rnr_timer > 31) return false;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > caps.max_init_rd_atomic)
    return false;
  return (mask & IBV_QP_MAX_DEST_RD_ATOMIC) == 0 ||
         attr.max_dest_rd_atomic <= caps.max_resp_rd_atomic;
}

bool migration_ok(const ibv_qp_attr& attr, int mask, const ModifyCaps& caps) noexcept {
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && !caps.path_migration &&
      attr.path_mig_state != IBV_MIG_MIGRATED)
    return false;
  if ((mask & IBV_QP_ALT_PATH) == 0) return true;
  return caps.path_migration && attr.alt_timeout <= 31 && port_ok(attr.alt_port_num, caps) &&
         attr.alt_pkey_index < caps.pkey_table_len && address_ok(attr.alt_ah_attr, caps);
}

}  // namespace

ModifyRule modify_rule(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept {
  if (!served_type(type) || !known_state(from) || !known_state(to)) return {};
  if (to == IBV_QPS_RESET) return {.legal = true};
  if (to == IBV_QPS_ERR) return {.legal = from != IBV_QPS_RESET};
  if (from == IBV_QPS_SQE && type == IBV_QPT_RC) return {.legal = to == IBV_QPS_RTS};
  for (const Row& row : kRows) {
    if (row.from != from || row.to != to) continue;
    const Masks& m = type == IBV_QPT_RC ? row.rc : type == IBV_QPT_UC ? row.uc : row.ud;
    return {.legal = true, .required = m.required, .optional = m.optional};
  }
  return {};
}

int check_modify(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_attr& attr, int mask,
                 const ModifyCaps& caps) noexcept {
  if (!cur_state_ok(cur, attr, mask)) return EINVAL;
  const ModifyRule rule = modify_rule(type, cur, modify_target(cur, attr, mask));
  if (!rule.legal) return EINVAL;
  if ((mask & rule.required) != rule.required) return EINVAL;
  if ((mask & ~(rule.required | rule.optional | IBV_QP_STATE)) != 0) return EINVAL;
  const bool values_ok = placement_ok(attr, mask, caps) && transport_ok(attr, mask, caps) &&
                         migration_ok(attr, mask, caps);
  return values_ok ? 0 : EINVAL;
}

}  // namespace softhca
