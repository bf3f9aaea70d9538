// Receive queues, private (of one QP) or shared (SRQ). The owner produces work requests without any
// shared lock, initiators consume them under the process lock. The lock here is private to the
// owner's posting threads.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/engine/context.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

struct RecvQueue {
  Process* proc = nullptr;
  RqShared* sh = nullptr;
  char* ring = nullptr;
  Off ring_off = 0;
  uint32_t capacity = 0;  // slots of the ring, a power of two
  uint32_t max_wr = 0;
  uint32_t max_sge = 0;
  uint32_t tail = 0;
  uint32_t head_seen = 0;
  SpinLock lock;
  // Index behind the last request whose completion was polled. Places are given out again up to
  // here and not up to the initiators' head: the consumer still reads the request when it polls,
  // and looking at that head would cost every message two cache misses.
  std::atomic<uint32_t> polled{0};
  uint32_t narrow_until = 0;    // many_cqs: the head when that began
  CqShared* only_cq = nullptr;  // the one that reports, while there is one

  int create(Process& process, uint32_t wr, uint32_t sge, uint32_t pd, bool shared, Off event_wake);
  void destroy();
  // 0, or ENOMEM / EINVAL with *bad at the first work request that was not queued.
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);

  // Several completion queues report from here on: places are free as soon as they are consumed,
  // once those consumed so far have been polled. The process lock is held.
  void serve_many_cqs() noexcept;
  // Whether one more work request fits; `lock` is held.
  bool has_room() noexcept;

  RecvWqe* wqe(uint32_t index) const noexcept {
    return reinterpret_cast<RecvWqe*>(ring + std::size_t{index & (capacity - 1)} * sh->stride);
  }
};

struct Srq {
  ibv_srq srq{};
  Pd* owner = nullptr;
  RecvQueue rq;
  std::atomic<uint32_t> users{0};
  uint32_t events_fetched = 0;  // under srq.mutex; acked: srq.events_completed
  uint32_t number = 0;
};

inline Srq* srq_of(ibv_srq* srq) noexcept { return reinterpret_cast<Srq*>(srq); }

Srq* create_srq(Pd& pd, ibv_srq_init_attr& init);
int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask);
int query_srq(Srq& srq, ibv_srq_attr* attr);
int destroy_srq(Srq* srq);

}  // namespace softhca
