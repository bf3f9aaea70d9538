#include "tools/mend-info/environment.h"

#include <fmt/format.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "plugin/conn/param_table.h"

namespace mend::info {
namespace {

constexpr const char* kPrefix = "OMPI_MCA_btl_mend_";

const char* value_of(const char* name) {
  return std::getenv((std::string(kPrefix) + name).c_str());
}

tl::unexpected<Error> refuse(const std::string& name, const std::string& value,
                             const std::string& legal) {
  return fail(EINVAL, name, fmt::format("{}{} is \"{}\"; legal: {}", kPrefix, name, value, legal));
}

// As Open MPI reads numbers: any base of C, and k, m or g for the powers of 1024.
std::optional<long long> number_of(const char* text) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text, &end, 0);
  if (end == text || errno != 0) return std::nullopt;
  const std::string unit(end);
  constexpr long long kKilo = 1024;
  if (unit.empty()) return number;
  const long long factor = unit == "k" || unit == "K"   ? kKilo
                           : unit == "m" || unit == "M" ? kKilo * kKilo
                           : unit == "g" || unit == "G" ? kKilo * kKilo * kKilo
                                                        : 0;
  if (factor == 0 || std::abs(number) > INT64_MAX / factor) return std::nullopt;
  return number * factor;
}

// Open MPI's words for yes and no.
std::optional<bool> flag_of(const std::string& text) {
  for (const char* yes : {"true", "t", "enabled", "yes", "1"})
    if (text == yes) return true;
  for (const char* no : {"false", "f", "disabled", "no", "0"})
    if (text == no) return false;
  return std::nullopt;
}

Result<void> take_numbers(conn::Params& params) {
  for (const conn::IntParam& p : conn::int_params()) {
    const char* value = value_of(p.name);
    if (value == nullptr) continue;
    const auto number = number_of(value);
    if (!number || *number < INT_MIN || *number > INT_MAX) return refuse(p.name, value, p.range());
    params.*p.field = static_cast<int>(*number);
  }
  for (const conn::SizeParam& p : conn::size_params()) {
    const char* value = value_of(p.name);
    if (value == nullptr) continue;
    const auto number = number_of(value);
    if (!number || *number < 0) return refuse(p.name, value, "a number of bytes");
    params.*p.field = static_cast<std::uint64_t>(*number);
  }
  return {};
}

Result<void> take_words(conn::Params& params) {
  for (const conn::TextParam& p : conn::text_params())
    if (const char* value = value_of(p.name); value != nullptr) params.*p.field = value;
  for (const conn::FlagParam& p : conn::flag_params()) {
    const char* value = value_of(p.name);
    if (value == nullptr) continue;
    const auto flag = flag_of(value);
    if (!flag) return refuse(p.name, value, "true or false");
    params.*p.field = *flag;
  }
  if (params.verbs_library.empty()) params.verbs_library = "auto";
  return {};
}

}  // namespace

Result<conn::Params> params_of_environment() {
  conn::Params params;
  if (auto taken = take_numbers(params); !taken) return tl::unexpected(taken.error());
  if (auto taken = take_words(params); !taken) return tl::unexpected(taken.error());
  if (const auto wrong = conn::first_illegal(params))
    return refuse(wrong->name, wrong->value, wrong->legal);
  return params;
}

}  // namespace mend::info
