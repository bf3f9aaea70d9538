#include "softhca/fault/fault_list.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <type_traits>

#include "softhca/fault/errno_name.h"

namespace softhca {

static_assert(std::is_trivially_copyable_v<FaultTable>);

namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultCall::kCount)> kCallNames{
    "alloc_pd",   "reg_mr",    "create_comp_channel", "create_cq", "create_srq",
    "modify_srq", "create_qp", "modify_qp",           "query_qp",  "create_ah"};

std::string_view trim(std::string_view s) {
  const size_t from = s.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(" \t\r") - from + 1);
}

// Cuts the text before `sep` off the front of `rest`.
std::string_view next_field(std::string_view& rest, std::string_view sep) {
  const size_t end = rest.find_first_of(sep);
  const std::string_view field = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return trim(field);
}

std::optional<uint64_t> parse_u64(std::string_view text) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<FaultCall> parse_call(std::string_view name) {
  for (size_t i = 0; i < kCallNames.size(); ++i)
    if (kCallNames[i] == name) return static_cast<FaultCall>(i);
  return std::nullopt;
}

std::string legal_calls() {
  std::string all;
  for (const std::string_view name : kCallNames) {
    all += all.empty() ? "" : ", ";
    all += name;
  }
  return all;
}

// "3", "3+" or "3/2"
bool parse_occurrence(std::string_view text, FaultRule& rule) {
  if (text.ends_with('+')) {
    rule.every = 1;
    text.remove_suffix(1);
  } else if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    const auto every = parse_u64(text.substr(slash + 1));
    if (!every || *every == 0) return false;
    rule.every = *every;
    text = text.substr(0, slash);
  }
  const auto first = parse_u64(text);
  if (!first || *first == 0) return false;
  rule.first = *first;
  return true;
}

std::string parse_rank(std::string_view text, FaultRule& rule) {
  if (text.empty()) return {};
  const auto rank = text.starts_with("rank=") ? parse_u64(text.substr(5)) : std::nullopt;
  if (!rank || *rank > INT32_MAX) return "expected rank=R, got '" + std::string(text) + "'";
  rule.rank = static_cast<int32_t>(*rank);
  return {};
}

std::string parse_fail(std::string_view args, FaultRule& rule) {
  const std::string_view call = next_field(args, ":");
  const std::string_view occurrence = next_field(args, ":");
  const std::string_view error = next_field(args, ":");
  const auto known = parse_call(call);
  if (!known) return "no call '" + std::string(call) + "'; known are: " + legal_calls();
  rule.kind = FaultKind::FailCall;
  rule.call = *known;
  if (!parse_occurrence(occurrence, rule))
    return "'" + std::string(occurrence) + "' is not an occurrence such as 3, 3+ or 3/2";
  rule.error = errno_from_name(error);
  if (rule.error == 0) return "no errno '" + std::string(error) + "'";
  return parse_rank(trim(args), rule);
}

std::string parse_item(std::string_view item, FaultTable& table) {
  std::string_view args = item;
  const std::string_view kind = next_field(args, "=");
  if (kind == "seed") {
    const auto seed = parse_u64(trim(args));
    if (!seed) return "a seed is a number";
    table.seed = *seed;
    return {};
  }
  if (kind != "fail") return "unknown kind '" + std::string(kind) + "'; known are: seed, fail";
  if (table.rule_count == kMaxFaultRules)
    return "more than " + std::to_string(kMaxFaultRules) + " rules";
  return parse_fail(args, table.rules[table.rule_count++]);
}

int32_t rank_from_env() {
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    const char* value = std::getenv(name);
    const auto rank = value == nullptr ? std::nullopt : parse_u64(value);
    if (rank && *rank <= INT32_MAX) return static_cast<int32_t>(*rank);
  }
  return kAnyRank;
}

}  // namespace

std::string_view fault_call_name(FaultCall call) noexcept {
  const auto i = static_cast<size_t>(call);
  return i < kCallNames.size() ? kCallNames[i] : "?";
}

int FaultTable::on_call(FaultCall call) noexcept {
  std::atomic_ref<uint64_t> counter(calls[static_cast<size_t>(call)]);
  const uint64_t occurrence = counter.fetch_add(1, std::memory_order_relaxed) + 1;
  for (uint32_t i = 0; i < rule_count; ++i) {
    const FaultRule& rule = rules[i];
    if (rule.kind != FaultKind::FailCall || rule.call != call || !rule.hits(occurrence)) continue;
    if (rule.rank != kAnyRank && rule.rank != own_rank) continue;
    std::atomic_ref<uint64_t>(rule_hits[i]).fetch_add(1, std::memory_order_relaxed);
    return rule.error;
  }
  return 0;
}

uint64_t FaultTable::hit_count(uint32_t rule) noexcept {
  return std::atomic_ref<uint64_t>(rule_hits[rule]).load(std::memory_order_relaxed);
}

tl::expected<FaultTable, FaultError> parse_faults(std::string_view text) {
  FaultTable table;
  while (!text.empty()) {
    std::string_view line = next_field(text, "\n");
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view item = next_field(line, ";");
      if (item.empty()) continue;
      std::string error = parse_item(item, table);
      if (!error.empty())
        return tl::make_unexpected(FaultError{std::string(item), std::move(error)});
    }
  }
  return table;
}

tl::expected<FaultTable, FaultError> load_faults_from_env() {
  const char* value = std::getenv("SOFTHCA_FAULTS");
  std::string text = value == nullptr ? "" : value;
  if (!text.empty() && text.find('=') == std::string::npos) {
    std::ifstream in(text);
    if (!in) return tl::make_unexpected(FaultError{text, "cannot read this file"});
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  auto table = parse_faults(text);
  if (table) table->own_rank = rank_from_env();
  return table;
}

}  // namespace softhca
