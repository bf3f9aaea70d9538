#include "softhca/engine/receive_ring.h"

#include <algorithm>
#include <cstring>

#include "softhca/engine/mr.h"
#include "softhca/engine/recv_queue.h"

namespace softhca {

namespace {

// Invalid fields get a value that nobody can mistake for right.
constexpr int kScribble = 0x5c;

RecvQueue* queue_of(const Cq& cq, const RecordHeader& record) noexcept {
  const Off off = record.rq();
  if (off == 0) return nullptr;
  return reinterpret_cast<RecvQueue*>(cq.proc->segment().at<RqShared>(off)->owner);
}

RecordWide wide_of(const RecordHeader& record) noexcept {
  RecordWide wide;
  std::memcpy(&wide, record.data, sizeof(wide));
  return wide;
}

RecordExtra extra_of(const RecordHeader& record) noexcept {
  RecordExtra extra{};
  if ((record.flags() & kRecordExtra) != 0) {
    const bool wide = (record.flags() & kRecordWide) != 0;
    std::memcpy(&extra, record.data + (wide ? sizeof(RecordWide) : 0), sizeof(extra));
  }
  return extra;
}

uint64_t wr_id_of(const RecordHeader& record, const RecvQueue& rq) noexcept {
  return (record.flags() & kRecordWide) != 0 ? wide_of(record).wr_id : rq.wqe(record.wqe)->wr_id;
}

// Host address of the single segment; the initiator has checked key and range.
uint64_t dest_of(const Cq& cq, const RecordHeader& record, const RecvQueue& rq) noexcept {
  if ((record.flags() & kRecordWide) != 0) return wide_of(record).dest;
  const SgeShared& sge = rq.wqe(record.wqe)->sge[0];
  return host_address(cq.proc->self(), sge.lkey, sge.addr);
}

void place(const Cq& cq, RecordHeader& record, const RecvQueue& rq) noexcept {
  const unsigned flags = record.flags();
  const uint32_t payload = record_payload(flags, record.byte_len);
  if (payload == 0 || (flags & kRecordPlaced) != 0) return;
  auto* dest = reinterpret_cast<char*>(dest_of(cq, record, rq));
  const auto* from = reinterpret_cast<const char*>(record.data) + record_prefix(flags);
  const auto to_end = static_cast<std::size_t>(cq.ring + (cq.block_mask + 1) * kBlockBytes - from);
  if (payload <= to_end) [[likely]] {
    std::memcpy(dest, from, payload);
  } else {
    std::memcpy(dest, from, to_end);
    std::memcpy(dest + to_end, cq.ring, payload - to_end);
  }
}

// The place of the request may be used again. Requests leave their queue in index order except
// wide ones, whose places nobody looks at any more.
void release_place(RecvQueue& rq, const RecordHeader& record) noexcept {
  if ((record.flags() & kRecordWide) != 0 && rq.sh->many_cqs.load(std::memory_order_relaxed) != 0) {
    return;
  }
  const uint32_t after = record.wqe + 1;
  const uint32_t seen = rq.polled.load(std::memory_order_relaxed);
  if (static_cast<int32_t>(after - seen) > 0) rq.polled.store(after, std::memory_order_release);
}

void describe(const RecordHeader& record, uint64_t wr_id, ibv_wc* wc) noexcept {
  const unsigned flags = record.flags();
  if (record.status() != IBV_WC_SUCCESS) [[unlikely]] {
    describe_error(wc, wr_id, record.status(), record.qpn(), extra_of(record).vendor_err);
    return;
  }
  wc->wr_id = wr_id;
  wc->status = IBV_WC_SUCCESS;
  wc->opcode = (flags & kRecordRdma) != 0 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc->vendor_err = 0;
  wc->byte_len = record.byte_len;
  wc->qp_num = record.qpn();
  wc->sl = 0;
  wc->dlid_path_bits = 0;
  wc->wc_flags = 0;
  if ((flags & kRecordExtra) == 0) [[likely]] {
    wc->imm_data = 0;
    wc->src_qp = 0;
    wc->pkey_index = 0;
    wc->slid = 0;
    return;
  }
  const RecordExtra extra = extra_of(record);
  wc->imm_data = extra.imm;
  wc->src_qp = extra.src_qp;
  wc->pkey_index = extra.pkey_index;
  wc->slid = extra.slid;
  if ((flags & kRecordImm) != 0) wc->wc_flags |= IBV_WC_WITH_IMM;
  if ((flags & kRecordGrh) != 0) wc->wc_flags |= IBV_WC_GRH;
}

}  // namespace

void describe_error(ibv_wc* wc, uint64_t wr_id, uint8_t status, uint32_t qpn,
                    uint32_t vendor_err) noexcept {
  std::memset(static_cast<void*>(wc), kScribble, sizeof(*wc));
  wc->wr_id = wr_id;
  wc->status = static_cast<ibv_wc_status>(status);
  wc->qp_num = qpn;
  wc->vendor_err = vendor_err;
}

void set_ring_head(Cq& cq, uint64_t head) noexcept {
  cq.head = head;
  cq.next.store(record_at(cq, head), std::memory_order_relaxed);
  cq.next_seq.store(cq.key + head, std::memory_order_relaxed);
}

bool take_record(Cq& cq, RecordHeader& record, ibv_wc* wc) noexcept {
  RecvQueue* rq = queue_of(cq, record);
  if (rq == nullptr) return false;
  const bool dropped = (record.flags() & kRecordDropped) != 0;
  if (!dropped) [[likely]] {
    place(cq, record, *rq);
    describe(record, wr_id_of(record, *rq), wc);
  }
  release_place(*rq, record);
  return !dropped;
}

void drop_records(Cq& cq, uint32_t qpn) noexcept {
  uint64_t at = cq.head;
  while (RecordHeader* record = published_at(cq, at)) {
    if (record->qpn() == qpn) record->set(kRecordDropped);
    at += record_blocks(record->flags(), record->byte_len);
  }
}

void forget_queue(Cq& cq, Off rq) noexcept {
  uint64_t at = cq.head;
  while (RecordHeader* record = published_at(cq, at)) {
    if (record->rq() == rq) record->rq_flags &= 0xffU;
    at += record_blocks(record->flags(), record->byte_len);
  }
}

void place_records(Cq& cq, uint64_t addr, uint64_t length) noexcept {
  uint64_t at = cq.head;
  while (RecordHeader* record = published_at(cq, at)) {
    const RecvQueue* rq = queue_of(cq, *record);
    const unsigned flags = record->flags();
    if (rq != nullptr && (flags & kRecordDropped) == 0 && record->status() == IBV_WC_SUCCESS &&
        record_payload(flags, record->byte_len) != 0) {
      const uint64_t dest = dest_of(cq, *record, *rq);
      if (dest >= addr && dest - addr < length) {
        place(cq, *record, *rq);
        record->set(kRecordPlaced);
      }
    }
    at += record_blocks(record->flags(), record->byte_len);
  }
}

}  // namespace softhca
