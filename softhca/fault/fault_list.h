// The fault schedule as data: rules, a seed and hit counters. Today's rules fail verbs calls; kinds
// that act on work requests, ports and queue pairs are further FaultKinds with their own on_...()
// question. A FaultTable is trivially copyable and holds no pointer, so it can live in one process
// or in the fabric segment where softhcactl reads it. The engine keeps a `FaultTable*` that is null
// while there is no schedule: a device without faults pays that one test. Threads: the questions
// may be asked from any thread (counters are atomic); loading may not overlap them.
//
// Grammar (SOFTHCA_FAULTS, a file name or the text itself): items separated by ';' or newlines, '#'
// comments.
//   seed=N
//   fail=CALL:K:ERRNO[:rank=R]     K = "3" the third call of a process, "3+" that and all later,
//                                  "3/2" the third, fifth, seventh...
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace softhca {

// The verbs calls that a rule can fail.
enum class FaultCall : uint8_t {
  AllocPd,
  RegMr,
  CreateCompChannel,
  CreateCq,
  CreateSrq,
  ModifySrq,
  CreateQp,
  ModifyQp,
  QueryQp,
  CreateAh,
  kCount,
};
std::string_view fault_call_name(FaultCall call) noexcept;

enum class FaultKind : uint8_t { None, FailCall };

inline constexpr int32_t kAnyRank = -1;

struct FaultRule {
  FaultKind kind = FaultKind::None;
  FaultCall call = FaultCall::kCount;
  int32_t rank = kAnyRank;  // only in the process with this PMIX_RANK / OMPI_COMM_WORLD_RANK
  int32_t error = 0;        // errno that the call returns
  uint64_t first = 0;       // the first occurrence that is hit, counted from 1
  uint64_t every = 0;       // 0: only that one; n: that and every n-th after it

  constexpr bool hits(uint64_t occurrence) const noexcept {
    if (occurrence < first) return false;
    return every == 0 ? occurrence == first : (occurrence - first) % every == 0;
  }
};

inline constexpr uint32_t kMaxFaultRules = 64;

struct FaultTable {
  uint64_t seed = 1;
  uint32_t rule_count = 0;
  int32_t own_rank = kAnyRank;
  std::array<FaultRule, kMaxFaultRules> rules{};
  std::array<uint64_t, kMaxFaultRules> rule_hits{};
  std::array<uint64_t, static_cast<size_t>(FaultCall::kCount)> calls{};

  // Counts the call; errno if a rule fails it, else 0.
  int on_call(FaultCall call) noexcept;
  uint64_t hit_count(uint32_t rule) noexcept;
};

// Asked in the engine as `fault_on_call(table_or_null, FaultCall::CreateQp)`.
inline int fault_on_call(FaultTable* table, FaultCall call) noexcept {
  return table == nullptr ? 0 : table->on_call(call);
}

struct FaultError {
  std::string item;  // the item as written
  std::string msg;
  std::string str() const { return "SOFTHCA_FAULTS: '" + item + "': " + msg; }
};

tl::expected<FaultTable, FaultError> parse_faults(std::string_view text);
// SOFTHCA_FAULTS: the text itself, or the file it names; an empty table if unset. Sets own_rank.
tl::expected<FaultTable, FaultError> load_faults_from_env();

}  // namespace softhca
