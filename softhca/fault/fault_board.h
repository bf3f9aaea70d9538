// The rules that are in force on a fabric, with their counters. Lives in the fabric's global
// segment (zero-initialised memory is an empty board): processes publish the schedule they were
// started with, softhcactl and simulations add and clear, everybody counts hits. Writers exclude
// each other by the attach lock (simulation: one thread); readers copy a slot between two looks at
// its serial. Nothing here is looked at on a data path: a process keeps its own copy (Injector).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "softhca/fault/fault_list.h"
#include "softhca/fault/fault_rule.h"

namespace softhca {

inline constexpr uint64_t kNoTime = UINT64_MAX;

struct FaultSlot {
  std::atomic<uint32_t> serial;  // 0 = free; never the same twice. Written last.
  uint32_t origin;               // 0: everybody; else those who were given this schedule
  uint64_t added;                // when it came into force
  FaultRule rule;
  std::atomic<uint64_t> hits;
  std::atomic<uint64_t> firings;  // how often its time came
  std::atomic<uint64_t> next_at;  // when its time comes next; whoever advances it acts
  std::atomic<uint64_t> undo_at;  // port-down: when the port comes up again
};

struct FaultBoard {
  std::atomic<uint32_t> epoch;  // grows with every change
  uint32_t last_serial;
  std::array<FaultSlot, kMaxFaultRules> slots;
};

// False: no room for all of them, and none was added. Rules of an origin that is already there are
// not added again.
bool board_add(FaultBoard& board, const FaultList& list, uint32_t origin, uint64_t now);
void board_clear(FaultBoard& board) noexcept;

struct FaultCopy {
  FaultRule rule;
  uint32_t slot = 0;
  uint32_t serial = 0;
  uint32_t origin = 0;
  uint64_t added = 0;
};
// The rule of a slot; nothing if it is free or just changing.
std::optional<FaultCopy> board_read(const FaultBoard& board, uint32_t slot);
// All of them, by slot.
std::vector<FaultCopy> board_rules(const FaultBoard& board);

// Random numbers that depend on their arguments only: 64 bits, and one from [0, 1).
uint64_t fault_random(uint64_t seed, uint64_t stream, uint64_t index) noexcept;
double fault_fraction(uint64_t seed, uint64_t stream, uint64_t index) noexcept;

// Time from one firing to the next.
uint64_t fault_gap(const FaultRule& rule, uint32_t serial, uint64_t firing) noexcept;
// When a timed rule fires first.
uint64_t first_firing(const FaultRule& rule, uint32_t serial, uint64_t added) noexcept;

}  // namespace softhca
