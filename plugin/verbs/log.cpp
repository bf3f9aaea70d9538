#include "plugin/verbs/log.h"

#include <atomic>

namespace mend {
namespace {

std::atomic<LogSink> installed_sink{nullptr};

}  // namespace

void set_log_sink(LogSink sink) { installed_sink.store(sink, std::memory_order_release); }

void log(LogLevel level, std::string_view text) {
  if (const LogSink sink = installed_sink.load(std::memory_order_acquire)) sink(level, text);
}

bool log_wanted() { return installed_sink.load(std::memory_order_relaxed) != nullptr; }

}  // namespace mend
