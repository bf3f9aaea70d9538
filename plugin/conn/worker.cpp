#include "plugin/conn/worker.h"

#include <csignal>
#include <utility>

namespace mend::conn {
namespace {

// Signals are the application's: none is delivered to this thread.
struct SignalsBlocked {
  sigset_t before{};
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
};

}  // namespace

Worker::Worker() {
  const SignalsBlocked blocked;
  thread_ = std::jthread([this](const std::stop_token& token) { run(token); });
}

Worker::~Worker() { stop(); }

void Worker::submit(std::function<void()> job) {
  {
    const std::lock_guard guard(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Worker::run(const std::stop_token& token) {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, token, [this] { return !jobs_.empty(); });
      if (token.stop_requested()) return;  // also if there are jobs: they are dropped
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace mend::conn
