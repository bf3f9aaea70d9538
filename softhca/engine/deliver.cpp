#include "softhca/engine/deliver.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "softhca/engine/dma.h"
#include "softhca/engine/mr.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

namespace {

char* block_at(const CqShared& cq, char* base, uint64_t position) noexcept {
  return base + cq.ring + (position & (cq.blocks - 1)) * kBlockBytes;
}

uint32_t blocks_for(uint32_t payload) noexcept {
  return payload <= kHeaderPayload ? 1
                                   : 1 + (payload - kHeaderPayload + kBlockBytes - 1) / kBlockBytes;
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

// One journalled change of a target: optionally consumes a receive, optionally publishes a record.
struct Commit {
  QpShared* qp;
  RqShared* rq = nullptr;
  uint32_t rq_head = 0;
  CqShared* cq = nullptr;
  RecordHeader* record = nullptr;
  uint64_t position = 0;
  uint32_t blocks = 0;
  uint32_t rx_psn = 0;
  uint32_t reserved = 0;
};

inline Off off_of(const Peer& peer, const void* p) noexcept {
  return static_cast<Off>(static_cast<const char*>(p) - peer.base);
}

inline void commit(Peer& peer, const Commit& c) noexcept {
  Journal& j = peer.hdr->lock.journal;
  j.qp = off_of(peer, c.qp);
  j.rq = c.rq == nullptr ? 0 : off_of(peer, c.rq);
  j.rq_head = c.rq_head;
  j.cq = c.cq == nullptr ? 0 : off_of(peer, c.cq);
  j.rx_psn = c.rx_psn;
  j.reserved = c.reserved;
  j.cq_tail = c.position + c.blocks;
  j.record = c.position;
  j.valid.store(1, std::memory_order_release);
  kill_point(KillPoint::deliver_journalled);
  if (c.rq != nullptr) c.rq->head.store(c.rq_head, std::memory_order_release);
  kill_point(KillPoint::deliver_rq_popped);
  c.qp->rx_psn.store(c.rx_psn, std::memory_order_relaxed);
  c.qp->reserved.store(c.reserved, std::memory_order_relaxed);
  if (c.cq != nullptr) {
    c.cq->pushed.store(c.cq->pushed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    c.cq->tail.store(j.cq_tail, std::memory_order_release);
    c.record->seq.store(c.cq->key + c.position, std::memory_order_release);
  }
  kill_point(KillPoint::deliver_published);
  j.valid.store(0, std::memory_order_release);
  kill_point(KillPoint::deliver_journal_closed);
}

// Starts a record at the tail.
RecordHeader* open_record(Peer& peer, CqShared& cq, uint32_t blocks, uint64_t* position) noexcept {
  *position = cq.tail.load(std::memory_order_relaxed);
  auto* record = reinterpret_cast<RecordHeader*>(block_at(cq, peer.base, *position));
  record->blocks = static_cast<uint8_t>(blocks);
  return record;
}

void fill_record(RecordHeader* r, const QpShared& qp, const Message& m, uint64_t wr_id,
                 uint32_t total) noexcept {
  r->status = IBV_WC_SUCCESS;
  r->opcode = m.opcode;
  r->flags = m.flags;
  r->wr_id = wr_id;
  r->byte_len = m.byte_len;
  r->qpn = qp.qpn.load(std::memory_order_relaxed);
  r->imm = m.imm;
  r->src_qp = m.src_qp;
  r->payload = static_cast<uint16_t>(total);
  r->slid = m.slid;
  r->pkey_index = m.pkey_index;
  r->rq = qp.rq;
}

// Copies into the ring, which may wrap in the middle of a piece.
class RingWriter {
 public:
  RingWriter(CqShared& cq, char* base, unsigned char* at) noexcept
      : start_(base + cq.ring),
        end_(start_ + std::size_t{cq.blocks} * kBlockBytes),
        at_(reinterpret_cast<char*>(at)) {}

  void put(const void* from, std::size_t n) noexcept {
    const auto room = static_cast<std::size_t>(end_ - at_);
    if (n <= room) [[likely]] {
      std::memcpy(at_, from, n);
      at_ += n;
      return;
    }
    std::memcpy(at_, from, room);
    std::memcpy(start_, static_cast<const char*>(from) + room, n - room);
    at_ = start_ + (n - room);
  }

 private:
  char* start_;
  char* end_;
  char* at_;
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

Verdict fail_receive(Process& self, Peer& peer, QpShared& qp, RqShared& rq, const RecvWqe& wqe,
                     uint8_t status, WakeUps* wakes) {
  const uint64_t wr_id = wqe.wr_id;
  Commit c{.qp = &qp};
  c.rq = &rq;
  c.rq_head = rq.head.load(std::memory_order_relaxed) + 1;
  c.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  commit(peer, c);
  publish_bare(self, peer, qp, wr_id, status, 0, wakes);
  qp.state.store(IBV_QPS_ERR);
  kill_point(KillPoint::nak_state_set);
  call_owner(peer, wakes);
  return status == IBV_WC_LOC_LEN_ERR ? Verdict::BufferTooSmall : Verdict::BufferForbidden;
}

// A message that is too large for the ring: reserve the receive, copy without the lock, publish.
Verdict deliver_large(Process& self, Peer& peer, QpShared& qp, RqShared& rq, const RecvWqe& wqe,
                      const iovec* to, unsigned to_count, const Message& m, uint32_t total,
                      WakeUps* wakes) {
  const uint32_t qpn = qp.qpn.load(std::memory_order_relaxed);
  const uint64_t wr_id = wqe.wr_id;
  if (!set_busy(self, qp)) return Verdict::Gone;
  qp.reserved_wr_id = wr_id;
  Commit reserve{.qp = &qp};
  reserve.rq = &rq;
  reserve.rq_head = rq.head.load(std::memory_order_relaxed) + 1;
  reserve.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  reserve.reserved = 1;
  commit(peer, reserve);
  kill_point(KillPoint::reserve_popped);
  if (rq.limit != 0) check_limit(peer, rq, reserve.rq_head, wakes);
  self.unlock(peer);
  kill_point(KillPoint::reserve_copying);
  const int rc = copy_direct(peer, to, to_count, m, total);
  const bool locked = self.lock(peer);
  kill_point(KillPoint::reserve_relocked);
  Verdict verdict = Verdict::Gone;
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  // The owner may have moved the QP meanwhile; then the reserved request is its to flush.
  if (locked && rc == 0 && accepts(qp, qpn)) {
    if (!room_in(cq, 1).any) {
      overrun(peer, cq, wakes);
      verdict = Verdict::QueueDead;
    } else {
      Commit done{.qp = &qp};
      done.cq = &cq;
      done.blocks = 1;
      done.record = open_record(peer, cq, 1, &done.position);
      done.rx_psn = m.next_psn;
      fill_record(done.record, qp, m, wr_id, 0);
      commit(peer, done);
      if (cq.channel != 0) {
        count_notification(peer, cq, (m.flags & kRecordSolicited) != 0, wakes);
      }
      verdict = Verdict::Delivered;
    }
  }
  clear_busy(qp);
  if (!locked) wakes->poke = false;
  return verdict;
}

}  // namespace

bool set_busy(Process& self, QpShared& qp) noexcept {
  for (unsigned spins = 1;; ++spins) {
    HolderWord seen = kFreeWord;
    if (qp.busy.compare_exchange_strong(seen, self.word(), std::memory_order_seq_cst)) return true;
    if (seen != self.word() && !self.fabric().global.alive(holder_slot(seen), holder_gen(seen))) {
      // A dead initiator's mark. Its work was never acknowledged.
      if (qp.busy.compare_exchange_strong(seen, self.word())) return true;
    }
    if (spins == 1000) return false;
    ::sched_yield();
  }
}

Verdict deliver(Process& self, Peer& peer, QpShared& qp, const Message& m, WakeUps* wakes) {
  RqShared& rq = *peer.at<RqShared>(qp.rq);
  const uint32_t head = rq.head.load(std::memory_order_relaxed);
  if (head == rq.tail_seen) {
    rq.tail_seen = rq.tail.load(std::memory_order_acquire);
    if (head == rq.tail_seen) return Verdict::NotReady;
  }
  const auto& wqe = *reinterpret_cast<const RecvWqe*>(peer.base + rq.ring +
                                                      std::size_t{head & rq.mask} * rq.stride);
  const bool datagram = qp.type == IBV_QPT_UD;
  const uint32_t total = m.length + (m.grh != nullptr ? kGrhBytes : 0);
  if (wqe.total < total) [[unlikely]] {
    if (datagram) return Verdict::BufferTooSmall;
    return fail_receive(self, peer, qp, rq, wqe, IBV_WC_LOC_LEN_ERR, wakes);
  }
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  if (cq.dead.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return Verdict::QueueDead;
  iovec to[kMaxSegments];
  unsigned to_count = 0;
  if (!translate_buffers(peer, rq, wqe, total, to, &to_count)) [[unlikely]] {
    if (datagram) return Verdict::BufferForbidden;
    return fail_receive(self, peer, qp, rq, wqe, IBV_WC_LOC_PROT_ERR, wakes);
  }
  const bool may_ride = to_count <= 1 && total <= kMaxRingPayload;
  const uint32_t wanted = may_ride ? blocks_for(total) : 1;
  const Room room = room_in(cq, wanted);
  if (!room.any) [[unlikely]] {
    overrun(peer, cq, wakes);
    return Verdict::QueueDead;
  }
  if (total > kMaxRingPayload) {
    return deliver_large(self, peer, qp, rq, wqe, to, to_count, m, total, wakes);
  }
  const bool ride = may_ride && room.payload;
  Commit c{.qp = &qp};
  c.rq = &rq;
  c.rq_head = head + 1;
  c.cq = &cq;
  c.blocks = ride ? wanted : 1;
  c.rx_psn = m.next_psn;
  c.record = open_record(peer, cq, c.blocks, &c.position);
  fill_record(c.record, qp, m, wqe.wr_id, ride ? total : 0);
  if (ride) {
    c.record->dest = to_count == 0 ? 0 : reinterpret_cast<uint64_t>(to[0].iov_base);
    RingWriter writer(cq, peer.base, c.record->data);
    if (m.grh != nullptr) writer.put(m.grh, kGrhBytes);
    for (unsigned i = 0; i < m.count; ++i) writer.put(m.pieces[i].iov_base, m.pieces[i].iov_len);
  } else if (copy_direct(peer, to, to_count, m, total) != 0) {
    return Verdict::Gone;
  }
  kill_point(KillPoint::deliver_record_written);
  commit(peer, c);
  // The next receive was posted long ago: have it here before it is needed.
  __builtin_prefetch(peer.base + rq.ring + std::size_t{c.rq_head & rq.mask} * rq.stride);
  if (rq.limit != 0) [[unlikely]]
    check_limit(peer, rq, c.rq_head, wakes);
  if (cq.channel != 0) {
    count_notification(peer, cq, (m.flags & kRecordSolicited) != 0, wakes);
  }
  return Verdict::Delivered;
}

bool publish_bare(Process& self, Peer& peer, QpShared& qp, uint64_t wr_id, uint8_t status,
                  uint32_t vendor_err, WakeUps* wakes) {
  (void)self;
  CqShared& cq = *peer.at<CqShared>(qp.cq);
  if (cq.dead.load(std::memory_order_relaxed) != 0) return false;
  if (!room_in(cq, 1).any) {
    overrun(peer, cq, wakes);
    return false;
  }
  Commit c{.qp = &qp};
  c.cq = &cq;
  c.blocks = 1;
  c.record = open_record(peer, cq, 1, &c.position);
  c.rx_psn = qp.rx_psn.load(std::memory_order_relaxed);
  c.reserved = 0;
  Message m;
  m.imm = vendor_err;
  fill_record(c.record, qp, m, wr_id, 0);
  c.record->status = status;
  commit(peer, c);
  if (cq.channel != 0) count_notification(peer, cq, true, wakes);
  return true;
}

void send_wakes(const Process& self, Peer& peer, const WakeUps& wakes) noexcept {
  if (wakes.poke) self.waker().wake(peer.hdr->device_thread);
  if (wakes.channel != nullptr) self.waker().wake(*wakes.channel);
  if (wakes.events != nullptr) self.waker().wake(*wakes.events);
}

void nak_target(Process& self, Peer& peer, QpShared& qp, uint32_t qpn, uint32_t event_bits) {
  if (!self.lock(peer)) return;
  WakeUps wakes;
  if (accepts(qp, qpn)) {
    qp.events.fetch_or(event_bits);
    kill_point(KillPoint::nak_events_set);
    qp.state.store(IBV_QPS_ERR);
    kill_point(KillPoint::nak_state_set);
    call_owner(peer, &wakes);
    wakes.events = peer.at<WakeAddr>(qp.event_wake);
  }
  self.unlock(peer);
  send_wakes(self, peer, wakes);
}

}  // namespace softhca
