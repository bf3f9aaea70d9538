#include "tools/mend-info/environment.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugin/conn/param_table.h"

namespace mend::info {
namespace {

constexpr const char* kPrefix = "OMPI_MCA_btl_mend_";

const char* value_of(const char* name) {
  return std::getenv((std::string(kPrefix) + name).c_str());
}

tl::unexpected<Error> refuse(const char* name, const char* value, const std::string& legal) {
  return fail(EINVAL, name, fmt::format("{}{} is \"{}\"; legal: {}", kPrefix, name, value, legal));
}

Result<void> take_int(const conn::IntParam& p, conn::Params& params) {
  const char* value = value_of(p.name);
  if (value == nullptr) return {};
  int number = 0;
  const char* end = value + std::strlen(value);
  const auto [at, error] = std::from_chars(value, end, number);
  if (error != std::errc{} || at != end || !p.legal(number))
    return refuse(p.name, value, p.range());
  params.*p.field = number;
  return {};
}

Result<void> take_text(const conn::TextParam& p, conn::Params& params) {
  const char* value = value_of(p.name);
  if (value == nullptr) return {};
  if (!p.legal(value)) return refuse(p.name, value, p.words);
  params.*p.field = value;
  return {};
}

}  // namespace

Result<conn::Params> params_of_environment() {
  conn::Params params;
  for (const conn::IntParam& p : conn::int_params())
    if (auto taken = take_int(p, params); !taken) return tl::unexpected(taken.error());
  for (const conn::TextParam& p : conn::text_params())
    if (auto taken = take_text(p, params); !taken) return tl::unexpected(taken.error());
  if (params.verbs_library.empty()) params.verbs_library = "auto";
  return params;
}

}  // namespace mend::info
