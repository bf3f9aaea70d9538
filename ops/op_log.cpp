#include "ops/op_log.h"

#include <bit>

namespace mend::ops {

OpLog::OpLog(std::uint32_t capacity) {
  const std::uint64_t slots = std::bit_ceil(std::uint64_t{capacity < 2 ? 2u : capacity});
  ring_ = std::make_unique<LogEntry[]>(slots);
  mask_ = slots - 1;
  limit_ = slots;
}

void OpLog::make_room() {
  if (base() + mask_ + 1 > end_) {
    limit_ = base() + mask_ + 1;
    return;
  }
  const std::uint64_t slots = (mask_ + 1) * 2;
  auto bigger = std::make_unique<LogEntry[]>(slots);
  for (std::uint64_t position = base(); position != end_; ++position) {
    bigger[position & (slots - 1)] = ring_[position & mask_];
  }
  ring_ = std::move(bigger);
  mask_ = slots - 1;
  limit_ = base() + slots;
}

}  // namespace mend::ops
