// The modex blob: parse_modex() must survive anything, and what it accepts must survive the wire.
#include <span>

#include "plugin/conn/modex.h"
#include "tests/fuzz/check.h"

using namespace mend::conn;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto info = parse_modex(std::span(reinterpret_cast<const std::byte*>(data), size));
  if (!info) return 0;
  mend::fuzz::check(!info->rails.empty() && info->rails.size() <= mend::kMaxRails, "1..8 rails");
  const auto again = parse_modex(encode_modex(*info));
  mend::fuzz::check(again.has_value() && *again == *info, "survives the wire");
  return 0;
}
