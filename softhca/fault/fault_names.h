// The words of the fault grammar: kinds with their keys and help, calls, opcodes, completion
// statuses, events. Tables that the parser, the help of softhcactl and the logs share. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "softhca/fault/fault_rule.h"

namespace softhca {

// Keys of a rule, as bits.
enum FaultKey : uint32_t {
  kKeyRank = 1U << 0,
  kKeyPeer = 1U << 1,
  kKeyDevice = 1U << 2,
  kKeyPort = 1U << 3,
  kKeyQp = 1U << 4,
  kKeyQpn = 1U << 5,
  kKeyOp = 1U << 6,
  kKeyTo = 1U << 7,
  kKeyN = 1U << 8,
  kKeyP = 1U << 9,
  kKeyAt = 1U << 10,
  kKeyPeriod = 1U << 11,
  kKeyJitter = 1U << 12,
  kKeyFrom = 1U << 13,
  kKeyUntil = 1U << 14,
  kKeyLimit = 1U << 15,
  kKeyDelay = 1U << 16,
  kKeyFor = 1U << 17,
  kKeyTimes = 1U << 18,
  kKeyWindow = 1U << 19,
  kKeySide = 1U << 20,
  kKeyExecuted = 1U << 21,
  kKeyEvent = 1U << 22,
  kKeyFlush = 1U << 23,
};

struct FaultKeyInfo {
  std::string_view name;
  FaultKey bit;
  std::string_view help;
};
std::span<const FaultKeyInfo> fault_keys() noexcept;

struct FaultKindInfo {
  std::string_view name;
  FaultKind kind;
  std::string_view argument;  // what stands behind '=', empty: nothing does
  uint32_t keys;              // that may follow
  std::string_view help;
};
std::span<const FaultKindInfo> fault_kinds() noexcept;
std::string_view fault_kind_name(FaultKind kind) noexcept;

std::string_view fault_call_name(FaultCall call) noexcept;
std::optional<FaultCall> fault_call(std::string_view name) noexcept;

// "RETRY_EXC_ERR" or "IBV_WC_RETRY_EXC_ERR"; names without success.
std::optional<ibv_wc_status> wc_status(std::string_view name) noexcept;
// "QP_FATAL" or "IBV_EVENT_QP_FATAL".
std::optional<ibv_event_type> event_type(std::string_view name) noexcept;
std::optional<uint32_t> qp_state(std::string_view name) noexcept;
// Mask of 1 << ibv_wr_opcode; "write" names both RDMA writes, "send" both sends, "atomic" both
// atomics.
std::optional<uint32_t> opcode_mask(std::string_view name) noexcept;
std::string_view opcode_name(ibv_wr_opcode opcode) noexcept;

// Names of a table, separated by commas, for messages.
std::string names_of_calls();
std::string names_of_kinds();

// The whole grammar as text for people.
std::string fault_help();

}  // namespace softhca
