// ibv_modify_qp as a table: which attributes a transition requires and allows, per QP type, and
// which values are legal. Pure and stateless; any thread. A refused call must leave the QP
// unchanged, so the engine calls check_modify before it touches anything. Source: the ibv_modify_qp
// man page and InfiniBand vol. 1 ch. 10.3.1; RC, UC and UD only.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace softhca {

// What the device offers to the QP being modified.
struct ModifyCaps {
  uint8_t port_count = 1;
  ibv_mtu active_mtu = IBV_MTU_4096;  // of the port that the QP is on
  uint16_t pkey_table_len = 1;
  uint16_t gid_table_len = 1;
  uint8_t max_init_rd_atomic = 16;
  uint8_t max_resp_rd_atomic = 16;
  bool require_grh = false;  // the port routes by GID only (strict RoCE)
  bool path_migration = false;
};

// One legal transition for one QP type; IBV_QP_STATE is always allowed and therefore in neither
// mask.
struct ModifyRule {
  bool legal = false;
  int required = 0;
  int optional = 0;
};

ModifyRule modify_rule(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept;

// 0 if this modify_qp is legal for a QP of that type in state `cur`, else EINVAL.
int check_modify(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_attr& attr, int mask,
                 const ModifyCaps& caps) noexcept;

// The state the QP has after a legal call.
constexpr ibv_qp_state modify_target(ibv_qp_state cur, const ibv_qp_attr& attr, int mask) noexcept {
  return (mask & IBV_QP_STATE) != 0 ? attr.qp_state : cur;
}

}  // namespace softhca
