// Executes one atomic on memory of this process, as the target's CPU does it for remote requests
// and for self.
//
// Thread contract: any thread; atomic with respect to every other access by this CPU's atomic
// instructions. Pure otherwise.
#pragma once

#include <cstdint>

#include "ops/wire.h"

namespace mend::ops {

// Known operation, width of 4 or 8 bytes, naturally aligned and not null.
constexpr bool amo_is_valid(std::uint8_t op, std::uint8_t width, std::uint64_t address) {
  return op < kAmoOps && (width == 4 || width == 8) && address != 0 && address % width == 0;
}

// Returns the value before the execution (zero-extended for width 4). Min and Max compare signed.
// Precondition: amo_is_valid(), and the memory exists.
std::uint64_t execute_amo(AmoOp op, std::uint8_t width, void* address, std::uint64_t operand,
                          std::uint64_t compare);

}  // namespace mend::ops
