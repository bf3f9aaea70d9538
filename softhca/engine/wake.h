// Wake-ups between processes: datagrams on abstract AF_UNIX names that carry a random cookie kept
// in the 0600 segment. A datagram says only "look"; the facts are in shared memory, so a datagram
// that is dropped because the queue is full loses nothing (a full queue is readable). Until it is
// taken, a datagram is charged to the socket that sent it. Thread safe.
#pragma once

#include "softhca/engine/shm_layout.h"

namespace softhca {

class WakeSocket {
 public:
  WakeSocket() = default;
  ~WakeSocket();
  WakeSocket(const WakeSocket&) = delete;
  WakeSocket& operator=(const WakeSocket&) = delete;

  // Binds to a fresh random name and announces it in `addr`; 0 or errno.
  int open(WakeAddr* addr);
  // Withdraws the name for good, `addr` may go; the descriptor closes with the object.
  void withdraw() noexcept;
  // While nobody listens: from mute() to announce() nobody sends. Whoever starts to listen looks at
  // the facts once after announce(). Not at the same time as each other or withdraw().
  void mute() noexcept;
  void announce() noexcept;

  int fd() const noexcept { return fd_; }
  // Takes all queued datagrams, never blocks.
  void drain() const noexcept;
  // Waits for one datagram as the descriptor's O_NONBLOCK says: 0, or errno (EAGAIN, EINTR).
  int wait_one() const noexcept;

 private:
  int fd_ = -1;
  WakeAddr* addr_ = nullptr;
  uint32_t length_ = 0;  // of the name
};

// Sends from a descriptor of its own; never blocks, ignores a receiver that is gone. While
// there are descriptors, receivers that take nothing do not keep it from waking the others.
class Waker {
 public:
  Waker() = default;
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int open();
  void wake(const WakeAddr& addr) const noexcept;

 private:
  int fd_ = -1;
};

uint64_t random_u64() noexcept;

}  // namespace softhca
