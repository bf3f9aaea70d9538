#include "softhca/engine/device_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <exception>
#include <new>
#include <vector>

#include "softhca/engine/process.h"

namespace softhca {

namespace {

constexpr uint64_t kLivenessPeriodNs = 50'000'000;

int pidfd_of(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}

}  // namespace

std::unique_ptr<DeviceThread> DeviceThread::create(Process& process) {
  auto self = std::unique_ptr<DeviceThread>(new (std::nothrow) DeviceThread(process));
  if (self == nullptr) return nullptr;
  self->epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (self->epoll_fd_ < 0) return nullptr;
  self->stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (self->stop_fd_ < 0) return nullptr;
  if (self->socket_.open(&process.hdr()->device_thread) != 0) return nullptr;
  self->socket_.mute();
  for (const int fd : {self->socket_.fd(), self->stop_fd_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kFreeWord;  // nobody who is watched
    if (::epoll_ctl(self->epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return nullptr;
  }
  return self;
}

void DeviceThread::run_on() {
  const std::lock_guard guard(life_mutex_);
  if (thread_.joinable()) return;
  stop_ = false;
  socket_.announce();
  // The application's signals are none of this thread's business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::exception&) {  // no thread, no memory; as documented: without
    socket_.mute();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void DeviceThread::rest() {
  const std::lock_guard guard(life_mutex_);
  if (!thread_.joinable()) return;
  stop_ = true;
  socket_.mute();
  ::eventfd_write(stop_fd_, 1);
  thread_.join();
  eventfd_t stopped = 0;
  ::eventfd_read(stop_fd_, &stopped);
  socket_.drain();
}

DeviceThread::~DeviceThread() {
  rest();
  socket_.withdraw();
  for (const auto& [key, watched] : watched_) {
    if (watched.pidfd >= 0) ::close(watched.pidfd);
  }
  if (stop_fd_ >= 0) ::close(stop_fd_);
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

void DeviceThread::watch(uint32_t slot, uint32_t gen, pid_t pid) {
  const uint64_t key = holder_word(slot, gen);
  std::lock_guard guard(mutex_);
  if (watched_.count(key) != 0) return;
  Watched entry{slot, gen, pidfd_of(pid)};
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (entry.pidfd < 0 || ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, entry.pidfd, &event) != 0) {
    poll_liveness_ = true;
    process_.waker().wake(process_.hdr()->device_thread);
  }
  watched_.emplace(key, entry);
}

void DeviceThread::loop() {
  pthread_setname_np(pthread_self(), "softhca");
  while (!stop_) {
    socket_.drain();
    handle_deaths();
    process_.service();
    sleep_until_event();
  }
}

void DeviceThread::sleep_until_event() {
  uint64_t deadline = process_.next_deadline();
  const uint64_t now = process_.now();
  {
    std::lock_guard guard(mutex_);
    if (poll_liveness_) deadline = std::min(deadline, now + kLivenessPeriodNs);
  }
  pollfd waits{epoll_fd_, POLLIN, 0};
  if (deadline == UINT64_MAX) {
    ::ppoll(&waits, 1, nullptr, nullptr);
    return;
  }
  const uint64_t ns = deadline > now ? deadline - now : 0;
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000U),
                         static_cast<long>(ns % 1'000'000'000U)};
  ::ppoll(&waits, 1, &timeout, nullptr);
}

void DeviceThread::handle_deaths() {
  std::array<epoll_event, 64> events{};
  const int n = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), 0);
  std::vector<Watched> dead;
  {
    std::lock_guard guard(mutex_);
    for (int i = 0; i < n; ++i) {
      const auto it = watched_.find(events[static_cast<std::size_t>(i)].data.u64);
      if (it == watched_.end()) continue;
      dead.push_back(it->second);
      watched_.erase(it);
    }
    if (poll_liveness_) {
      for (auto it = watched_.begin(); it != watched_.end();) {
        if (it->second.pidfd < 0 &&
            !process_.fabric().global.alive(it->second.slot, it->second.gen)) {
          dead.push_back(it->second);
          it = watched_.erase(it);
        } else {
          ++it;
        }
      }
    }
  }
  for (const Watched& entry : dead) {
    if (entry.pidfd >= 0) ::close(entry.pidfd);
    process_.sweep_dead(entry.slot, entry.gen);
    // If somebody else had swept, he settled this too; but it is our own.
    (void)process_.take_from_dead(process_.self(), holder_word(entry.slot, entry.gen));
  }
  if (dead.empty()) return;
  // They may have owed us a wake-up.
  process_.hdr()->attention.fetch_add(1);
}

}  // namespace softhca
