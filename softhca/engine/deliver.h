// The receiving end of a message, executed by its initiator under the target's process lock: take a
// receive work request, put the payload into the completion ring (or directly into the buffer),
// publish the completion. Every step that changes more than one word is journalled, so a killed
// initiator leaves either everything or nothing.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include "softhca/engine/process.h"
#include "softhca/engine/record.h"

namespace softhca {

inline constexpr uint32_t kGrhBytes = 40;
// Up to here payloads travel in the completion ring: two copies cost less than one system call that
// copies between processes. Larger ones would hold the target's lock too long.
inline constexpr uint32_t kMaxRingPayload = 8192 + 256;
// If the ring is crowded: above this the copy is worth letting go of the lock.
inline constexpr uint32_t kMaxDirectUnderLock = 1024;
inline constexpr unsigned kMaxSegments = 16;

struct Message {
  const iovec* pieces = nullptr;  // in the initiator's address space
  unsigned count = 0;
  uint32_t length = 0;    // of the pieces together
  uint32_t byte_len = 0;  // as the completion reports it
  uint8_t flags = 0;      // RecordFlags Imm, Grh, Rdma, Extra, Direct
  bool solicited = false;
  uint32_t next_psn = 0;         // rx_psn of the target afterwards
  RecordExtra extra{};           // with kRecordExtra
  const ibv_grh* grh = nullptr;  // UD: goes in front of the payload
};

enum class Verdict : uint8_t {
  Delivered,
  NotReady,         // no receive work request
  BufferTooSmall,   // consumed with LOC_LEN_ERR, target in ERR (UD: nothing happened)
  BufferForbidden,  // consumed with LOC_PROT_ERR, target in ERR
  QueueDead,        // the completion queue overran
  Unlocked,         // the target process died while its lock was not held
  Gone,             // the target process or its memory vanished, or it left RTR meanwhile
};

// What the caller sends after it has released the lock.
struct WakeUps {
  const WakeAddr* channel = nullptr;
  const WakeAddr* events = nullptr;
  bool poke = false;
};

// The caller holds the target's lock and still does on return, but large messages are copied
// without it, while the busy word of the QP is set.
Verdict deliver(Process& self, Peer& peer, QpShared& qp, const Message& message, WakeUps* wakes);
void send_wakes(const Process& self, Peer& peer, const WakeUps& wakes) noexcept;

struct ErrorRecord {
  uint64_t wr_id = 0;
  uint32_t index = 0;  // of the consumed request in its queue
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t vendor_err = 0;
};
// Adds an error completion of a consumed receive; lock held. False: the queue overran.
bool publish_error(Peer& peer, QpShared& qp, const ErrorRecord& error, WakeUps* wakes);

// The first message that arrives while the target is still in RTR tells it that the peer is ready;
// lock held.
void report_established(Peer& peer, QpShared& qp, WakeUps* wakes) noexcept;
// Moves a target QP to ERR after a negative acknowledgement; takes the lock. False: it was not up.
bool nak_target(Process& self, Peer& peer, QpShared& qp, uint32_t qpn, uint32_t event_bits);

}  // namespace softhca
