#include "plugin/mca/log_bridge.h"

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/mca/ompi_compat.h"
#include "plugin/verbs/log.h"

namespace mend::mca {

std::atomic<bool> g_log_pending{false};

namespace {

constexpr std::size_t kMostLines = 1000;  // kept between two progress() calls
constexpr int kDebugVerbosity = 10;

struct Pending {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::size_t dropped = 0;
};
Pending& pending() {
  static Pending the_pending;
  return the_pending;
}

int verbosity() {
  const int stream = opal_btl_base_framework.framework_output;
  return stream < 0 ? 0 : opal_output_get_verbosity(stream);
}
std::atomic<int> g_verbosity{0};

void keep_line(LogLevel level, std::string_view text) {
  const int needed = level == LogLevel::Debug ? kDebugVerbosity : 1;
  if (g_verbosity.load(std::memory_order_relaxed) < needed) return;
  Pending& p = pending();
  const std::lock_guard lock(p.mutex);
  if (p.lines.size() < kMostLines) {
    p.lines.emplace_back(text);
  } else {
    ++p.dropped;
  }
  g_log_pending.store(true, std::memory_order_relaxed);
}

}  // namespace

void open_log_bridge() {
  g_verbosity.store(verbosity());
  if (g_verbosity.load() >= 1) set_log_sink(&keep_line);
}

void close_log_bridge() noexcept {
  set_log_sink(nullptr);
  write_pending_log();
}

void write_pending_log() noexcept {
  Pending& p = pending();
  std::vector<std::string> lines;
  std::size_t dropped = 0;
  {
    const std::lock_guard lock(p.mutex);
    lines.swap(p.lines);
    std::swap(dropped, p.dropped);
    g_log_pending.store(false, std::memory_order_relaxed);
  }
  for (const std::string& line : lines) say(1, line.c_str());
  if (dropped > 0) {
    opal_output_verbose(1, opal_btl_base_framework.framework_output,
                        "mend: %zu more lines were dropped", dropped);
  }
}

void say(int level, const char* text) noexcept {
  opal_output_verbose(level, opal_btl_base_framework.framework_output, "mend: %s", text);
}

}  // namespace mend::mca
