// The orderly end: everything submitted is delivered, every connection says goodbye, bounded in
// time.
#include <algorithm>

#include "plugin/conn/clock.h"
#include "plugin/conn/transport_impl.h"
#include "plugin/verbs/log.h"

namespace mend::conn {
namespace {

// After the last acknowledgement: BYE, its answer, the fence. A peer that has gone already answers
// nothing; the machine stops waiting after a second.
constexpr TimeNs kGoodbyeLimit = 4 * kSecond;

}  // namespace

void Transport::close() {
  Impl& impl = *impl_;
  const auto progress_all = [&] {
    for (const RailUnit& unit : impl.rails) progress(unit.rail->id());
  };
  const auto until = [&](TimeNs deadline, auto done) {
    while (!done()) {
      if (monotonic_now() > deadline) return false;
      progress_all();
      process_clock().pause(std::chrono::nanoseconds::zero());
    }
    return true;
  };
  const auto lost = [](const Connection& connection) {
    return connection.peer().gave_up.load() || connection.beyond_help();
  };

  const TimeNs patience = impl.params.max_outage_s == 0
                              ? kNever / 2
                              : static_cast<TimeNs>(impl.params.max_outage_s) * kSecond;
  const bool flushed_all = until(monotonic_now() + patience, [&] {
    bool quiet = true;
    impl.plane->each_connection([&](const Connection& connection) {
      // A peer that said goodbye does not want what is left.
      quiet = quiet && (lost(connection) || connection.closed() || connection.channel().quiet());
    });
    return quiet;
  });
  if (!flushed_all)
    log(LogLevel::Warn, "closing: messages were still unacknowledged when max_outage_s had passed");

  impl.plane->each_connection([](Connection& connection) { connection.close(); });
  const bool all_closed = until(monotonic_now() + kGoodbyeLimit, [&] {
    bool closed = true;
    impl.plane->each_connection([&](const Connection& connection) {
      closed = closed && (connection.closed() || lost(connection));
    });
    return closed;
  });
  if (!all_closed) log(LogLevel::Info, "closing: not every connection ended in good order");
}

}  // namespace mend::conn
