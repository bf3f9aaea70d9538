#include "softhca/engine/deliver.h"

#include <algorithm>
#include <cstring>

#include "softhca/engine/busy.h"
#include "softhca/engine/dma.h"
#include "softhca/engine/mr.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

namespace {

char* block_at(const CqShared& cq, const Peer& peer, uint64_t position) noexcept {
  return peer.base + cq.ring + (position & (cq.blocks - 1)) * kBlockBytes;
}

struct Room {
  bool any = false;      // one more entry fits
  bool payload = false;  // and its payload may travel in the ring
};

// Every entry that the queue still owes the application keeps one block.
Room room_in(CqShared& cq, uint32_t blocks) noexcept {
  const uint64_t tail = cq.tail.load(std::memory_order_relaxed);
  const uint64_t pushed = cq.pushed.load(std::memory_order_relaxed);
  const auto look = [&] {
    const uint64_t count = pushed - cq.popped_seen;
    const uint64_t used = tail - cq.head_seen;
    Room room;
    room.any = count < cq.cqe;
    room.payload = room.any && used + blocks + (cq.cqe - (count + 1)) <= cq.blocks;
    return room;
  };
  Room room = look();
  if (!room.payload) [[unlikely]] {
    cq.popped_seen = cq.popped.load(std::memory_order_relaxed);
    cq.head_seen = cq.head.load(std::memory_order_acquire);
    room = look();
  }
  return room;
}

// The fact is in shared memory before the lock is released; the datagram follows afterwards, and if
// we die before it, the owner's device thread notices that.
void call_owner(Peer& peer, WakeUps* wakes) noexcept {
  peer.hdr->attention.fetch_add(1);
  wakes->poke = true;
}

void overrun(Peer& peer, CqShared& cq, WakeUps* wakes) noexcept {
  cq.dead.store(1);
  kill_point(KillPoint::cq_overrun_marked);
  call_owner(peer, wakes);
  wakes->events = peer.at<WakeAddr>(cq.event_wake);
}

void count_notification(Peer& peer, CqShared& cq, bool solicited, WakeUps* wakes) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t armed = cq.armed.load(std::memory_order_relaxed);
  if (armed == 0 || (!solicited && armed != static_cast<uint32_t>(NotifyState::Any))) return;
  if (cq.armed.exchange(0) == 0) return;
  cq.pending.fetch_add(1);
  kill_point(KillPoint::deliver_notified);
  wakes->channel = peer.at<WakeAddr>(cq.channel);
}

void check_limit(Peer& peer, RqShared& rq, uint32_t head, WakeUps* wakes) noexcept {
  if (rq.tail_seen - head >= rq.limit) return;
  rq.tail_seen = rq.tail.load(std::memory_order_acquire);
  if (rq.tail_seen - head >= rq.limit) return;
  rq.limit_hit.store(1);
  rq.limit = 0;  // one shot
  kill_point(KillPoint::srq_limit_fired);
  call_owner(peer, wakes);
  wakes->events = peer.at<WakeAddr>(rq.event_wake);
}

// ---- journalled changes
// ---------------------------------------------------------------------------

// The header of a record and where it goes; the payload behind the header block is already there.
struct alignas(kLine) NewRecord {
  RecordHeader header;
  uint64_t position;
  uint32_t blocks;
};

struct Change {
  uint32_t rx_psn = 0;
  uint32_t reserved = 0;
  RqShared* rq = nullptr;  // nullptr: consumes no receive
  uint32_t rq_head = 0;
};

inline Off off_of(const Peer& peer, const void* p) noexcept {
  return static_cast<Off>(static_cast<const char*>(p) - peer.base);
}

inline void open_journal(Peer& peer, QpShared& qp, const Change& c) noexcept {
  Journal& j = peer.hdr->lock.journal;
  j.qp = off_of(peer, &qp);
  j.rq = c.rq == nullptr ? 0 : off_of(peer, c.rq);
  j.rq_head = c.rq_head;
  j.rx_psn = c.rx_psn;
  j.reserved = c.reserved;
}

