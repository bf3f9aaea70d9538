// One completed receive in the ring of a completion queue: a 64-byte header block and, if the
// payload does not fit behind it, further blocks. Positions are free-running counts of blocks.
//
//   0        8      12        16         20          24                                  64
//   +--------+------+---------+----------+-----------+-----------------------------------+
//   |  seq   | wqe  |byte_len |qpn|status| rq |flags | [wide 16] [extra 16] payload ...  |
//   +--------+------+---------+----------+-----------+-----------------------------------+
//
// seq is stored last: key + position publishes the record. The key is 64 random bits per queue, so
// old payload in a place where a header will be is never taken for one (2^-64 per look), and the
// producer need not clear it. The header is small so that a small message costs one cache line: the
// consumer finds wr_id and buffer in its own receive queue, at index `wqe`, which stays as it is
// until the completion is polled. Where that cannot be relied on the record is wide and names both.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "softhca/engine/shm_layout.h"

namespace softhca {

inline constexpr unsigned kBlockBytes = 64;
inline constexpr unsigned kHeaderData = 40;

enum RecordFlags : uint8_t {
  kRecordImm = 1,       // immediate data is valid
  kRecordGrh = 2,       // payload starts with a GRH
  kRecordRdma = 4,      // RECV_RDMA_WITH_IMM
  kRecordExtra = 8,     // RecordExtra is there
  kRecordWide = 16,     // RecordWide is there
  kRecordDirect = 32,   // the payload is not in the ring but already in its place
  kRecordDropped = 64,  // consumer: cleaned away
  kRecordPlaced = 128,  // consumer: payload was copied out
};

struct RecordHeader {
  std::atomic<uint64_t> seq;
  uint32_t wqe;
  uint32_t byte_len;
  uint32_t qpn_status;  // qpn << 8 | ibv_wc_status
  uint32_t rq_flags;    // RqShared offset / kRqGrain << 8 | RecordFlags
  unsigned char data[kHeaderData];

  uint32_t qpn() const noexcept { return qpn_status >> 8; }
  uint8_t status() const noexcept { return static_cast<uint8_t>(qpn_status); }
  uint8_t flags() const noexcept { return static_cast<uint8_t>(rq_flags); }
  void set(RecordFlags flag) noexcept { rq_flags |= flag; }
  Off rq() const noexcept { return (rq_flags >> 8) * kRqGrain; }

  static constexpr uint32_t kRqGrain = 2 * kLine;  // RqShared is aligned to it
};
static_assert(sizeof(RecordHeader) == kBlockBytes);
static_assert(alignof(RqShared) == RecordHeader::kRqGrain);
static_assert(kProcessSegmentBytes / RecordHeader::kRqGrain <= 1U << 24);

struct RecordWide {
  uint64_t wr_id;
  uint64_t dest;  // host address of the one segment that gets the payload
};
struct RecordExtra {
  uint32_t imm;
  uint32_t src_qp;
  uint16_t slid;
  uint16_t pkey_index;
  uint32_t vendor_err;
};
static_assert(sizeof(RecordWide) == 16 && sizeof(RecordExtra) == 16);

constexpr uint32_t record_prefix(unsigned flags) noexcept {
  return ((flags & kRecordWide) != 0 ? sizeof(RecordWide) : 0U) +
         ((flags & kRecordExtra) != 0 ? sizeof(RecordExtra) : 0U);
}
constexpr uint32_t record_payload(unsigned flags, uint32_t byte_len) noexcept {
  return (flags & kRecordDirect) != 0 ? 0 : byte_len;
}
// Blocks of a record, header included.
constexpr uint32_t record_blocks(unsigned flags, uint32_t byte_len) noexcept {
  const uint32_t bytes = record_prefix(flags) + record_payload(flags, byte_len);
  return bytes <= kHeaderData ? 1 : 1 + (bytes - kHeaderData + kBlockBytes - 1) / kBlockBytes;
}

}  // namespace softhca
