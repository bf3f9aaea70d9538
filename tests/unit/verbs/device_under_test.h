// Which verbs library the tests of a whole device load: the embedded one, or the one that
// MEND_TEST_VERBS_LIBRARY names (libibverbs.so.1 in a virtual machine with soft-RoCE).
#pragma once

#include <chrono>
#include <cstdlib>

namespace mend::test {

inline const char* device_library() {
  const char* named = std::getenv("MEND_TEST_VERBS_LIBRARY");
  return named != nullptr ? named : SOFTHCA_LIBRARY;
}

// Until what was sent has arrived. The embedded device executes a request when it is posted.
inline std::chrono::milliseconds time_to_arrive() {
  return std::chrono::milliseconds(std::getenv("MEND_TEST_VERBS_LIBRARY") != nullptr ? 50 : 0);
}

}  // namespace mend::test
