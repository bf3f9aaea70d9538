#include "plugin/conn/ack_timer.h"

#include <algorithm>
#include <utility>

#include "plugin/verbs/bare.h"

namespace mend::conn {
namespace {

constexpr TimeNs kFirstTick = kMillisecond;
// While messages keep arriving somebody is in progress and acknowledges, so it is looked less
// often.
constexpr TimeNs kLongestPause = 4 * kMillisecond;

}  // namespace

void AckTimer::watch(ops::Channel& channel) {
  if constexpr (!kWatches) return;
  const std::lock_guard guard(mutex_);
  watched_.push_back(&channel);
  if (std::exchange(armed_, true)) return;
  pause_ = kFirstTick;
  service_.arm(monotonic_now() + pause_, [this] { tick(); });
}

void AckTimer::tick() {
  std::vector<ops::Channel*> channels;
  {
    const std::lock_guard guard(mutex_);
    channels.swap(watched_);
  }
  bool busy = false;
  std::erase_if(channels, [&](ops::Channel* channel) {
    const ops::AckTick found = channel->ack_tick();
    busy = busy || found == ops::AckTick::Receiving;
    return found == ops::AckTick::Done;
  });
  const std::lock_guard guard(mutex_);
  watched_.insert(watched_.end(), channels.begin(), channels.end());
  armed_ = !watched_.empty();
  if (!armed_) return;
  pause_ = busy ? std::min(2 * pause_, kLongestPause) : kFirstTick;
  service_.arm(monotonic_now() + pause_, [this] { tick(); });
}

}  // namespace mend::conn
