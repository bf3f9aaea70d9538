#include "softhca/fault/fault_list.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "softhca/fault/errno_name.h"
#include "softhca/fault/fault_names.h"

namespace softhca {

namespace {

std::string_view trim(std::string_view s) {
  const std::size_t from = s.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(" \t\r") - from + 1);
}

// Cuts the text before `sep` off the front of `rest`.
std::string_view next_field(std::string_view& rest, std::string_view sep) {
  const std::size_t end = rest.find_first_of(sep);
  const std::string_view field = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return trim(field);
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::optional<uint64_t> parse_u64(std::string_view text) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> parse_fraction(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = ec == std::errc{} && end == text.data() + text.size();
  if (!whole || !(value >= 0.0) || value > 1.0) return std::nullopt;
  return value;
}

// "200ms", "1.5s", "0"
std::optional<uint64_t> parse_time(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || !(value >= 0.0) || value > 1e9) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  double scale = 0;
  if (unit == "ns") scale = 1;
  if (unit == "us") scale = 1e3;
  if (unit == "ms") scale = 1e6;
  if (unit == "s") scale = 1e9;
  if (scale == 0 && !(unit.empty() && value == 0)) return std::nullopt;
  return static_cast<uint64_t>(value * scale);
}

// A number below kForever, or "all".
std::optional<uint32_t> parse_count(std::string_view text) {
  if (text == "all") return kForever;
  const auto value = parse_u64(text);
  if (!value || *value >= kForever) return std::nullopt;
  return static_cast<uint32_t>(*value);
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "yes") return true;
  if (text == "no") return false;
  return std::nullopt;
}

std::optional<uint8_t> parse_qp_type(std::string_view text) {
  if (text == "rc") return qp_type_bit(IBV_QPT_RC);
  if (text == "uc") return qp_type_bit(IBV_QPT_UC);
  if (text == "ud") return qp_type_bit(IBV_QPT_UD);
  return std::nullopt;
}

std::optional<FaultSide> parse_side(std::string_view text) {
  if (text == "local") return FaultSide::Local;
  if (text == "peer") return FaultSide::Peer;
  if (text == "both") return FaultSide::Both;
  if (text == "random") return FaultSide::Random;
  return std::nullopt;
}

std::optional<uint32_t> parse_opcodes(std::string_view text) {
  uint32_t all = 0;
  while (!text.empty()) {
    const auto mask = opcode_mask(next_field(text, ","));
    if (!mask) return std::nullopt;
    all |= *mask;
  }
  return all == 0 ? std::nullopt : std::optional(all);
}

