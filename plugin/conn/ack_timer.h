// AckTimer: writes the acknowledgements that an application which stopped calling MPI still owes,
// so that its peers' logs and windows drain while it computes (docs/protocol.md 1.7).
//
// Thread contract: watch() from any thread, with no lock held; the rest runs on the service thread.
// Channels outlive the service. Invariant: the timer is armed exactly while a channel is watched,
// and a channel is watched from its first receive until it has been silent for some ticks; in
// between, receiving costs nothing.
#pragma once

#include <mutex>
#include <vector>

#include "ops/channel.h"
#include "plugin/conn/clock.h"
#include "plugin/conn/host.h"

namespace mend::conn {

class AckTimer {
 public:
  explicit AckTimer(Service& service) : service_(service) {}
  ~AckTimer() = default;
  AckTimer(const AckTimer&) = delete;
  AckTimer& operator=(const AckTimer&) = delete;

  void watch(ops::Channel& channel);

 private:
  void tick();

  Service& service_;
  std::mutex mutex_;  // guards what follows
  std::vector<ops::Channel*> watched_;
  bool armed_ = false;
  TimeNs pause_ = kMillisecond;  // to the next tick
};

}  // namespace mend::conn
