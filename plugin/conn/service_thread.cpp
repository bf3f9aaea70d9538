#include "plugin/conn/service_thread.h"

#include <dlfcn.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

extern "C" {
#include <ucs/async/async_fwd.h>
#include <ucs/debug/debug.h>
}

namespace mend::conn {
namespace {

constexpr auto kMode = UCS_ASYNC_MODE_THREAD_MUTEX;

// Removing a handler waits until it has returned, but inside ucs, where a thread sanitizer sees no
// synchronisation: this counter says it in C++.
std::atomic<unsigned> events_handled{0};

void consume_counter(int fd) {
  std::uint64_t count = 0;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

bool handler_is_of_ucs(int signum) {
  struct sigaction action {};
  Dl_info info{};
  return sigaction(signum, nullptr, &action) == 0 &&
         dladdr(reinterpret_cast<const void*>(action.sa_sigaction), &info) != 0 &&
         info.dli_fname != nullptr && std::strstr(info.dli_fname, "libucs") != nullptr;
}

}  // namespace

void ServiceThread::leave_signals_alone() {
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr || std::getenv("UCX_ERROR_SIGNALS") != nullptr)
    return;
  for (int signum : {SIGILL, SIGSEGV, SIGBUS, SIGFPE})
    if (handler_is_of_ucs(signum)) ucs_debug_disable_signal(signum);
}

Result<std::unique_ptr<ServiceThread>> ServiceThread::create() {
  const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake < 0)
    return fail(errno, "eventfd", std::string("eventfd failed: ") + std::strerror(errno));
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer < 0) {
    const int code = errno;
    close(wake);
    return fail(code, "timerfd", std::string("timerfd_create failed: ") + std::strerror(code));
  }
  std::unique_ptr<ServiceThread> self(new ServiceThread(wake, timer));
  ServiceThread* raw = self.get();
  if (auto r = raw->watch(wake, [raw] { raw->run_posted(); }); !r) return tl::unexpected(r.error());
  if (auto r = raw->watch(timer, [raw] { raw->run_due(); }); !r) return tl::unexpected(r.error());
  return self;
}

ServiceThread::ServiceThread(int wake_fd, int timer_fd) : wake_fd_(wake_fd), timer_fd_(timer_fd) {}

ServiceThread::~ServiceThread() {
  stop();
  close(timer_fd_);
  close(wake_fd_);
}

void ServiceThread::stop() {
  if (stopped_) return;
  stopped_ = true;
  while (!watches_.empty()) unwatch(watches_.begin()->first);
}

Result<void> ServiceThread::watch(int fd, Task on_readable) {
  auto entry = std::make_unique<Watch>(Watch{fd, std::move(on_readable)});
  const ucs_status_t status = ucs_async_set_event_handler(
      kMode, fd, UCS_EVENT_SET_EVREAD,
      [](int event_fd, ucs_event_set_types_t events, void* arg) {
        on_event(event_fd, static_cast<unsigned>(events), arg);
      },
      entry.get(), nullptr);
  if (status != UCS_OK)
    return fail(
        EAGAIN, "service thread",
        std::string("the service thread cannot watch a descriptor: ") + ucs_status_string(status));
  watches_[fd] = std::move(entry);
  return {};
}

void ServiceThread::unwatch(int fd) {
  const auto it = watches_.find(fd);
  if (it == watches_.end()) return;
  ucs_async_remove_handler(fd, 1);
  (void)events_handled.load(std::memory_order_acquire);
  watches_.erase(it);
}

void ServiceThread::on_event(int, unsigned, void* arg) {
  static_cast<Watch*>(arg)->on_readable();
  events_handled.fetch_add(1, std::memory_order_release);
}

void ServiceThread::post(Task task) {
  {
    const std::lock_guard guard(mutex_);
    posted_.push_back(std::move(task));
    if (posted_.size() > 1) return;  // a wake-up is already on its way
  }
  const std::uint64_t one = 1;
  while (write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void ServiceThread::run_posted() {
  consume_counter(wake_fd_);
  std::vector<Task> batch;
  {
    const std::lock_guard guard(mutex_);
    batch.swap(posted_);
  }
  for (Task& task : batch) task();
}

void ServiceThread::arm(TimeNs deadline, Task task) {
  const std::lock_guard guard(mutex_);
  timers_.emplace(deadline, std::move(task));
  if (deadline < armed_for_) set_timer_locked();
}

void ServiceThread::set_timer_locked() {
  armed_for_ = timers_.empty() ? kNever : timers_.begin()->first;
  itimerspec spec{};
  if (armed_for_ != kNever) {
    const TimeNs at = armed_for_ > 0 ? armed_for_ : 1;
    spec.it_value.tv_sec = static_cast<time_t>(at / kSecond);
    spec.it_value.tv_nsec = static_cast<long>(at % kSecond);
  }
  timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

void ServiceThread::run_due() {
  consume_counter(timer_fd_);
  std::vector<Task> due;
  {
    const std::lock_guard guard(mutex_);
    const auto end = timers_.upper_bound(monotonic_now());
    for (auto it = timers_.begin(); it != end; ++it) due.push_back(std::move(it->second));
    timers_.erase(timers_.begin(), end);
  }
  for (Task& task : due) task();
  // Once, behind all that the tasks armed: most arm themselves again.
  const std::lock_guard guard(mutex_);
  set_timer_locked();
}

}  // namespace mend::conn
