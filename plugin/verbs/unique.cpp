#include "plugin/verbs/unique.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "plugin/verbs/log.h"

namespace mend::verbs {
namespace {

std::atomic<std::uint64_t> failure_count{0};

}  // namespace

void report_destroy_failure(const char* what, int code) {
  failure_count.fetch_add(1, std::memory_order_relaxed);
  const int error = code > 0 ? code : errno;
  if (log_wanted()) {
    log(LogLevel::Warn, fmt::format("destroying a {} failed: {}", what, std::strerror(error)));
  }
}

std::uint64_t destroy_failures() { return failure_count.load(std::memory_order_relaxed); }

}  // namespace mend::verbs
