// OpFault: the one operation that a completion with error names, as far as the log knows it; what a
// repair and a message to a person need. Plain data.
#pragma once

#include <cstdint>

#include "ops/op_log.h"
#include "ops/request.h"
#include "plugin/verbs/types.h"

namespace mend::ops {

struct OpFault {
  bool found = false;     // false: no operation of the log (an acknowledgement, a receive)
  bool repaired = false;  // it had its repair before
  LogKind kind = LogKind::Send;
  std::uint64_t position = 0;  // in the log
  std::uint64_t local = 0;
  std::uint32_t bytes = 0;
  Lkey lkey;                 // of the lane's rail; 0: inline
  std::uint64_t remote = 0;  // puts and gets
  Rkey rkey;
  std::uint32_t reg_id = 0;      // of the peer's region, 0: unknown
  std::uint32_t generation = 0;  // of the keys that failed
};

}  // namespace mend::ops
