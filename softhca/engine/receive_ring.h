// The consumer's view of a completion queue's record ring. All calls need the Cq's lock.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/engine/cq.h"
#include "softhca/engine/record.h"

namespace softhca {

inline RecordHeader* record_at(const Cq& cq, uint64_t position) noexcept {
  return reinterpret_cast<RecordHeader*>(cq.ring + (position & cq.block_mask) * kBlockBytes);
}
// The record at `position` if it is published, else nullptr.
inline RecordHeader* published_at(const Cq& cq, uint64_t position) noexcept {
  RecordHeader* record = record_at(cq, position);
  return record->seq.load(std::memory_order_acquire) == cq.key + position ? record : nullptr;
}

void set_ring_head(Cq& cq, uint64_t head) noexcept;
// Moves the payload to its buffer and describes the completion; false: it had been cleaned away.
bool take_record(Cq& cq, RecordHeader& record, ibv_wc* wc) noexcept;

// Drops everything that belongs to a QP (RESET and destroy do that).
void drop_records(Cq& cq, uint32_t qpn) noexcept;
// Forgets a receive queue that goes away: its dropped records must not lead to it any more.
void forget_queue(Cq& cq, Off rq) noexcept;
// Copies payloads out that still sit in the ring and belong to [addr, addr + length).
void place_records(Cq& cq, uint64_t addr, uint64_t length) noexcept;

// An error completion: only wr_id, status, qp_num and vendor_err mean anything.
void describe_error(ibv_wc* wc, uint64_t wr_id, uint8_t status, uint32_t qpn,
                    uint32_t vendor_err) noexcept;

}  // namespace softhca
