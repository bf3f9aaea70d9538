// A parsed fault schedule. Pure; the engine's Injector (softhca/engine/injector.h) makes it happen.
//
// Grammar (SOFTHCA_FAULTS: a file name or the text itself; softhcactl fault add): rules separated
// by ';' or newlines, '#' comments.
//   seed=N                                  for the rules behind it
//   KIND[=ARGUMENT][:KEY=VALUE]...          kinds and keys: fault_names.cpp, docs/softhca.md
//   fail=CALL:K:ERRNO[:KEY=VALUE]...        delay=CALL:K:TIME[:KEY=VALUE]...
// K and n: "3" the third of a process, "3+" that and all later, "3/2" the third, fifth, seventh...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "softhca/fault/fault_rule.h"

namespace softhca {

using FaultList = std::vector<FaultRule>;

struct FaultError {
  std::string item;  // the rule as written
  std::string msg;
  std::string str() const { return "SOFTHCA_FAULTS: '" + item + "': " + msg; }
};

// At most kMaxFaultRules rules.
tl::expected<FaultList, FaultError> parse_faults(std::string_view text);
// SOFTHCA_FAULTS: the text itself, or the file it names; an empty list if unset.
tl::expected<FaultList, FaultError> load_faults_from_env();

// Identifies a schedule by its text, never 0: processes that were given the same one share its
// rules and counters.
uint32_t origin_of(const FaultList& list) noexcept;

// PMIX_RANK, OMPI_COMM_WORLD_RANK or SLURM_PROCID; kAnyRank without.
int32_t rank_from_env() noexcept;

}  // namespace softhca
