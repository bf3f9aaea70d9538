// The device's own thread in a process: re-drives work requests that wait for a timer, notices the
// death of peers at once (pidfd) and cleans up after them, and looks at the process' objects when a
// peer asks for it. Sleeps until the earliest deadline or an event; all signals blocked; holds no
// lock while it sleeps. Shared mode only: in-process mode is driven by the simulation.
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
  // nullptr if no thread can be had (the engine then works from poll and post alone).
  static std::unique_ptr<DeviceThread> start(Process& process);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Sweeps (slot, gen) as soon as `pid` has died.
  void watch(uint32_t slot, uint32_t gen, pid_t pid);

 private:
  struct Watched {
    uint32_t slot = 0;
    uint32_t gen = 0;
    int pidfd = -1;
  };

  explicit DeviceThread(Process& process) : process_(process) {}
  void run();
  void sleep_until_event();
  void handle_deaths();

  Process& process_;
  WakeSocket socket_;
  int epoll_fd_ = -1;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Watched> watched_;  // by (gen, slot)
  bool poll_liveness_ = false;  // a pidfd could not be had: look at the locks now and then
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace softhca
