#include "tests/unit/softhca/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

namespace kit {

Link::~Link() { ::close(fd_); }

bool Link::write_all(const void* data, size_t n) {
  return ::send(fd_, data, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n);
}

bool Link::read_all(void* data, size_t n, int limit_ms) {
  auto* at = static_cast<char*>(data);
  while (n != 0) {
    pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&p, 1, limit_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(fd_, at, n, 0);
    if (got <= 0) return false;
    at += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

Child::Child(const Body& body) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(fds[0]);
    Link link(fds[1]);
    const int rc = body(link);
    // Not _exit: the device is given back by the library's exit handlers.
    std::exit(rc == 0 && ::testing::Test::HasFailure() ? 1 : rc);
  }
  ::close(fds[1]);
  link_ = new Link(fds[0]);
}

Child::~Child() {
  if (!reaped_ && pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  delete link_;
}

void Child::signal(int sig) const { ::kill(pid_, sig); }

void Child::stop() const {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
}

bool Child::stopped(int limit_ms) const {
  for (int waited = 0; waited <= limit_ms; ++waited) {
    int status = 0;
    if (::waitpid(pid_, &status, WUNTRACED | WNOHANG) == pid_) return WIFSTOPPED(status);
    const timespec ms{0, 1'000'000};
    ::nanosleep(&ms, nullptr);
  }
  return false;
}

int Child::join(int limit_ms) {
  for (int waited = 0; waited <= limit_ms; ++waited) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      reaped_ = true;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    const timespec ms{0, 1'000'000};
    ::nanosleep(&ms, nullptr);
  }
  return -1;
}

namespace {

std::vector<std::string> files_of(const std::string& name) {
  std::vector<std::string> found;
  const std::string prefix = "softhca." + name + ".";
  DIR* dir = ::opendir("/dev/shm");
  if (dir == nullptr) return found;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0)
      found.push_back(std::string("/dev/shm/") + entry->d_name);
  }
  ::closedir(dir);
  return found;
}

}  // namespace

OwnFabric::OwnFabric(const std::string& tag) {
  static int count = 0;
  name_ = "ut-" + tag + "-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  ::setenv("SOFTHCA_FABRIC", name_.c_str(), 1);
}

OwnFabric::~OwnFabric() {
  for (const std::string& file : files_of(name_)) {
    EXPECT_TRUE(may_leave_) << "left behind: " << file;
    ::unlink(file.c_str());
  }
}

std::string OwnFabric::path() const {
  return "/dev/shm/softhca." + name_ + "." + std::to_string(::geteuid());
}

int OwnFabric::files() const { return static_cast<int>(files_of(name_).size()); }

Leftover::Leftover(OwnFabric& fabric)
    : fd_(::open(fabric.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  fabric.expect_leftovers();
  struct flock all {};
  all.l_type = F_WRLCK;
  EXPECT_EQ(::fcntl(fd_, F_SETLK, &all), 0);
  EXPECT_EQ(::ftruncate(fd_, 4096), 0);
}

void Leftover::let_go() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace kit
