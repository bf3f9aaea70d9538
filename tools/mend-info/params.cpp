#include <fmt/format.h>

#include "plugin/conn/param_table.h"
#include "tools/mend-info/reports.h"

namespace mend::info {
namespace {

template <typename Value>
void print(const char* name, const Value& value, const Value& initial, const std::string& range,
           const char* help) {
  const std::string shown = fmt::format("{}", value);
  fmt::print("btl_mend_{} = {}", name, shown.empty() ? "(empty)" : shown);
  if (value != initial) fmt::print("  (default {})", initial);
  fmt::print("\n    {}{}\n", help, range.empty() ? "" : " (" + range + ")");
}

}  // namespace

void report_params(const conn::Params& params) {
  const conn::Params initial;
  for (const conn::TextParam& p : conn::text_params())
    print(p.name, params.*p.field, initial.*p.field, p.words == nullptr ? "" : p.words, p.help);
  for (const conn::IntParam& p : conn::int_params())
    print(p.name, params.*p.field, initial.*p.field, p.range(), p.help);
  for (const conn::FlagParam& p : conn::flag_params())
    print(p.name, params.*p.field, initial.*p.field, "", p.help);
  for (const conn::SizeParam& p : conn::size_params())
    print(p.name, params.*p.field, initial.*p.field, "", p.help);
  fmt::print(
      "\nThe values are those of this shell's environment (OMPI_MCA_btl_mend_NAME) over the "
      "defaults; mpirun's --mca\nand parameter files come on top. The parameters that every BTL "
      "has: "
      "ompi_info --param btl mend --level 9\n");
}

}  // namespace mend::info