inline void apply_change(QpShared& qp, const Change& c) noexcept {
  if (c.rq != nullptr) c.rq->head.store(c.rq_head, std::memory_order_release);
  kill_point(KillPoint::deliver_rq_popped);
  qp.rx_psn.store(c.rx_psn, std::memory_order_relaxed);
  qp.reserved.store(c.reserved, std::memory_order_relaxed);
}

inline void close_journal(Peer& peer) noexcept {
  peer.hdr->lock.journal.valid.store(0, std::memory_order_release);
  kill_point(KillPoint::deliver_journal_closed);
}

// Consumes a receive without completing it.
void reserve(Peer& peer, QpShared& qp, const Change& c) noexcept {
  open_journal(peer, qp, c);
  peer.hdr->lock.journal.cq = 0;
  peer.hdr->lock.journal.valid.store(1, std::memory_order_release);
  kill_point(KillPoint::deliver_journalled);
  apply_change(qp, c);
  close_journal(peer);
}

// The header line goes out in one burst with seq last: the consumer is polling it, and every store
// that it catches in between costs a round trip of the line.
inline void store_header(RecordHeader* to, const RecordHeader& from, uint64_t seq) noexcept {
  constexpr std::size_t kSeq = sizeof(to->seq);
  std::memcpy(reinterpret_cast<char*>(to) + kSeq, reinterpret_cast<const char*>(&from) + kSeq,
              kBlockBytes - kSeq);
  to->seq.store(seq, std::memory_order_release);
}

