// The modify_qp table: every type x from x to, every attribute bit, and the value checks.
#include "softhca/rules/modify_rules.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace softhca {
namespace {

constexpr ModifyCaps kCaps{.port_count = 2,
                           .active_mtu = IBV_MTU_2048,
                           .pkey_table_len = 2,
                           .gid_table_len = 3,
                           .max_init_rd_atomic = 8,
                           .max_resp_rd_atomic = 4};

ibv_qp_attr good_attr(ibv_qp_state to) {
  ibv_qp_attr a{};
  a.qp_state = to;
  a.path_mtu = IBV_MTU_1024;
  a.path_mig_state = IBV_MIG_MIGRATED;
  a.dest_qp_num = 17;
  a.port_num = 1;
  a.ah_attr.port_num = 1;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.sgid_index = 1;
  a.max_rd_atomic = 1;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.timeout = 14;
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  return a;
}

int check(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask,
          const ModifyCaps& caps = kCaps) {
  ibv_qp_attr a = good_attr(to);
  a.cur_qp_state = from;
  return check_modify(type, from, a, mask | IBV_QP_STATE, caps);
}

constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

struct Walk {
  ibv_qp_type type;
  ibv_qp_state from, to;
  int required;
};

// Written out independently of the table, from the man page.
const std::vector<Walk> kWalks{
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit},
    {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts},
    {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0},
    {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0},
    {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0},
    {IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, 0},
    {IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0},
    {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0},
};

const Walk* find_walk(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  for (const Walk& w : kWalks)
    if (w.type == type && w.from == from && w.to == to) return &w;
  return nullptr;
}

std::string name(ibv_qp_type type, int from, int to) {
  return "type " + std::to_string(type) + " " + std::to_string(from) + "->" + std::to_string(to);
}

TEST(ModifyRules, EveryPairOfStatesIsLegalExactlyWhereTheManPageSaysSo) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
      for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; ++to) {
        const auto f = static_cast<ibv_qp_state>(from);
        const auto t = static_cast<ibv_qp_state>(to);
        const Walk* walk = find_walk(type, f, t);
        const bool legal =
            walk != nullptr || t == IBV_QPS_RESET || (t == IBV_QPS_ERR && f != IBV_QPS_RESET);
        EXPECT_EQ(check(type, f, t, walk != nullptr ? walk->required : 0), legal ? 0 : EINVAL)
            << name(type, from, to);
      }
    }
  }
}

TEST(ModifyRules, EachRequiredAttributeIsMissed) {
  for (const Walk& w : kWalks) {
    for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
      if ((w.required & bit) == 0) continue;
      EXPECT_EQ(check(w.type, w.from, w.to, w.required & ~bit), EINVAL)
          << name(w.type, w.from, w.to) << " without bit " << bit;
    }
  }
}

TEST(ModifyRules, AttributesOutsideBothMasksAreRefused) {
  ModifyCaps caps = kCaps;
  caps.path_migration = true;
  for (const Walk& w : kWalks) {
    const ModifyRule rule = modify_rule(w.type, w.from, w.to);
    EXPECT_EQ(rule.required, w.required) << name(w.type, w.from, w.to);
    for (int bit = 2; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
      if ((w.required & bit) != 0) continue;
      ibv_qp_attr a = good_attr(w.to);
      a.cur_qp_state = w.from;
      a.alt_port_num = 2;
      a.alt_ah_attr = a.ah_attr;
      const int got = check_modify(w.type, w.from, a, w.required | bit | IBV_QP_STATE, caps);
      EXPECT_EQ(got, (rule.optional & bit) != 0 ? 0 : EINVAL)
          << name(w.type, w.from, w.to) << " with bit " << bit;
    }
  }
}

TEST(ModifyRules, TheOptionalMasksThatRecoveryReliesOn) {
  EXPECT_EQ(modify_rule(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR).optional,
            IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX);
  EXPECT_EQ(modify_rule(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS).optional,
            IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                IBV_QP_PATH_MIG_STATE);
  EXPECT_EQ(modify_rule(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS).optional,
            IBV_QP_CUR_STATE | IBV_QP_QKEY);
}

TEST(ModifyRules, ResetAndErrorTakeNoAttribute) {
  for (int bit = 2; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
    EXPECT_EQ(check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RESET, bit), EINVAL);
    EXPECT_EQ(check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, bit), EINVAL);
  }
}

