// OpLog: the ring of accepted operations of one channel, in posting order. It is the submission
// queue, the record of what is on the wire and the replay list in one.
//
// Thread contract: none of its own; the channel's lock covers it.
// Positions count up for ever (64 bit). Invariants: done <= end, retired <= posted <= end;
// everything before `done` is done, everything before `retired` is off the wire, everything before
// `posted` was handed to the device on the current lane (or needs no posting). Entries before
// min(done, retired) are gone. Growing keeps order and positions.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/request.h"

namespace mend::ops {

enum class LogKind : std::uint8_t { Send, Put, Get };

enum LogFlag : std::uint8_t {
  kLogDone = 1,        // RDMA piece complete (its CQE, or rule P2)
  kLogEverPosted = 2,  // was handed to some QP before: a later post is a replay
  kLogCallback = 4,    // the submitter wants Frag::sent
  kLogWire = 8,        // the posted WR reads the Frag: kHoldWire is set
  kLogRepaired = 16,   // its keys or memory were refused once and renewed
};

struct LogEntry {
  void* object;               // Frag (Send) or RdmaOp
  std::uint64_t offset;       // RDMA: of this piece in the RdmaOp. Send: bytes accepted before it
  std::uint32_t length;       // payload bytes
  std::uint32_t seq;          // Send: low 32 bits of its sequence number
  std::uint32_t sq_position;  // of its WR in the send queue of the current lane
  LogKind kind;
  std::uint8_t flags;
  std::uint16_t spare;

  Frag& frag() const { return *static_cast<Frag*>(object); }
  RdmaOp& rdma() const { return *static_cast<RdmaOp*>(object); }
};
static_assert(sizeof(LogEntry) == 32);

class OpLog {
 public:
  explicit OpLog(std::uint32_t capacity = 32);  // rounded up to a power of two

  LogEntry& append() {
    if (end_ == limit_) [[unlikely]] {
      make_room();
    }
    return ring_[end_++ & mask_];
  }
  // For a caller that keeps count of room(): appends an entry that is posted at once.
  LogEntry& append_posted() {
    posted_ = end_ + 1;
    return ring_[end_++ & mask_];
  }
  std::uint64_t room() {
    limit_ = base() + mask_ + 1;
    return limit_ - end_;
  }

  LogEntry& at(std::uint64_t position) { return ring_[position & mask_]; }
  const LogEntry& at(std::uint64_t position) const { return ring_[position & mask_]; }

  std::uint64_t done() const { return done_; }
  std::uint64_t retired() const { return retired_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t end() const { return end_; }
  std::uint64_t base() const { return done_ < retired_ ? done_ : retired_; }
  std::uint64_t capacity() const { return mask_ + 1; }
  bool all_done() const { return done_ == end_; }

  void set_done(std::uint64_t position) { done_ = position; }
  void set_retired(std::uint64_t position) { retired_ = position; }
  void set_posted(std::uint64_t position) { posted_ = position; }

 private:
  [[gnu::noinline]] void make_room();

  std::unique_ptr<LogEntry[]> ring_;
  std::uint64_t mask_ = 0;
  std::uint64_t limit_ = 0;  // no need to look at base() before end_ gets here
  std::uint64_t done_ = 0;
  std::uint64_t retired_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace mend::ops
