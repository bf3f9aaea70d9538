// Which verbs library the tests of a whole device load: the embedded one, or the one that
// MEND_TEST_VERBS_LIBRARY names (libibverbs.so.1 in a virtual machine with soft-RoCE).
#pragma once

#include <chrono>
#include <cstdlib>

namespace mend::test {

inline const char* device_library(const char* embedded) {
  const char* named = std::getenv("MEND_TEST_VERBS_LIBRARY");
  return named != nullptr ? named : embedded;
}

inline bool is_embedded() { return std::getenv("MEND_TEST_VERBS_LIBRARY") == nullptr; }

// Until what was sent has arrived. The embedded device executes a request when it is posted.
inline std::chrono::milliseconds time_to_arrive() {
  return std::chrono::milliseconds(is_embedded() ? 0 : 50);
}

}  // namespace mend::test