TEST(ModifyRules, WithoutStateTheQpStaysWhereItIs) {
  ibv_qp_attr a = good_attr(IBV_QPS_ERR);  // qp_state is not in the mask and must not be read
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_RTS, a, IBV_QP_MIN_RNR_TIMER, kCaps), 0);
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_RTR, a, IBV_QP_MIN_RNR_TIMER, kCaps), EINVAL);
  EXPECT_EQ(modify_target(IBV_QPS_RTS, a, IBV_QP_MIN_RNR_TIMER), IBV_QPS_RTS);
  EXPECT_EQ(modify_target(IBV_QPS_RTS, a, IBV_QP_STATE), IBV_QPS_ERR);
}

TEST(ModifyRules, CurStateMustBeTrueAndLive) {
  ibv_qp_attr a = good_attr(IBV_QPS_RTS);
  const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
  a.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_RTS, a, mask, kCaps), 0);
  a.cur_qp_state = IBV_QPS_SQD;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_RTS, a, mask, kCaps), EINVAL);
  a.qp_state = IBV_QPS_INIT;
  a.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_INIT, a, mask, kCaps), EINVAL);
}

struct BadValue {
  const char* what;
  ibv_qp_state from, to;
  int mask;
  void (*spoil)(ibv_qp_attr&);
};

TEST(ModifyRules, EachValueCheck) {
  using A = ibv_qp_attr;
  const std::vector<BadValue> cases{
      {"port 0", IBV_QPS_RESET, IBV_QPS_INIT, kInit, [](A& a) { a.port_num = 0; }},
      {"port 3", IBV_QPS_RESET, IBV_QPS_INIT, kInit, [](A& a) { a.port_num = 3; }},
      {"pkey index", IBV_QPS_RESET, IBV_QPS_INIT, kInit, [](A& a) { a.pkey_index = 2; }},
      {"access flags", IBV_QPS_RESET, IBV_QPS_INIT, kInit,
       [](A& a) { a.qp_access_flags = IBV_ACCESS_ZERO_BASED; }},
      {"mtu above the port's", IBV_QPS_INIT, IBV_QPS_RTR, kRtr,
       [](A& a) { a.path_mtu = IBV_MTU_4096; }},
      {"mtu 0", IBV_QPS_INIT, IBV_QPS_RTR, kRtr,
       [](A& a) { a.path_mtu = static_cast<ibv_mtu>(0); }},
      {"qpn", IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](A& a) { a.dest_qp_num = 1U << 24; }},
      {"av port", IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](A& a) { a.ah_attr.port_num = 0; }},
      {"sgid index", IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](A& a) { a.ah_attr.grh.sgid_index = 3; }},
      {"rnr timer", IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](A& a) { a.min_rnr_timer = 32; }},
      {"responder rd_atomic", IBV_QPS_INIT, IBV_QPS_RTR, kRtr,
       [](A& a) { a.max_dest_rd_atomic = 5; }},
      {"timeout", IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](A& a) { a.timeout = 32; }},
      {"retry count", IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](A& a) { a.retry_cnt = 8; }},
      {"rnr retry", IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](A& a) { a.rnr_retry = 8; }},
      {"initiator rd_atomic", IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](A& a) { a.max_rd_atomic = 9; }},
      {"alternate path without migration", IBV_QPS_RTR, IBV_QPS_RTS, kRts | IBV_QP_ALT_PATH,
       [](A& a) { a.alt_port_num = 1; }},
      {"rearm without migration", IBV_QPS_RTR, IBV_QPS_RTS, kRts | IBV_QP_PATH_MIG_STATE,
       [](A& a) { a.path_mig_state = IBV_MIG_REARM; }},
  };
  for (const BadValue& c : cases) {
    ibv_qp_attr a = good_attr(c.to);
    if ((c.mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)) == 0) {
      EXPECT_EQ(check_modify(IBV_QPT_RC, c.from, a, c.mask | IBV_QP_STATE, kCaps), 0) << c.what;
    }
    c.spoil(a);
    EXPECT_EQ(check_modify(IBV_QPT_RC, c.from, a, c.mask | IBV_QP_STATE, kCaps), EINVAL) << c.what;
  }
}

TEST(ModifyRules, StrictRoceNeedsAGrh) {
  ModifyCaps caps = kCaps;
  ibv_qp_attr a = good_attr(IBV_QPS_RTR);
  a.ah_attr.is_global = 0;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_INIT, a, kRtr | IBV_QP_STATE, caps), 0);
  caps.require_grh = true;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_INIT, a, kRtr | IBV_QP_STATE, caps), EINVAL);
}

TEST(ModifyRules, OtherTypesAndStatesAreRefused) {
  EXPECT_EQ(check(IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT), EINVAL);
  EXPECT_EQ(check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, 0), EINVAL);
  EXPECT_EQ(check(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, 0), EINVAL);
}

}  // namespace
}  // namespace softhca
