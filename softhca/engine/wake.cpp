#include "softhca/engine/wake.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace softhca {

namespace {

socklen_t abstract_address(const char* name, std::size_t length, sockaddr_un* addr) {
  std::memset(addr, 0, sizeof(*addr));
  addr->sun_family = AF_UNIX;
  std::memcpy(addr->sun_path + 1, name, length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

bool writable(int fd) noexcept {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

uint64_t random_u64() noexcept {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
    timespec ts{};
    ::clock_gettime(CLOCK_REALTIME, &ts);
    value =
        static_cast<uint64_t>(ts.tv_nsec) * 0x9e3779b97f4a7c15U ^ static_cast<uint64_t>(::getpid());
  }
  return value;
}

WakeSocket::~WakeSocket() {
  withdraw();
  if (fd_ >= 0) ::close(fd_);
}

int WakeSocket::open(WakeAddr* addr) {
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return errno;
  char name[sizeof(addr->name)];
  const int length = std::snprintf(name, sizeof(name), "softhca-%016llx%016llx",
                                   static_cast<unsigned long long>(random_u64()),
                                   static_cast<unsigned long long>(random_u64()));
  sockaddr_un sun{};
  const socklen_t size = abstract_address(name, static_cast<std::size_t>(length), &sun);
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&sun), size) != 0) return errno;
  std::memcpy(addr->name, name, static_cast<std::size_t>(length));
  length_ = static_cast<uint32_t>(length);
  addr_ = addr;
  announce();
  return 0;
}

void WakeSocket::announce() noexcept {
  addr_->length.store(length_, std::memory_order_release);
  // A waker changes the facts, then reads the length; the listener stores the length, then looks at
  // the facts: with both barriers one of them sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WakeSocket::mute() noexcept { addr_->length.store(0, std::memory_order_release); }

void WakeSocket::withdraw() noexcept {
  if (addr_ != nullptr) addr_->length.store(0, std::memory_order_release);
  addr_ = nullptr;
}

void WakeSocket::drain() const noexcept {
  char byte = 0;
  while (::recv(fd_, &byte, sizeof(byte), MSG_DONTWAIT) >= 0) {
  }
}

int WakeSocket::wait_one() const noexcept {
  char byte = 0;
  return ::recv(fd_, &byte, sizeof(byte), 0) >= 0 ? 0 : errno;
}

Waker::~Waker() {
  if (fd_ >= 0) ::close(fd_);
}

int Waker::open() {
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return fd_ < 0 ? errno : 0;
}

void Waker::wake(const WakeAddr& addr) const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see announce()
  const std::size_t length =
      std::min<std::size_t>(addr.length.load(std::memory_order_acquire), sizeof(addr.name));
  if (length == 0) return;
  sockaddr_un sun{};
  const socklen_t size = abstract_address(addr.name, length, &sun);
  const char byte = 1;
  const int saved = errno;
  const auto send_from = [&](int fd) {
    return ::sendto(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&sun), size) >= 0;
  };
  if (!send_from(fd_) && errno == EAGAIN && !writable(fd_)) {
    // Not this receiver's queue is full, which would lose nothing, but the send buffer, with what
    // others never took. What a socket has sent stays when it closes.
    const int fresh = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fresh >= 0) {
      (void)send_from(fresh);
      ::close(fresh);
    }
  }
  errno = saved;
}

}  // namespace softhca
