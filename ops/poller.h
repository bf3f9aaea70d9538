// Poller: polls the CQ of one rail, counts and queues its entries in one critical section (which the fence shares), delivers
// receives in order, returns every receive buffer to the SRQ at once, and runs the callbacks that are due.
//
// Thread contract: progress() from any application thread; one thread at a time delivers (try-lock; the owner may re-enter from an
// upcall and goes on with the next entry). drain_for_fence() from the worker thread moves receives to the stash, which
// progress() delivers first. The poll lock is never held by a thread that waits for anything but the device.
// Invariant: every receive buffer is posted, delivered (in an upcall) or stashed; the ledger's counts add up (I6).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ops/channel.h"
#include "ops/recv_pool.h"

struct ibv_cq;

namespace mend::ops {

// The upper layer's receive upcall: payload is valid during the call only.
using DeliverFn = void (*)(void* context, std::uint8_t tag, std::span<const std::byte> payload);

class Poller {
 public:
  Poller(ibv_cq* cq, RecvPool& recv_pool, std::uint32_t cq_depth);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Lane registry: which channel a QP number belongs to (receive CQEs carry only qp_num). Called before the QP leaves RESET and
  // after it is parked. context is handed to deliver.
  void add_lane(Qpn qpn, Epoch epoch, Channel& channel, DeliverFn deliver, void* context);
  void remove_lane(Qpn qpn);

  int progress();           // application threads; returns the number of events handled (0 = idle)
  void drain_for_fence();   // worker thread: poll until empty, receives go to the stash
  // Beacons and probes: a completion whose wr_id was made by make_beacon_wr_id() sets this flag instead of reaching a channel.
  std::uint64_t make_beacon_wr_id(std::atomic<int>* done_status);

  // Callbacks due (sends accepted, rdma done, amo done); any thread may push, only progress() runs them.
  void push_sent(Frag& frag);
  void push_done(RdmaOp& op);
  void push_done(AmoCall& call);
  bool callbacks_due() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mend::ops
