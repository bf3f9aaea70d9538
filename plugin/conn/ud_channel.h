// UdChannel: the control datagrams of one rail: one UD QP with a completion queue, a completion
// channel and receive buffers of its own, so that control never waits for data.
//
// Thread contract: send() and receive() on the service thread, they never block; resolve() and
// reset_in_place() on the worker thread, they may. One mutex (never held over a blocking call but
// the device's own modify_qp in a reset) guards the rest. Invariants: the QP number never changes;
// a datagram is sent or reported as not sent, never queued here; every receive buffer is posted or
// being handed to the callback.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "plugin/conn/ah_cache.h"
#include "plugin/conn/rail.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/types.h"
#include "plugin/verbs/unique.h"

namespace mend::conn {

constexpr std::size_t kMaxDatagram = 512;  // payload bytes; control messages are at most 256

// Where a process' control QP is: part of the modex, updated by what arrives.
struct UdAddress {
  verbs::Gid gid{};
  std::uint16_t lid = 0;
  Qpn qpn;
  std::uint32_t qkey = 0;
  friend bool operator==(const UdAddress&, const UdAddress&) = default;
};

// Who sent a datagram, as far as the wire tells.
struct UdSource {
  Qpn qpn;
  std::uint16_t lid = 0;
  bool has_gid = false;
  verbs::Gid gid{};
};

enum class [[nodiscard]] UdSend : std::uint8_t{
    Sent,
    NoPath,   // no address handle yet: resolve() it on the worker thread, then send again
    Busy,     // all send buffers are in flight: the caller's retransmission covers it
    Broken,   // the QP is in error: reset_in_place() on the worker thread
    TooLong,  // more than kMaxDatagram bytes, which no control message has
};

class UdChannel {
 public:
  using ReceiveFn = void (*)(void* context, std::span<const std::byte> bytes,
                             const UdSource& source);

  // qkey: the same in all processes of a job, so that one may answer another of which it knows only
  // what a datagram told; 0: any. The high bit is not used.
  static Result<std::unique_ptr<UdChannel>> create(Rail& rail, std::uint32_t qkey = 0);
  ~UdChannel();
  UdChannel(const UdChannel&) = delete;
  UdChannel& operator=(const UdChannel&) = delete;

  int fd() const;             // readable when receive() has something to do
  UdAddress address() const;  // of this channel, with the port's present GID and LID

  UdSend send(const UdAddress& to, std::span<const std::byte> bytes);
  // Takes what has arrived; calls back without the mutex, with bytes valid during the call. Re-arms
  // first and polls after, so that no wake-up is lost. Returns the number of datagrams.
  int receive(ReceiveFn on_datagram, void* context);
  // A completion with error or a refused post was seen, or a completion never came:
  // reset_in_place()
  bool broken() const;

  Result<void> resolve(const UdAddress& to);  // creates the address handle
  void paths_changed();  // GID or LID moved (ours or a peer's): new generation of handles
  Result<void>
  reset_in_place();  // ERR -> RESET -> ... -> RTS, same QP number; also after a QP event

 private:
  struct Datagram {
    std::array<std::byte, kMaxDatagram> bytes;
    std::size_t length = 0;
    UdSource source;
  };

  UdChannel(Rail& rail, std::uint32_t qkey);
  Result<void> open();
  Result<void> walk_to_rts();
  std::byte* receive_slot(std::uint64_t slot);
  std::byte* send_slot(std::uint64_t slot);
  bool post_receive(std::uint64_t slot);
  void reap_sends();
  void take_wakeups();
  bool take_one(Datagram& out);
  void drop_completions();

  Rail& rail_;
  const std::uint32_t qkey_;
  mutable std::mutex mutex_;
  bool broken_ = true;  // until RTS is reached
  std::uint32_t recv_slots_ = 0, send_slots_ = 0;
  std::vector<std::byte> memory_;  // receive slots, then send slots
  std::vector<std::uint16_t> free_sends_;
  std::chrono::nanoseconds unreaped_since_{};  // when a completion was last seen or first due
  verbs::Mr mr_;
  verbs::CompChannel channel_;
  verbs::Cq recv_cq_, send_cq_;
  AhCache handles_;  // before qp_: handles outlive the QP that uses them
  verbs::Qp qp_;
};

}  // namespace mend::conn