// "3", "3+" or "3/2"
bool parse_occurrence(std::string_view text, FaultRule& rule) {
  if (text.ends_with('+')) {
    rule.every = 1;
    text.remove_suffix(1);
  } else if (const std::size_t slash = text.find('/'); slash != std::string_view::npos) {
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

// False: no value, or one that the field cannot hold.
template <typename Field, typename Parsed>
bool set(Field& field, const std::optional<Parsed>& value) {
  if (!value) return false;
  field = static_cast<Field>(*value);
  return static_cast<Parsed>(field) == *value;
}

bool set_rank(int32_t& field, std::string_view text) {
  const auto value = parse_u64(text);
  return value && *value <= INT32_MAX && set(field, value);
}

bool set_device(FaultRule& rule, std::string_view name) {
  if (name.empty() || name.size() >= rule.device.size()) return false;
  name.copy(rule.device.data(), name.size());
  return true;
}

bool set_time(FaultRule& rule, uint64_t& field, std::string_view text) {
  rule.timed = true;
  return set(field, parse_time(text));
}

// False: the value is not one for this key.
bool set_key(FaultRule& r, FaultKey key, std::string_view v) {
  switch (key) {
    case kKeyRank:
      return set_rank(r.rank, v);
    case kKeyPeer:
      return set_rank(r.peer, v);
    case kKeyDevice:
      return set_device(r, v);
    case kKeyPort:
      return set(r.port, parse_u64(v)) && r.port != 0;
    case kKeyQp:
      return set(r.qp_types, parse_qp_type(v));
    case kKeyQpn:
      return set(r.qpn, parse_u64(v)) && r.qpn != 0;
    case kKeyOp:
      return set(r.opcodes, parse_opcodes(v));
    case kKeyTo:
      return set(r.to_state, qp_state(v));
    case kKeyN:
      return parse_occurrence(v, r);
    case kKeyP:
      return set(r.probability, parse_fraction(v)) && r.probability > 0.0;
    case kKeyAt:
      return set_time(r, r.at, v);
    case kKeyPeriod:
      return set_time(r, r.period, v) && r.period != 0;
    case kKeyJitter:
      return set(r.jitter, parse_fraction(v));
    case kKeyFrom:
      return set(r.from, parse_time(v));
    case kKeyUntil:
      return set(r.until, parse_time(v));
    case kKeyLimit:
      return set(r.limit, parse_u64(v)) && r.limit != 0;
    case kKeyDelay:
      return set(r.delay, parse_time(v));
    case kKeyFor:
      return set(r.duration, parse_time(v));
    case kKeyTimes:
      return set(r.times, parse_count(v)) && r.times != 0;
    case kKeyWindow:
      return set(r.window, parse_count(v));
    case kKeySide:
      return set(r.side, parse_side(v));
    case kKeyExecuted:
      return set(r.executed, parse_flag(v));
    case kKeyEvent:
      return set(r.event, parse_flag(v));
    case kKeyFlush:
      return set(r.flush, parse_flag(v));
  }
  return false;
}

std::string parse_keys(std::string_view rest, const FaultKindInfo& info, FaultRule& rule) {
  while (!rest.empty()) {
    std::string_view value = next_field(rest, ":");
    const std::string_view whole = value;
    const std::string_view name = next_field(value, "=");
    const FaultKeyInfo* key = nullptr;
    for (const FaultKeyInfo& k : fault_keys()) {
      if (k.name == name && (info.keys & k.bit) != 0) key = &k;
    }
    if (key == nullptr) {
      std::string legal;
      for (const FaultKeyInfo& k : fault_keys()) {
        if ((info.keys & k.bit) != 0) legal += (legal.empty() ? "" : ", ") + std::string(k.name);
      }
      return quoted(name) + " is no key of " + std::string(info.name) + "; known are: " + legal;
    }
    if (!set_key(rule, key->bit, trim(value)))
      return quoted(whole) + " is wrong: " + std::string(key->help);
  }
  return {};
}

// CALL:K:ERRNO or CALL:K:TIME
std::string parse_call(std::string_view& rest, FaultRule& rule) {
  const std::string_view call = next_field(rest, ":");
  const std::string_view occurrence = next_field(rest, ":");
  const std::string_view last = next_field(rest, ":");
  const auto known = fault_call(call);
  if (!known) return "no call " + quoted(call) + "; known are: " + names_of_calls();
  rule.call = *known;
  if (!parse_occurrence(occurrence, rule))
    return quoted(occurrence) + " is not an occurrence such as 3, 3+ or 3/2";
  if (rule.kind == FaultKind::DelayCall) {
    if (!set(rule.delay, parse_time(last))) return quoted(last) + " is no time such as 5ms";
    return {};
  }
  rule.error = errno_from_name(last);
  return rule.error != 0 ? "" : "no errno " + quoted(last);
}

std::string parse_argument(std::string_view& rest, FaultRule& rule) {
  if (rule.kind == FaultKind::FailCall || rule.kind == FaultKind::DelayCall)
    return parse_call(rest, rule);
  const std::string_view name = next_field(rest, ":");
  if (rule.kind == FaultKind::Status) {
    return set(rule.status, wc_status(name)) ? "" : "no completion status " + quoted(name);
  }
  return set(rule.event_type, event_type(name)) ? "" : "no event " + quoted(name);
}

void set_defaults(FaultRule& rule) {
  constexpr uint64_t kDelayNs = 1'000'000;
  rule.delay = kDelayNs;
  switch (rule.kind) {
    case FaultKind::DropAck:
      rule.times = kForever;
      break;
    case FaultKind::KillQp:
    case FaultKind::Ghost:
      rule.qp_types = qp_type_bit(IBV_QPT_RC);
      break;
    case FaultKind::LatePlace:
      rule.opcodes = 1U << IBV_WR_RDMA_WRITE;
      break;
    case FaultKind::Duplicate:
    case FaultKind::Late:
    case FaultKind::Reorder:
      rule.qp_types = qp_type_bit(IBV_QPT_UD);
      break;
    default:
      break;
  }
}

// What the keys mean together.
std::string check(const FaultRule& rule) {
  const int triggers =
      (rule.first != 0 ? 1 : 0) + (rule.probability > 0 ? 1 : 0) + (rule.timed ? 1 : 0);
  if (triggers > 1) return "n, p and times (at, period) exclude each other";
  if (rule.jitter > 0 && rule.period == 0) return "jitter needs a period";
  const uint8_t ud = qp_type_bit(IBV_QPT_UD);
  switch (rule.kind) {
    case FaultKind::Duplicate:
    case FaultKind::Late:
    case FaultKind::Reorder:
      if (rule.qp_types != ud) return "only datagrams (qp=ud) can do that";
      break;
    case FaultKind::DropAck:
    case FaultKind::Ghost:
    case FaultKind::Rnr:
      if (rule.qp_types == ud) return "datagrams are not acknowledged";
      break;
    case FaultKind::LatePlace:
      if (rule.opcodes != 1U << IBV_WR_RDMA_WRITE &&
          rule.opcodes != (1U << IBV_WR_RDMA_WRITE | 1U << IBV_WR_RDMA_WRITE_WITH_IMM))
        return "only RDMA writes can be placed late";
      break;
    default:
      break;
  }
  return {};
}

std::string parse_rule(std::string_view item, uint64_t seed, FaultRule& rule) {
  const std::string_view name = item.substr(0, item.find_first_of("=:"));
  const FaultKindInfo* info = nullptr;
  for (const FaultKindInfo& k : fault_kinds()) {
    if (k.name == trim(name)) info = &k;
  }
  if (info == nullptr)
    return "unknown kind " + quoted(trim(name)) + "; known are: " + names_of_kinds();
  if (item.size() >= rule.text.size()) return "too long";
  item.copy(rule.text.data(), item.size());
  rule.kind = info->kind;
  rule.seed = seed;
  set_defaults(rule);
  std::string_view rest = item.substr(name.size());
  const bool has_argument = rest.starts_with('=');
  if (has_argument == info->argument.empty()) {
    return has_argument ? std::string(info->name) + " takes no argument"
                        : std::string(info->name) + " needs =" + std::string(info->argument);
  }
  if (!rest.empty()) rest.remove_prefix(1);
  std::string error = has_argument ? parse_argument(rest, rule) : "";
  if (error.empty()) error = parse_keys(rest, *info, rule);
  return error.empty() ? check(rule) : error;
}

std::string parse_item(std::string_view item, uint64_t& seed, FaultList& list) {
  if (item.starts_with("seed=")) {
    const auto value = parse_u64(trim(item.substr(5)));
    if (!value) return "a seed is a number";
    seed = *value;
    return {};
  }
  if (list.size() == kMaxFaultRules)
    return "more than " + std::to_string(kMaxFaultRules) + " rules";
  return parse_rule(item, seed, list.emplace_back());
}

}  // namespace

tl::expected<FaultList, FaultError> parse_faults(std::string_view text) {
  FaultList list;
  uint64_t seed = 1;
  while (!text.empty()) {
    std::string_view line = next_field(text, "\n");
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view item = next_field(line, ";");
      if (item.empty()) continue;
      std::string error = parse_item(item, seed, list);
      if (!error.empty())
        return tl::make_unexpected(FaultError{std::string(item), std::move(error)});
    }
  }
  return list;
}

