// Worker: the WorkQueue (host.h) of a machine: the one thread of this process that may block:
// create_qp, create_ah, modify_qp, reg_mr, the fence.
//
// Thread contract: submit() from any thread; jobs run one after the other, in order. stop() lets
// the running job end and drops the rest.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "plugin/conn/host.h"

namespace mend::conn {

class Worker final : public WorkQueue {
 public:
  Worker();
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(std::function<void()> job) override;
  void stop() override;

 private:
  void run(const std::stop_token& token);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> jobs_;
  std::jthread thread_;  // last member: starts when everything else exists
};

}  // namespace mend::conn
