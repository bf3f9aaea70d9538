// Host: what the connection layer runs on besides devices and the clock: its two executors and a
// source of randomness. On a machine these are threads; a simulation hands in queues that it pumps
// itself, in an order of its own choosing.
//
// Thread contract: Service::post and arm, and WorkQueue::submit, from any thread; the rest from
// set-up code. Handlers of one Service never run at the same time as each other, nor do jobs of one
// WorkQueue. Invariant: after stop() returned nothing of that executor runs, and nothing will.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plugin/conn/backoff.h"
#include "plugin/verbs/error.h"

namespace mend::conn {

// Descriptors, timers and short tasks; nothing here may block.
class Service {
 public:
  using Task = std::function<void()>;

  virtual ~Service() = default;
  // Calls `on_readable` whenever fd is readable. The fd stays the caller's.
  virtual Result<void> watch(int fd, Task on_readable) = 0;
  virtual void unwatch(int fd) = 0;  // returns when its handler is not running any more
  virtual void post(Task task) = 0;  // runs once, soon
  // Runs once, at or soon after the deadline (monotonic_now() time).
  virtual void arm(TimeNs deadline, Task task) = 0;
  virtual void stop() = 0;
};

// Jobs that may block (create_qp, create_ah, modify_qp, reg_mr, the fence), one after the other, in
// order.
class WorkQueue {
 public:
  virtual ~WorkQueue() = default;
  virtual void submit(std::function<void()> job) = 0;
  virtual void stop() = 0;  // lets the running job end and drops the rest
};

class Host {
 public:
  virtual ~Host() = default;
  virtual Result<std::unique_ptr<Service>> make_service() = 0;
  virtual std::unique_ptr<WorkQueue> make_worker() = 0;
  virtual std::uint64_t random_seed() = 0;
};

// Threads, and the kernel's randomness.
Host& this_machine();

}  // namespace mend::conn