tl::expected<FaultList, FaultError> load_faults_from_env() {
  const char* value = std::getenv("SOFTHCA_FAULTS");
  std::string text = value == nullptr ? "" : value;
  // Every rule has a '=' or ':' or is the name of a kind; anything else is a file.
  std::ifstream in(text);
  if (!text.empty() && in) {
    text.assign(std::istreambuf_iterator<char>(in), {});
  } else if (text.find('/') != std::string::npos && text.find('=') == std::string::npos) {
    return tl::make_unexpected(FaultError{text, "cannot read this file"});
  }
  return parse_faults(text);
}

uint32_t origin_of(const FaultList& list) noexcept {
  uint32_t h = 2166136261U;
  const auto mix = [&h](uint64_t byte) { h = (h ^ static_cast<uint32_t>(byte)) * 16777619U; };
  for (const FaultRule& rule : list) {
    mix(rule.seed);
    for (const char c : rule.written()) mix(static_cast<unsigned char>(c));
    mix(';');
  }
  return h == 0 ? 1 : h;
}

int32_t rank_from_env() noexcept {
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    const char* value = std::getenv(name);
    const auto rank = value == nullptr ? std::nullopt : parse_u64(value);
    if (rank && *rank <= INT32_MAX) return static_cast<int32_t>(*rank);
  }
  return kAnyRank;
}

}  // namespace softhca
