// Which rule of docs/protocol.md this build leaves out: none, but for the test builds of tests/sim
// that show, rule by rule, that its absence would be noticed (MEND_MUTATE=F1 and so on, for single
// files of theirs).
//
// Thread contract: constants. Invariant: nothing that is installed is compiled with MEND_MUTATE.
#pragma once

#include <cstdint>

namespace mend {

enum class Rule : std::uint8_t { None, F1, F2, F3, F4, F5, F6, P2, I5 };

#ifdef MEND_MUTATE
constexpr Rule kMissingRule = Rule::MEND_MUTATE;
#else
constexpr Rule kMissingRule = Rule::None;
#endif

constexpr bool missing(Rule rule) { return rule == kMissingRule; }

}  // namespace mend
