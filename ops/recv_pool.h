// RecvPool: the receive buffers of one shared receive queue (or, on a device without SRQ, of each
// QP's own receive queue) and the ledger that knows where each one is.
//
// Thread contract: taken/stash/deliver transitions belong to the Poller (its poll lock or its
// delivery ownership); repost() from any thread; create, ensure, grow, attach_queue, detach_queue
// and audit from the worker thread (or set-up). Invariants: posted + delivered + stashed + idle ==
// depth (I6); with an SRQ idle is 0 and depth >= 2 x live QPs (the 2 x rule); a buffer is posted
// again before its receive callback's caller returns to progress.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ops/memory_hooks.h"
#include "ops/request.h"
#include "ops/spin_lock.h"
#include "plugin/verbs/error.h"

namespace mend::ops {

// The upper layer's receive upcall: payload is valid during the call only.
using DeliverFn = void (*)(void* context, std::uint8_t tag, std::span<const std::byte> payload);

enum class BufferState : std::uint8_t { Idle, Posted, Stashed, Delivered };
const char* to_string(BufferState state);

// One receive buffer. Its work request is built once. Only the address travels in wr_id.
struct alignas(64) RecvBuf {
  ibv_recv_wr wr;
  ibv_sge sge;
  RecvBuf* next = nullptr;      // link of the stash, the delivery queue or the idle list
  DeliverFn deliver = nullptr;  // whose it is, once counted
  void* deliver_context = nullptr;
  ibv_qp* queue = nullptr;          // per-QP receive queue it belongs to; nullptr: the SRQ
  std::uint32_t index = 0;          // for the debug log
  std::uint32_t payload_bytes = 0;  // received, behind the header
  // Kept while hand-overs are traced and without an SRQ; else Posted or Idle as last posted.
  std::atomic<BufferState> state{BufferState::Idle};

  std::byte* data() const { return reinterpret_cast<std::byte*>(sge.addr); }
  const DataHeader& header() const { return *reinterpret_cast<const DataHeader*>(sge.addr); }
  const std::byte* payload() const { return data() + sizeof(DataHeader); }
};

struct RecvLedger {
  std::uint32_t depth = 0, posted = 0, delivered = 0, stashed = 0, idle = 0;
  std::uint32_t min_posted = 0;  // lowest number of posted buffers ever (srq_min_free)
  std::uint32_t lost = 0;        // buffers found missing by an audit and posted again (srq_lost)
};

struct RecvPoolConfig {
  ibv_srq* srq = nullptr;           // nullptr: per-QP receive queues
  RailId rail;                      // which local key the device wants
  std::uint32_t payload_bytes = 0;  // buffer = header + this
  std::uint32_t depth = 0;  // buffers at the start (SRQ), or buffers of each QP's queue (no SRQ)
  std::uint32_t max_depth = 0;  // capacity of the SRQ (or of all QPs together); growing stops there
  // Arms the SRQ limit (ibv_modify_srq, which is not inline); may be null. Returns errno.
  int (*arm_limit)(void* context, ibv_srq* srq, std::uint32_t limit) = nullptr;
  void* arm_context = nullptr;
};

// Debug log of each hand-over (run-time switch; costs one load when off).
using RecvTrace = void (*)(void* context, const RecvBuf& buf, BufferState from, BufferState to);

class RecvPool {
 public:
  static Result<std::unique_ptr<RecvPool>> create(const RecvPoolConfig& config,
                                                  const MemoryHooks& hooks);
  ~RecvPool();  // after the SRQ and the QPs are gone
  RecvPool(const RecvPool&) = delete;
  RecvPool& operator=(const RecvPool&) = delete;

  // The 2 x rule: call before a QP is created with the number of QPs that will then be live. Grows
  // when needed; the error names the rule, both numbers and the device's limit, and the QP must not
  // be created.
  Result<void> ensure(std::uint32_t live_qps);
  Result<void> grow(std::uint32_t new_depth);

  // Devices without SRQ: posts `depth` buffers on the QP's own receive queue (QP in INIT), and
  // takes them back after RESET.
  bool per_qp() const { return config_.srq == nullptr; }
  Result<void> attach_queue(ibv_qp* qp);
  void detach_queue(ibv_qp* qp);

  // After a fence has drained the CQ: the device should hold exactly ledger().posted buffers.
  // device_posted is what it really holds where that can be asked (else pass the ledger's own
  // value); the difference is posted again from spare buffers.
  std::uint32_t audit(std::uint32_t device_posted);
  // The owner made the receive queue larger.
  void set_max_depth(std::uint32_t max_depth) { config_.max_depth = max_depth; }
  int arm_limit(std::uint32_t limit);  // one-shot, re-armed by the owner after the event; errno

  void set_trace(RecvTrace trace, void* context);
  RecvLedger ledger() const;
  std::uint32_t buffer_bytes() const;  // header and payload
  std::uint32_t depth() const { return depth_.load(std::memory_order_relaxed); }