// The store of seq is what makes the message exist; everything else can be repeated from the
// journal.
inline void publish(Peer& peer, QpShared& qp, CqShared& cq, const NewRecord& record,
                    const Change& c) noexcept {
  open_journal(peer, qp, c);
  Journal& j = peer.hdr->lock.journal;
  j.cq = off_of(peer, &cq);
  j.cq_tail = record.position + record.blocks;
  j.record = record.position;
  j.valid.store(1, std::memory_order_release);
  kill_point(KillPoint::deliver_journalled);
  store_header(reinterpret_cast<RecordHeader*>(block_at(cq, peer, record.position)), record.header,
               cq.key + record.position);
  kill_point(KillPoint::deliver_published);
  apply_change(qp, c);
  cq.pushed.store(cq.pushed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  cq.tail.store(record.position + record.blocks, std::memory_order_release);
  close_journal(peer);
}

inline void begin_record(NewRecord* r, const QpShared& qp, const CqShared& cq, unsigned flags,
                         ibv_wc_status status, uint32_t wqe, uint32_t byte_len) noexcept {
  r->position = cq.tail.load(std::memory_order_relaxed);
  r->blocks = record_blocks(flags, byte_len);
  r->header.wqe = wqe;
  r->header.byte_len = byte_len;
  r->header.qpn_status = (qp.qpn.load(std::memory_order_relaxed) << 8) | status;
  r->header.rq_flags = (qp.rq / RecordHeader::kRqGrain << 8) | flags;
}

// ---- payload
// --------------------------------------------------------------------------------------

// Fills the header's data area first, then the blocks behind it, which may wrap.
class PayloadWriter {
 public:
  PayloadWriter(NewRecord* record, const CqShared& cq, const Peer& peer) noexcept
      : header_(record->header.data),
        room_(kHeaderData),
        at_(block_at(cq, peer, record->position + 1)),
        start_(peer.base + cq.ring),
        end_(start_ + std::size_t{cq.blocks} * kBlockBytes) {}

  void put(const void* from, std::size_t n) noexcept {
    const auto* bytes = static_cast<const char*>(from);
    const std::size_t first = std::min(n, room_);
    std::memcpy(header_, bytes, first);
    header_ += first;
    room_ -= first;
    if (first == n) [[likely]]
      return;
    put_behind(bytes + first, n - first);
  }

 private:
  void put_behind(const char* from, std::size_t n) noexcept {
    const auto room = static_cast<std::size_t>(end_ - at_);
    if (n <= room) [[likely]] {
      std::memcpy(at_, from, n);
      at_ += n;
      return;
    }
    std::memcpy(at_, from, room);
    std::memcpy(start_, from + room, n - room);
    at_ = start_ + (n - room);
  }

  unsigned char* header_;
  std::size_t room_;
  char* at_;
  char* start_;
  char* end_;
};

// The buffers of a receive work request, translated and cut to `total` bytes; false = key refused.
bool translate_buffers(const Peer& peer, const RqShared& rq, const RecvWqe& wqe, uint32_t total,
                       iovec* out, unsigned* count) noexcept {
  *count = 0;
  uint32_t left = total;
  for (uint32_t i = 0; i < wqe.num_sge && left != 0; ++i) {
    const SgeShared& sge = (&wqe.sge[0])[i];
    const uint32_t n = std::min(sge.length, left);
    if (n == 0) continue;
    uint64_t host = 0;
    if (*count == kMaxSegments || !translate(peer.base, *peer.hdr, sge.lkey, rq.pd,
                                             IBV_ACCESS_LOCAL_WRITE, sge.addr, n, &host)) {
      return false;
    }
    out[(*count)++] = {reinterpret_cast<void*>(host), n};
    left -= n;
  }
  return true;
}

int copy_direct(const Peer& peer, const iovec* to, unsigned to_count, const Message& m,
                uint32_t total) {
  iovec from[kMaxSegments + 1];
  unsigned n = 0;
  if (m.grh != nullptr) from[n++] = {const_cast<ibv_grh*>(m.grh), kGrhBytes};
  for (unsigned i = 0; i < m.count; ++i) from[n++] = m.pieces[i];
  return dma_scatter(peer, to, to_count, from, n, total);
}

bool accepts(const QpShared& qp, uint32_t qpn) noexcept {
  const uint32_t state = qp.state.load(std::memory_order_acquire);
  return qp.qpn.load(std::memory_order_relaxed) == qpn &&
         (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

// ---- the ways a message ends
// ----------------------------------------------------------------------

Verdict fail_receive(Peer& peer, QpShared& qp, RqShared& rq, const RecvWqe& wqe,
                     ibv_wc_status status, WakeUps* wakes) {
  const uint32_t head = rq.head.load(std::memory_order_relaxed);
  const ErrorRecord error{wqe.wr_id, head, status, 0};
  Change pop;
  pop.rq = &rq;
  pop.rq_head = head + 1;
  pop.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  reserve(peer, qp, pop);
  publish_error(peer, qp, error, wakes);
  qp.state.store(IBV_QPS_ERR);
  kill_point(KillPoint::nak_state_set);
  call_owner(peer, wakes);
  return status == IBV_WC_LOC_LEN_ERR ? Verdict::BufferTooSmall : Verdict::BufferForbidden;
}

struct Incoming {
  RqShared* rq;
  const RecvWqe* wqe;
  uint32_t head;  // index of the request
  uint32_t total;
  iovec to[kMaxSegments];
  unsigned to_count;
};

// A message that is too large for the ring: reserve the receive, copy without the lock, publish.
Verdict deliver_large(Process& self, Peer& peer, QpShared& qp, const Message& m, const Incoming& in,
                      WakeUps* wakes) {
  const uint32_t qpn = qp.qpn.load(std::memory_order_relaxed);
  const RecordWide wide{in.wqe->wr_id, 0};
  if (!take_busy(self, qp)) return Verdict::Gone;
  qp.reserved_wr_id = wide.wr_id;
  qp.reserved_index = in.head;
  Change take;
  take.rq = in.rq;
  take.rq_head = in.head + 1;
  take.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  take.reserved = 1;
  reserve(peer, qp, take);
  kill_point(KillPoint::reserve_popped);
  if (in.rq->limit != 0) check_limit(peer, *in.rq, take.rq_head, wakes);
  self.unlock(peer);
  kill_point(KillPoint::reserve_copying);
  const int rc = copy_direct(peer, in.to, in.to_count, m, in.total);
  // The reservation must be settled, however long somebody who is stopped holds the lock.
  while (!self.lock(peer)) {
    if (self.inert() || peer.hdr->lock.word.load() == kDeadWord) return Verdict::Unlocked;
  }
  kill_point(KillPoint::reserve_relocked);
  Verdict verdict = Verdict::Gone;
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  // The owner may have moved the QP meanwhile; then the reserved request is its to flush.
  if (rc == 0 && accepts(qp, qpn) && still_busy(self, qp)) {
    if (cq.dead.load() != 0 || !room_in(cq, 1).any) {
      overrun(peer, cq, wakes);
      verdict = Verdict::QueueDead;
    } else {
      NewRecord record;
      begin_record(&record, qp, cq, m.flags | kRecordWide | kRecordDirect, IBV_WC_SUCCESS, in.head,
                   m.byte_len);
      std::memcpy(record.header.data, &wide, sizeof(wide));
      if ((m.flags & kRecordExtra) != 0) {
        std::memcpy(record.header.data + sizeof(wide), &m.extra, sizeof(m.extra));
      }
      Change done;
      done.rx_psn = m.next_psn;
      publish(peer, qp, cq, record, done);
      if (cq.channel != 0) count_notification(peer, cq, m.solicited, wakes);
      verdict = Verdict::Delivered;
    }
  }
  release_busy(self, qp);
  return verdict;
}

// Everything is checked and there is room: writes the record.
Verdict deliver_small(Peer& peer, QpShared& qp, CqShared& cq, const Message& m, const Incoming& in,
                      unsigned flags, WakeUps* wakes) {
  NewRecord record;
  begin_record(&record, qp, cq, flags, IBV_WC_SUCCESS, in.head, m.byte_len);
  PayloadWriter writer(&record, cq, peer);
  if ((flags & kRecordWide) != 0) [[unlikely]] {
    const RecordWide wide{in.wqe->wr_id,
                          in.to_count == 0 ? 0 : reinterpret_cast<uint64_t>(in.to[0].iov_base)};
    writer.put(&wide, sizeof(wide));
  }
  if ((flags & kRecordExtra) != 0) writer.put(&m.extra, sizeof(m.extra));
  if ((flags & kRecordDirect) == 0) {
    if (m.grh != nullptr) writer.put(m.grh, kGrhBytes);
    for (unsigned i = 0; i < m.count; ++i) writer.put(m.pieces[i].iov_base, m.pieces[i].iov_len);
  } else if (copy_direct(peer, in.to, in.to_count, m, in.total) != 0) {
    return Verdict::Gone;
  }
  kill_point(KillPoint::deliver_record_written);
  Change change;
  change.rq = in.rq;
  change.rq_head = in.head + 1;
  change.rx_psn = m.next_psn;
  publish(peer, qp, cq, record, change);
  // The next receive was posted long ago: have it here before it is needed.
  __builtin_prefetch(peer.base + in.rq->ring +
                     std::size_t{change.rq_head & in.rq->mask} * in.rq->stride);
  if (in.rq->limit != 0) [[unlikely]]
    check_limit(peer, *in.rq, change.rq_head, wakes);
  if (cq.channel != 0) count_notification(peer, cq, m.solicited, wakes);
  return Verdict::Delivered;
}

}  // namespace

Verdict deliver(Process& self, Peer& peer, QpShared& qp, const Message& m, WakeUps* wakes) {
  Incoming in;
  in.rq = peer.at<RqShared>(qp.rq);
  RqShared& rq = *in.rq;
  in.head = rq.head.load(std::memory_order_relaxed);
  if (in.head == rq.tail_seen) {
    rq.tail_seen = rq.tail.load(std::memory_order_acquire);
    if (in.head == rq.tail_seen) return Verdict::NotReady;
  }
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  if (cq.dead.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return Verdict::QueueDead;
  in.total = m.length + (m.grh != nullptr ? kGrhBytes : 0);
  if (in.total > kHeaderData) {
    prefetch_for_write(block_at(cq, peer, cq.tail.load(std::memory_order_relaxed) + 1));
  }
  in.wqe = reinterpret_cast<const RecvWqe*>(peer.base + rq.ring +
                                            std::size_t{in.head & rq.mask} * rq.stride);
  const bool datagram = qp.type == IBV_QPT_UD;
  if (in.wqe->total < in.total) [[unlikely]] {
    if (datagram) return Verdict::BufferTooSmall;
    return fail_receive(peer, qp, rq, *in.wqe, IBV_WC_LOC_LEN_ERR, wakes);
  }
  if (!translate_buffers(peer, rq, *in.wqe, in.total, in.to, &in.to_count)) [[unlikely]] {
    if (datagram) return Verdict::BufferForbidden;
    return fail_receive(peer, qp, rq, *in.wqe, IBV_WC_LOC_PROT_ERR, wakes);
  }
  unsigned flags = m.flags;
  if (rq.many_cqs.load(std::memory_order_relaxed) != 0) [[unlikely]]
    flags |= kRecordWide;
  const bool rides = in.to_count <= 1 && in.total <= kMaxRingPayload;
  const Room room = room_in(cq, rides ? record_blocks(flags, in.total) : 1);
  if (!room.any) [[unlikely]] {
    overrun(peer, cq, wakes);
    return Verdict::QueueDead;
  }
  // The consumer finds one segment through the request, and only the first.
  const bool first_segment = in.to_count == 0 || in.wqe->sge[0].length >= in.total;
  if (!rides || !room.payload || !first_segment) {
    if (in.total > kMaxDirectUnderLock && !datagram) {
      return deliver_large(self, peer, qp, m, in, wakes);
    }
    flags |= kRecordDirect;
  }
  return deliver_small(peer, qp, cq, m, in, flags, wakes);
}

bool publish_error(Peer& peer, QpShared& qp, const ErrorRecord& error, WakeUps* wakes) {
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  if (cq.dead.load(std::memory_order_relaxed) != 0) return false;
  if (!room_in(cq, 1).any) {
    overrun(peer, cq, wakes);
    return false;
  }
  NewRecord record;
  begin_record(&record, qp, cq, kRecordWide | kRecordExtra | kRecordDirect, error.status,
               error.index, 0);
  const RecordWide wide{error.wr_id, 0};
  RecordExtra extra{};
  extra.vendor_err = error.vendor_err;
  std::memcpy(record.header.data, &wide, sizeof(wide));
  std::memcpy(record.header.data + sizeof(wide), &extra, sizeof(extra));
  Change nothing;
  nothing.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  nothing.reserved = qp.reserved.load(std::memory_order_relaxed);
  publish(peer, qp, cq, record, nothing);
  if (cq.channel != 0) count_notification(peer, cq, true, wakes);
  return true;
}

void send_wakes(const Process& self, Peer& peer, const WakeUps& wakes) noexcept {
  if (wakes.poke) self.waker().wake(peer.hdr->device_thread);
  if (wakes.channel != nullptr) self.waker().wake(*wakes.channel);
  if (wakes.events != nullptr) self.waker().wake(*wakes.events);
}

void report_established(Peer& peer, QpShared& qp, WakeUps* wakes) noexcept {
  if (qp.talking.exchange(1) != 0) return;
  qp.events.fetch_or(kQpCommEst);
  call_owner(peer, wakes);
  wakes->events = peer.at<WakeAddr>(qp.event_wake);
}

bool nak_target(Process& self, Peer& peer, QpShared& qp, uint32_t qpn, uint32_t event_bits) {
  if (!self.lock(peer)) return false;
  WakeUps wakes;
  const bool up = accepts(qp, qpn);
  if (up) {
    qp.events.fetch_or(event_bits);
    kill_point(KillPoint::nak_events_set);
    qp.state.store(IBV_QPS_ERR);
    kill_point(KillPoint::nak_state_set);
    call_owner(peer, &wakes);
    wakes.events = peer.at<WakeAddr>(qp.event_wake);
  }
  self.unlock(peer);
  send_wakes(self, peer, wakes);
  return up;
}

}  // namespace softhca
