// The device's own thread in a process: re-drives work requests that wait for a timer, notices the
// death of peers at once (pidfd) and cleans up after them, and looks at the process' objects when a
// peer asks for it. Sleeps until the earliest deadline or an event; all signals blocked; holds no
// lock while it sleeps. It runs while the process has a device open: what the process' owner does
// after closing its last one, it does alone. Shared mode only: in-process mode is driven by the
// simulation.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "softhca/engine/wake.h"

namespace softhca {

class Process;

class DeviceThread {
 public:
  // At rest: nobody sends it wake-ups, since nobody would take them. nullptr if there is no
  // descriptor or no memory for it.
  static std::unique_ptr<DeviceThread> create(Process& process);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Runs, if it did not, and looks at everything once. If no thread can be had the engine works
  // from poll and post alone.
  void run_on();
  // Joins it, if it ran; whom it watches is kept, and is looked at when it runs on. From any thread
  // but itself.
  void rest();

  // Sweeps (slot, gen) as soon as `pid` has died.
  void watch(uint32_t slot, uint32_t gen, pid_t pid);

 private:
  struct Watched {
    uint32_t slot = 0;
    uint32_t gen = 0;
    int pidfd = -1;
  };

  explicit DeviceThread(Process& process) : process_(process) {}
  void loop();
  void sleep_until_event();
  void handle_deaths();

  Process& process_;
  WakeSocket socket_;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;  // eventfd: a wake-up that cannot be lost
  std::mutex mutex_;
  std::unordered_map<uint64_t, Watched> watched_;  // by (gen, slot)
  bool poll_liveness_ = false;  // a pidfd could not be had: look at the locks now and then
  std::atomic<bool> stop_{false};
  std::mutex life_mutex_;  // held by whoever starts or joins
  std::thread thread_;     // guarded by life_mutex_
};

}  // namespace softhca
