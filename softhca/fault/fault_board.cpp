#include "softhca/fault/fault_board.h"

namespace softhca {

namespace {

void publish(FaultSlot& slot, const FaultRule& rule, uint32_t origin, uint32_t serial,
             uint64_t now) {
  slot.origin = origin;
  slot.added = now;
  slot.rule = rule;
  slot.hits = 0;
  slot.firings = 0;
  slot.undo_at = kNoTime;
  slot.next_at = rule.timed ? first_firing(rule, serial, now) : kNoTime;
  slot.serial.store(serial, std::memory_order_release);
}

}  // namespace

uint64_t fault_random(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t z = seed * kStep + stream * 0xd1342543de82ef95 + index * 0x2545f4914f6cdd1d + kStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double fault_fraction(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  return static_cast<double>(fault_random(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t fault_gap(const FaultRule& rule, uint32_t serial, uint64_t firing) noexcept {
  const double u = fault_fraction(rule.seed, serial, firing);
  const double stretch = 1.0 + rule.jitter * (2.0 * u - 1.0);
  const auto gap = static_cast<uint64_t>(static_cast<double>(rule.period) * stretch);
  return gap == 0 ? 1 : gap;
}

uint64_t first_firing(const FaultRule& rule, uint32_t serial, uint64_t added) noexcept {
  if (rule.at != 0 || rule.period == 0) return added + rule.at;
  return added + fault_gap(rule, serial, 0);
}

bool board_add(FaultBoard& board, const FaultList& list, uint32_t origin, uint64_t now) {
  uint32_t room = 0;
  for (const FaultSlot& slot : board.slots) {
    const uint32_t serial = slot.serial.load(std::memory_order_acquire);
    if (serial != 0 && origin != 0 && slot.origin == origin) return true;
    if (serial == 0) ++room;
  }
  if (room < list.size()) return false;
  std::size_t next = 0;
  for (FaultSlot& slot : board.slots) {
    if (next == list.size()) break;
    if (slot.serial.load() != 0) continue;
    publish(slot, list[next++], origin, ++board.last_serial, now);
  }
  board.epoch.fetch_add(1);
  return true;
}

void board_clear(FaultBoard& board) noexcept {
  for (FaultSlot& slot : board.slots) slot.serial.store(0);
  board.epoch.fetch_add(1);
}

std::optional<FaultCopy> board_read(const FaultBoard& board, uint32_t slot) {
  const FaultSlot& from = board.slots[slot];
  const uint32_t serial = from.serial.load(std::memory_order_acquire);
  if (serial == 0) return std::nullopt;
  FaultCopy copy{from.rule, slot, serial, from.origin, from.added};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.serial.load(std::memory_order_relaxed) != serial) return std::nullopt;
  return copy;
}

std::vector<FaultCopy> board_rules(const FaultBoard& board) {
  std::vector<FaultCopy> all;
  for (uint32_t slot = 0; slot < kMaxFaultRules; ++slot) {
    if (auto copy = board_read(board, slot)) all.push_back(*copy);
  }
  return all;
}

}  // namespace softhca
