// ServiceThread: the Service (host.h) of a machine: the one thread of this process that owns the
// control channel, async events and every connection's state machine. It runs on ucs_async
// (descriptors) with one timerfd for all deadlines, and never blocks.
//
// Thread contract: post() and arm() from any thread; watch/unwatch from set-up code; handlers run
// on the service thread only. After stop() returned no handler runs and none will.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plugin/conn/clock.h"
#include "plugin/conn/host.h"
#include "plugin/verbs/error.h"

namespace mend::conn {

class ServiceThread final : public Service {
 public:
  // libucs installs handlers for fatal signals when it is loaded; an MPI application's handlers are
  // its own. Puts back what was there, unless the user asks for the handlers through UCX's own
  // variables. Early, once.
  static void leave_signals_alone();

  // Fails with the errno of timerfd/eventfd or when ucs cannot start its thread.
  static Result<std::unique_ptr<ServiceThread>> create();
  ~ServiceThread() override;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  Result<void> watch(int fd, Task on_readable) override;
  void unwatch(int fd) override;
  void post(Task task) override;
  void arm(TimeNs deadline, Task task) override;
  void stop() override;

 private:
  ServiceThread(int wake_fd, int timer_fd);
  struct Watch {
    int fd;
    Task on_readable;
  };
  static void on_event(int fd, unsigned events, void* arg);
  void run_posted();
  void run_due();
  void set_timer_locked();

  const int wake_fd_;
  const int timer_fd_;
  bool stopped_ = false;
  std::mutex mutex_;  // guards posted_, timers_, armed_for_
  std::vector<Task> posted_;
  std::multimap<TimeNs, Task> timers_;
  TimeNs armed_for_ = kNever;
  std::map<int, std::unique_ptr<Watch>> watches_;  // set-up code and destructor only
};

}  // namespace mend::conn
