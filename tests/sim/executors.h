// The executors of a simulated process (plugin/conn/host.h): queues that the world pumps one item
// at a time, and a worker whose jobs run on a fiber so that a fence that waits lets everybody else
// go on.
//
// Thread contract: one thread. Invariant: what runs next depends on nothing but what was queued and
// on the random numbers handed in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "plugin/conn/host.h"
#include "tests/sim/fiber.h"

namespace mend::sim {

using conn::kNever;
using conn::TimeNs;
using Random = std::mt19937_64;

class SimService final : public conn::Service {
 public:
  Result<void> watch(int fd, Task on_readable) override;
  void unwatch(int fd) override;
  void post(Task task) override;
  void arm(TimeNs deadline, Task task) override;
  void stop() override;

  void mark_readable(int fd) { readable_.push_back(fd); }  // its handler runs once more

  // Runs one posted task, due timer or readable descriptor; false: there is none.
  bool run_one(TimeNs now, Random& random);
  TimeNs next_timer() const;
  std::uint64_t timers_run() const { return timers_run_; }

 private:
  bool run_timer(TimeNs now);
  bool run_posted();
  bool run_readable(Random& random);

  bool stopped_ = false;
  std::deque<Task> posted_;
  std::multimap<TimeNs, Task> timers_;
  std::map<int, Task> watches_;
  std::vector<int> readable_;
  std::uint64_t timers_run_ = 0;
};

class SimWorker final : public conn::WorkQueue {
 public:
  SimWorker();
  void submit(std::function<void()> job) override;
  void stop() override;

  bool run(TimeNs now);      // starts the next job or goes on with the present one; false: neither
  TimeNs next_wake() const;  // kNever: nothing to do; 0: at once

  // Called while stop() lets a job end, to make time pass.
  std::function<void()> let_time_pass;

 private:
  void loop();

  std::deque<std::function<void()>> jobs_;
  bool busy_ = false;
  bool stopped_ = false;
  Fiber fiber_;
};

// Remembers what it handed out; the transport owns the executors.
class SimHost final : public conn::Host {
 public:
  explicit SimHost(std::uint64_t seed) : random_(seed) {}
  Result<std::unique_ptr<conn::Service>> make_service() override;
  std::unique_ptr<conn::WorkQueue> make_worker() override;
  std::uint64_t random_seed() override { return random_(); }

  SimService* service = nullptr;
  SimWorker* worker = nullptr;
  std::function<void()> let_time_pass;

 private:
  Random random_;
};

}  // namespace mend::sim
