#include "tests/sim/executors.h"

#include <poll.h>

#include <utility>

namespace mend::sim {

// --- service ---

Result<void> SimService::watch(int fd, Task on_readable) {
  watches_[fd] = std::move(on_readable);
  return {};
}

void SimService::unwatch(int fd) { watches_.erase(fd); }

void SimService::post(Task task) {
  if (!stopped_) posted_.push_back(std::move(task));
}

void SimService::arm(TimeNs deadline, Task task) {
  if (!stopped_) timers_.emplace(deadline, std::move(task));
}

void SimService::stop() {
  stopped_ = true;
  watches_.clear();
  posted_.clear();
  timers_.clear();
}

TimeNs SimService::next_timer() const { return timers_.empty() ? kNever : timers_.begin()->first; }

bool SimService::run_one(TimeNs now, Random& random) {
  // The three sources are served in an order that differs from call to call, as epoll's does.
  const auto first = random() % 3;
  for (unsigned i = 0; i < 3; ++i) {
    switch ((first + i) % 3) {
      case 0:
        if (run_posted()) return true;
        break;
      case 1:
        if (run_timer(now)) return true;
        break;
      default:
        if (run_readable(random)) return true;
        break;
    }
  }
  return false;
}

bool SimService::run_posted() {
  if (posted_.empty()) return false;
  const Task task = std::move(posted_.front());
  posted_.pop_front();
  task();
  return true;
}

bool SimService::run_timer(TimeNs now) {
  if (timers_.empty() || timers_.begin()->first > now) return false;
  const Task task = std::move(timers_.begin()->second);
  timers_.erase(timers_.begin());
  ++timers_run_;
  task();
  return true;
}

bool SimService::run_readable(Random& random) {
  if (!readable_.empty()) {
    const int fd = readable_.back();
    readable_.pop_back();
    if (const auto it = watches_.find(fd); it != watches_.end()) it->second();
    return true;
  }
  std::vector<pollfd> fds;
  for (const auto& [fd, task] : watches_) fds.push_back({fd, POLLIN, 0});
  if (fds.empty() || poll(fds.data(), fds.size(), 0) <= 0) return false;
  std::vector<int> ready;
  for (const pollfd& entry : fds)
    if ((entry.revents & POLLIN) != 0) ready.push_back(entry.fd);
  if (ready.empty()) return false;
  watches_.at(ready[random() % ready.size()])();
  return true;
}

// --- worker ---

SimWorker::SimWorker() : fiber_([this] { loop(); }) {}

void SimWorker::loop() {
  while (true) {
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    job();
    busy_ = false;
    Fiber::yield();
  }
}

void SimWorker::submit(std::function<void()> job) {
  if (!stopped_) jobs_.push_back(std::move(job));
}

void SimWorker::stop() {
  stopped_ = true;
  jobs_.clear();
  while (busy_) {
    if (let_time_pass) let_time_pass();
    fiber_.resume();
  }
}

TimeNs SimWorker::next_wake() const {
  if (busy_) return fiber_.wake_at();
  return jobs_.empty() ? kNever : 0;
}

bool SimWorker::run(TimeNs now) {
  if (next_wake() > now) return false;
  fiber_.resume();
  return true;
}

// --- host ---

Result<std::unique_ptr<conn::Service>> SimHost::make_service() {
  auto made = std::make_unique<SimService>();
  service = made.get();
  return std::unique_ptr<conn::Service>(std::move(made));
}

std::unique_ptr<conn::WorkQueue> SimHost::make_worker() {
  auto made = std::make_unique<SimWorker>();
  made->let_time_pass = let_time_pass;
  worker = made.get();
  return made;
}

}  // namespace mend::sim
