#include "ops/op_log.h"

#include <bit>

namespace mend::ops {

OpLog::OpLog(std::uint32_t capacity) {
  const std::uint64_t slots = std::bit_ceil(std::uint64_t{capacity < 2 ? 2u : capacity});
  ring_ = std::make_unique<LogEntry[]>(slots);
  mask_ = slots - 1;
}

void OpLog::grow() {
  const std::uint64_t slots = (mask_ + 1) * 2;
  auto bigger = std::make_unique<LogEntry[]>(slots);
  for (std::uint64_t position = base(); position != end_; ++position) {
    bigger[position & (slots - 1)] = ring_[position & mask_];
  }
  ring_ = std::move(bigger);
  mask_ = slots - 1;
}

}  // namespace mend::ops
