// The layout of everything that lives in shared memory: the global segment of a fabric and the one
// segment per attached process. Plain data and atomics only; offsets instead of pointers, because
// every process maps a segment elsewhere. Lines are grouped by who writes them: constants, words of
// the owner, words of the initiators (always under the owner's process lock unless said otherwise).
// QpShared, CqShared, RqShared and MrShared are type-stable: their memory is only ever reused for
// the same type, so that a stale pointer finds a mismatching key, never garbage.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/conf/conf.h"
#include "softhca/fault/fault_board.h"

namespace softhca {

using Off = uint32_t;  // byte offset into a process segment; 0 = none

inline constexpr std::size_t kLine = 64;
inline constexpr uint64_t kGlobalMagic = 0x3161636874666f73;   // "softhca1"
inline constexpr uint64_t kProcessMagic = 0x316f727074666f73;  // "softpro1"
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr unsigned kMaxSlots = 256;
inline constexpr unsigned kDirBits = 15;
inline constexpr unsigned kDirSize = 1U << kDirBits;
inline constexpr std::size_t kProcessSegmentBytes = std::size_t{1} << 30;  // address space, sparse

// A lock word and the busy word of a QP name the holder: (generation << 32 | slot + 1), 0 = free.
using HolderWord = uint64_t;
inline constexpr HolderWord kFreeWord = 0;
inline constexpr HolderWord kDeadWord = ~uint64_t{0};  // the lock of a swept process: never free

constexpr HolderWord holder_word(uint32_t slot, uint32_t gen) noexcept {
  return (uint64_t{gen} << 32) | (slot + 1);
}
constexpr uint32_t holder_slot(HolderWord word) noexcept {
  return static_cast<uint32_t>(word & 0xffffffffU) - 1;
}
constexpr uint32_t holder_gen(HolderWord word) noexcept {
  return static_cast<uint32_t>(word >> 32);
}

// Where a wake-up datagram goes: an abstract AF_UNIX name with a random cookie; length 0 = nobody.
struct WakeAddr {
  std::atomic<uint32_t> length;
  char name[60];
};
static_assert(sizeof(WakeAddr) == 64);

// ---- global segment -----------------------------------------------------------------------------

enum class SlotState : uint32_t { Free, Live };

struct alignas(kLine) SlotShared {
  std::atomic<SlotState> state;
  uint32_t gen;  // grows with every attach to this slot
  int32_t pid;
  int32_t rank;  // kAnyRank: none is known
  uint64_t cookie;
};

struct alignas(kLine) PortShared {
  std::atomic<uint32_t> down;         // 1: link down, whatever the configuration says
  std::atomic<uint32_t> changes;      // grows with every change of `down`
  std::atomic<uint64_t> gids_moved;   // gid_table.h; 0: every GID is where it was configured
  std::atomic<uint32_t> gid_changes;  // grows with every change of `gids_moved`
};

// qpn is written last on allocation and first on release; it carries a generation, so a reader that
// sees the same qpn before and after has consistent fields.
struct DirEntry {
  std::atomic<uint32_t> qpn;
  std::atomic<uint32_t> slot;
  std::atomic<uint32_t> gen;
  std::atomic<Off> qp;
};
static_assert(sizeof(DirEntry) == 16);

struct GlobalShared {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t layout;  // layout_hash() of the writer
  alignas(kLine) std::atomic<HolderWord> lock;
  uint32_t dir_next;  // where the next search for a free directory entry starts
  uint32_t qpn_gen;
  alignas(
      kLine) std::atomic<uint32_t> ports_disturbed;  // counts those down, and those with GIDs moved
  std::atomic<uint32_t> port_epoch;                  // grows with every port change
  PortShared ports[kMaxDevices][kMaxPorts];
  SlotShared slots[kMaxSlots];
  DirEntry dir[kDirSize];
  FaultBoard faults;
  // The configuration of the fabric as INI text, written once under the attach lock.
  std::atomic<uint32_t> conf_length;
  char conf_text[kMaxConfText];
};

// ---- process segment ----------------------------------------------------------------------------

// What a lock holder is about to do, complete before the first of the stores it describes. If it
// publishes a record, the store of the record's seq decides: whoever breaks the lock of a dead
// holder repeats the other stores (they are idempotent) if the record is there, and else nothing
// happened.
struct Journal {
  std::atomic<uint32_t> valid;
  Off qp;
  Off rq;  // 0: no receive work request is consumed
  uint32_t rq_head;
  Off cq;  // 0: no completion is published
  uint32_t rx_psn;
  uint32_t reserved;  // value for QpShared::reserved
  uint64_t cq_tail;   // after the record
  uint64_t record;    // block position of the record
};

struct alignas(kLine) ProcessLock {
  std::atomic<HolderWord> word;
  Journal journal;
};
static_assert(sizeof(ProcessLock) == kLine);

inline constexpr unsigned kMrChunkBits = 8;
inline constexpr unsigned kMrChunk = 1U << kMrChunkBits;
inline constexpr unsigned kMrChunks = 256;

// One memory region. key is stored last on registration and cleared first on deregistration.
struct alignas(kLine) MrShared {
  std::atomic<uint32_t> key;
  uint32_t access;
  uint64_t iova;
  uint64_t length;
  uint64_t host;  // address in the owner that iova stands for
  uint32_t pd;
  uint32_t generation;  // owner only: low byte of the last key
};

struct ProcessShared {
  uint64_t magic;
  uint32_t slot;
  uint32_t gen;
  int32_t pid;
  alignas(2 * kLine) ProcessLock lock;
  alignas(
      kLine) std::atomic<uint32_t> attention;  // grows when the owner should look at its objects
  alignas(kLine) WakeAddr device_thread;
  alignas(kLine) std::atomic<Off> mr_chunks[kMrChunks];
};

// A receive queue or shared receive queue. Free-running 32-bit counters; capacity is a power of
// two.
struct RqShared {
  // constants after creation
  alignas(2 * kLine) Off ring;
  uint32_t mask;
  uint32_t stride;
  uint32_t pd;
  uint32_t shared;  // 1: an SRQ
  Off event_wake;   // WakeAddr of the owning context
  uint64_t owner;   // its RecvQueue, in the owner's address space
  // 1: several completion queues report receives of this queue, so they are polled in any order
  // and the place of a request may be used again before its completion is polled.
  std::atomic<uint32_t> many_cqs;
  // owner
  alignas(2 * kLine) std::atomic<uint32_t> tail;
  // initiators, under the lock
  alignas(2 * kLine) std::atomic<uint32_t> head;
  uint32_t tail_seen;               // last value of tail that an initiator read
  uint32_t limit;                   // 0: not armed
  std::atomic<uint32_t> limit_hit;  // set once when armed and the count fell below limit
};

struct SgeShared {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};
struct RecvWqe {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t total;  // sum of the lengths
  SgeShared sge[1];
};
static_assert(sizeof(RecvWqe) == 32);

// The receive side of a completion queue: a ring of 64-byte blocks that hold records (record.h).
struct CqShared {
  // constants after creation
  alignas(2 * kLine) Off ring;
  uint32_t blocks;
  uint32_t cqe;
  Off channel;     // WakeAddr of the completion channel, 0 = none
  Off event_wake;  // WakeAddr of the owning context
  uint64_t key;    // of the record sequence numbers
  // initiators, under the lock
  alignas(2 * kLine) std::atomic<uint64_t> tail;
  std::atomic<uint64_t> pushed;  // records ever
  uint64_t head_seen;            // consumer words as last read by an initiator
  uint64_t popped_seen;
  std::atomic<uint32_t> dead;  // overrun: accepts nothing any more
  // consumer
  alignas(2 * kLine) std::atomic<uint64_t> head;
  std::atomic<uint64_t> popped;
  // both: notification
  alignas(2 * kLine) std::atomic<uint32_t> armed;  // NotifyState
  std::atomic<uint32_t> pending;                   // events not yet fetched, under the lock
};

enum class NotifyState : uint32_t { None, Solicited, Any };

enum QpEventBits : uint32_t {
  kQpAccessErr = 1,
  kQpReqErr = 2,
  kQpCommEst = 4,
  kQpFatal = 8,
};

struct QpShared {
  // owner, under the lock; what is atomic is also read without it
  alignas(2 * kLine) std::atomic<uint32_t> qpn;  // 0 = not in use
  std::atomic<uint32_t> state;                   // ibv_qp_state
  uint32_t type;                                 // ibv_qp_type
  std::atomic<uint32_t> dest_qpn;
  uint32_t pd;
  Off rq;
  Off cq;          // of receives
  Off event_wake;  // WakeAddr of the owning context
  uint32_t access;
  uint32_t qkey;
  uint8_t min_rnr_timer;
  uint8_t max_dest_rd_atomic;
  std::atomic<uint8_t> port;
  std::atomic<uint8_t> device;
  uint32_t pkey_index;
  uint32_t mtu_bytes;
  // initiators
  alignas(2 * kLine) std::atomic<HolderWord> busy;  // who moves data for this QP outside the lock
  std::atomic<uint32_t> rx_psn;
  std::atomic<uint32_t> events;    // QpEventBits not yet seen by the owner
  std::atomic<uint32_t> reserved;  // 1: reserved_* name a work request being filled
  uint32_t reserved_index;         // its index
  std::atomic<uint32_t> busy_tid;  // the thread that is busy
  std::atomic<uint32_t> talking;   // 1: a message arrived since RTR
  uint64_t reserved_wr_id;
  // owner: counters, written under the QP's send lock
  alignas(2 * kLine) std::atomic<uint64_t> tx_messages;
  std::atomic<uint64_t> tx_bytes;
  std::atomic<uint64_t> rnr_naks;
  std::atomic<uint64_t> retries;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Changes whenever a layout does, so that two builds never share a segment by accident.
constexpr uint32_t layout_hash() noexcept {
  uint32_t h = 2166136261U;
  for (std::size_t v :
       {sizeof(GlobalShared), sizeof(ProcessShared), sizeof(RqShared), sizeof(CqShared),
        sizeof(QpShared), sizeof(MrShared), offsetof(QpShared, busy), offsetof(CqShared, head),
        offsetof(ProcessShared, mr_chunks)}) {
    h = (h ^ static_cast<uint32_t>(v)) * 16777619U;
  }
  return h ^ kLayoutVersion;
}

}  // namespace softhca
