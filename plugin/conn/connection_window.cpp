// A connection's window while its peer is short of receive buffers, on the service thread
// (docs/protocol.md 1.7).
#include "plugin/conn/connection.h"
#include "plugin/conn/control_plane.h"

namespace mend::conn {
namespace {

// A peer that is still short says so with every heartbeat; its word that it is not may be lost.
constexpr TimeNs kNarrowFor = 2 * kSecond;

}  // namespace

// Out of turn: the machine takes no notice of it, and the answer is a sign of life.
void Connection::tell_free_buffers() {
  if (!in_use()) return;
  Action action;
  action.type = ActionType::SendHb;
  action.epoch = fsm_.epoch;
  send(action);
}

// What a heartbeat said of the peer's buffers. It is believed for a while.
void Connection::fit_window(std::uint32_t free_buffers) {
  const bool was_narrow = narrow_until_ != kNever;
  const bool narrow = free_buffers < static_cast<std::uint32_t>(plane_.params().window);
  if (!narrow && !was_narrow) return;
  channel_.limit_window(free_buffers);
  narrow_until_ = narrow ? after(monotonic_now(), kNarrowFor) : kNever;
  if (narrow && !was_narrow) stats_.slowed.fetch_add(1, std::memory_order_relaxed);
  if (narrow) watch_window();
}

void Connection::watch_window() {
  if (watching_window_) return;
  watching_window_ = true;
  plane_.service().arm(narrow_until_, [this] {
    watching_window_ = false;
    if (narrow_until_ == kNever) return;
    if (monotonic_now() < narrow_until_) return watch_window();
    fit_window(kPlenty);
  });
}

}  // namespace mend::conn