  // --- transitions, for the Poller (inline: they are on the path of every message) ---
  // Posted -> Delivered, under the poll lock, for the delivery owner who goes on to the upcall.
  // Nothing is stashed then. `only`: the owner is in no other upcall, so this buffer needs no
  // counting.
  template <bool kOnly>
  void take(RecvBuf& buf) {
    set_state(buf, BufferState::Delivered);
    if constexpr (kOnly) {
      only_.store(kOnlyOut, std::memory_order_relaxed);
    } else {
      add(held_, 1);
    }
  }
  // Delivered -> Posted, for a buffer that was taken so, by the delivery owner.
  template <bool kOnly>
  void give_back(RecvBuf& buf) {
    if constexpr (kOnly) {
      only_.store(kOnlyBack, std::memory_order_relaxed);
      post(buf);
    } else {
      repost(buf);
    }
  }
  void note_most_held() {
    const std::uint32_t away = off_queue();
    if (away > most_held_.load(std::memory_order_relaxed)) {
      most_held_.store(away, std::memory_order_relaxed);
    }
  }
  // Posted -> Stashed, under the poll lock: counted, delivered later.
  void stash(RecvBuf& buf) {
    set_state(buf, BufferState::Stashed);
    add(stashed_in_, 1);
    add(held_, 1);
    note_most_held();
  }
  // Stashed -> Delivered, by the delivery owner.
  void unstash(RecvBuf& buf) {
    set_state(buf, BufferState::Delivered);
    add(stashed_out_, 1);
  }
  // Delivered -> Posted, by the delivery owner.
  void repost(RecvBuf& buf) {
    add(finished_, 1);
    post(buf);
  }
  // Posted -> Posted, under the poll lock: polled, with nothing to deliver.
  void repost_unused(RecvBuf& buf) { post(buf); }
  void retire_flushed(
      RecvBuf& buf);  // Stashed -> Posted or Idle, under the poll lock: an error completion

 private:
  struct Slab;
  RecvPool(const RecvPoolConfig& config, const MemoryHooks& hooks);
  bool add_slab(std::uint32_t count);
  // A counter with one writer at a time: no bus lock, readable from anywhere. Returns the new
  // value.
  static std::uint32_t add(std::atomic<std::uint32_t>& counter, std::uint32_t change) {
    const std::uint32_t value = counter.load(std::memory_order_relaxed) + change;
    counter.store(value, std::memory_order_relaxed);
    return value;
  }
  void set_state(RecvBuf& buf, BufferState to) {
    if (careful_.load(std::memory_order_relaxed)) [[unlikely]] {
      trace_hand_over(buf, to);
    }
  }
  // The buffer is on a queue when this returns 0 (else: errno, and it is idle); the device may
  // complete it before.
  int post(RecvBuf& buf) {
    if (careful_.load(std::memory_order_relaxed)) [[unlikely]] {
      return post_carefully(buf);
    }
    ibv_recv_wr* bad = nullptr;
    const int refused = ibv_post_srq_recv(srq_, &buf.wr, &bad);
    if (refused != 0) [[unlikely]] {
      to_idle(buf);
    }
    return refused;
  }
  [[gnu::cold, gnu::noinline]] void trace_hand_over(RecvBuf& buf, BufferState to) const;
  [[gnu::noinline]] int post_carefully(RecvBuf& buf);
  [[gnu::noinline]] void to_idle(RecvBuf& buf);
  RecvBuf* take_idle();
  std::uint32_t off_queue() const {  // stashed or delivered
    return held_.load(std::memory_order_relaxed) - finished_.load(std::memory_order_relaxed) +
           (only_.load(std::memory_order_relaxed) == kOnlyOut ? 1 : 0);
  }
  std::uint32_t posted_now() const;
  std::uint32_t most_held() const;

  ibv_srq* srq_;
  std::atomic<bool> careful_;  // hand-overs are traced, or there is no SRQ
  // The buffer of the outermost upcall.
  enum Only : std::uint8_t { kOnlyNever, kOnlyOut, kOnlyBack };
  std::atomic<std::uint8_t> only_{kOnlyNever};  // delivery owner
  // Single-writer counters; the ledger is computed from them.
  std::atomic<std::uint32_t> held_{0};         // poll lock: taken or stashed, ever
  std::atomic<std::uint32_t> most_held_{0};    // poll lock: most buffers ever off the queue at once
  std::atomic<std::uint32_t> stashed_in_{0};   // poll lock
  std::atomic<std::uint32_t> stashed_out_{0};  // delivery owner
  std::atomic<std::uint32_t> finished_{0};     // delivery owner: upcalls ended
  std::atomic<RecvTrace> trace_{nullptr};

  RecvPoolConfig config_;
  MemoryHooks hooks_;
  std::atomic<std::uint32_t> depth_{0};
  std::uint32_t stride_ = 0;
  std::atomic<std::uint32_t> idle_count_{0};              // idle_lock_
  std::atomic<std::uint32_t> least_posted_{0xffffffffu};  // before the depth last changed
  std::atomic<std::uint32_t> lost_{0};
  void* trace_context_ = nullptr;

  SpinLock idle_lock_;
  RecvBuf* idle_ = nullptr;  // buffers on no queue, under idle_lock_
  std::mutex slab_lock_;     // growing
  std::vector<std::unique_ptr<Slab>> slabs_;
};

}  // namespace mend::ops
