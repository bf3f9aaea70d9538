// What the layer above submits: Frag (a SEND with its retained copy), RdmaOp (put or get), AmoCall
// (atomic). Thread contract: a request belongs to ops from submission until its callback, which
// always runs on an application thread inside Poller::progress(), exactly once: with success, or
// with `failed` set where the connection was given up and Channel::abandon() called.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ops/wire.h"
#include "plugin/verbs/types.h"

namespace mend::ops {

class FragPool;

// Keys of one memory region: one per protection domain of this process (local), one per rail of its
// owner (remote).
struct LocalKeys {
  Lkey lkey[kMaxRails];
};
struct RemoteKeys {
  Rkey rkey[kMaxRails];
  std::uint32_t reg_id = 0;      // the owner's name for the region, for a refresh; 0: none
  std::uint32_t generation = 0;  // counts its refreshes
};

// The three reasons to keep a Frag; it returns to its pool when all are gone (protocol.md 1.7, I5).
enum FragHold : std::uint8_t { kHoldWire = 1, kHoldPeer = 2, kHoldUser = 4 };

// Link of the Poller's queue of callbacks that are due: the next request's address with its type in
// the low bits.
using DueLink = std::uintptr_t;

// One SEND: control part, room for the layer above, then header and payload contiguous in
// registered memory.
struct alignas(64) Frag {
  static constexpr std::size_t kUserBytes = 224;  // for the upper layer's descriptor

  FragPool* pool = nullptr;
  const LocalKeys* keys = nullptr;    // of the pool chunk this Frag lies in
  DueLink due_next = 0;               // owned by ops
  void (*sent)(Frag&) = nullptr;      // once, from progress, after the first post; may be null
  std::uint32_t capacity = 0;         // payload bytes available behind the header
  std::uint32_t length = 0;           // payload bytes used
  std::atomic<std::uint8_t> held{0};  // FragHold bits
  bool failed = false;                // set before `sent`, which clears it
  alignas(16) std::byte user[kUserBytes];
  alignas(64) DataHeader header;  // payload follows at once

  std::byte* payload() { return reinterpret_cast<std::byte*>(&header + 1); }
};

struct RdmaOp {
  enum class Dir : std::uint8_t { Put, Get };
  Dir dir = Dir::Put;
  void* local = nullptr;
  const LocalKeys* local_keys = nullptr;  // null: a put of at most max_inline bytes
  std::uint64_t remote = 0;
  RemoteKeys remote_keys;
  std::uint64_t length = 0;         // bytes; ops cuts it at the device's max_msg_sz
  void (*done)(RdmaOp&) = nullptr;  // once, from progress, when all of it is done; may be null
  DueLink due_next = 0;             // owned by ops
  std::uint32_t pieces_left = 0;    // owned by ops
  bool failed = false;              // how it ended; false at submission
  void* user[6] = {};               // for the layer above
};

struct AmoCall {
  AmoOp op = AmoOp::Add;
  std::uint8_t width = 8;  // 4 or 8 bytes
  std::uint64_t remote = 0;
  Rkey rkey;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint64_t result = 0;          // value before the execution, valid in done()
  bool failed = false;               // how it ended; false at submission
  void (*done)(AmoCall&) = nullptr;  // from progress, once; may be null
  DueLink due_next = 0;              // owned by ops
  AmoCall* next = nullptr;           // owned by ops: waiting for memory
  std::uint32_t id = 0;              // owned by ops
  void* user[6] = {};
};

}  // namespace mend::ops
