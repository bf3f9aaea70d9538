// Carries the library layers' log lines to Open MPI's output stream. The layers log from any
// thread, OPAL's output does not stand that: lines are kept and written by the next progress()
// call.
//
// Thread contract: the sink from any thread; flush_log() from application threads inside
// progress().
#pragma once

#include <atomic>

namespace mend::mca {

// Installs the sink if the BTL framework's verbosity asks for lines (btl_base_verbose >= 1), and
// removes it.
void open_log_bridge();
void close_log_bridge() noexcept;

extern std::atomic<bool> g_log_pending;
void write_pending_log() noexcept;
inline bool log_pending() noexcept { return g_log_pending.load(std::memory_order_relaxed); }
inline void flush_log() noexcept {
  if (log_pending()) [[unlikely]] {
    write_pending_log();
  }
}

// A line of the component's own, from application threads: level as in btl_base_verbose.
void say(int level, const char* text) noexcept;

}  // namespace mend::mca
