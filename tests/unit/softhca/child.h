// Tests with real processes: a forked child that talks to its parent over a socket pair and is
// reaped or killed when the handle goes. Children run nothing of GoogleTest; their exit code is the
// verdict. The parent of such a test must not have opened a device (a forked child's device is
// inert by design).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace kit {

// One end of the socket pair. Fixed-size values only; false on end of file or after the time limit.
class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  template <typename T>
  bool put(const T& value) {
    return write_all(&value, sizeof value);
  }
  template <typename T>
  bool get(T& value, int limit_ms = 20000) {
    return read_all(&value, sizeof value, limit_ms);
  }
  // Waits for one byte from the other side, or sends it.
  bool wait(int limit_ms = 20000) {
    char c = 0;
    return get(c, limit_ms);
  }
  bool go() { return put('.'); }

 private:
  bool write_all(const void* data, size_t n);
  bool read_all(void* data, size_t n, int limit_ms);
  int fd_;
};

class Child {
 public:
  using Body = std::function<int(Link&)>;
  explicit Child(const Body& body);
  ~Child();  // SIGKILL if still there
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  Link& link() { return *link_; }
  void signal(int sig) const;
  // SIGSTOP, and waits until every thread of it stands still.
  void stop() const;
  // Whether it stands still because it stopped itself, or does within the limit.
  bool stopped(int limit_ms = 20000) const;
  // Exit code, 128 + signal, or -1 if it did not end in time.
  int join(int limit_ms = 20000);

 private:
  pid_t pid_ = -1;
  Link* link_ = nullptr;
  bool reaped_ = false;
};

// A fabric of this test's own: sets SOFTHCA_FABRIC to a fresh name for this process and its
// children, and when it goes checks that nothing of it is left in /dev/shm.
class OwnFabric {
 public:
  explicit OwnFabric(const std::string& tag);
  ~OwnFabric();
  OwnFabric(const OwnFabric&) = delete;
  OwnFabric& operator=(const OwnFabric&) = delete;
  const std::string& name() const { return name_; }
  std::string path() const;  // of the global segment
  // Files of this fabric in /dev/shm.
  int files() const;
  // The fabric was left dirty on purpose: remove it without complaint.
  void expect_leftovers() { may_leave_ = true; }

 private:
  std::string name_;
  bool may_leave_ = false;
};

// A fabric's file as a killed job leaves it, but locked, since the tests of others on this machine
// would clean it up.
class Leftover {
 public:
  explicit Leftover(OwnFabric& fabric);
  ~Leftover() { let_go(); }
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  void let_go();  // not locked any more

 private:
  int fd_ = -1;
};

}  // namespace kit
