#include "plugin/verbs/clock.h"

#include <atomic>
#include <thread>

namespace mend {
namespace {

class MachineClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  void pause(std::chrono::nanoseconds time) const override {
    if (time == std::chrono::nanoseconds::zero())
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(time);
  }
};

const MachineClock kMachine;
std::atomic<const Clock*> current{&kMachine};

}  // namespace

const Clock& process_clock() { return *current.load(std::memory_order_acquire); }

void replace_clock(const Clock* clock) {
  current.store(clock != nullptr ? clock : &kMachine, std::memory_order_release);
}

}  // namespace mend
