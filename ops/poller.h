// Poller: polls the CQ of one rail, counts and queues its entries in one critical section (which
// the fence shares), delivers receives in order, returns every receive buffer to its queue at once,
// and runs the callbacks that are due.
//
// Thread contract: progress() from any application thread; one thread at a time delivers (try-lock;
// the owner may re-enter from an upcall and goes on with the next entry). drain_for_fence() from
// the worker thread moves receives to the stash, which progress() delivers first. The poll lock is
// never held by a thread that waits for anything but the device, and never over an upcall, a
// callback or an event. Invariant: every receive buffer is posted, being delivered (in an upcall)
// or stashed; the ledger's counts add up (I6).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ops/channel.h"
#include "ops/lane_table.h"
#include "ops/recv_pool.h"
#include "ops/spin_lock.h"

namespace mend::ops {

class Poller {
 public:
  Poller(ibv_cq* cq, RecvPool& recv_pool, std::uint32_t cq_depth);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Lane registry: which channel a QP number belongs to (receive CQEs carry only qp_num). Called
  // before the QP leaves RESET and after it is fenced. context is handed to deliver. channel and
  // context outlive the lane and what is stashed.
  void add_lane(Qpn qpn, Epoch epoch, Channel& channel, DeliverFn deliver, void* context);
  void remove_lane(Qpn qpn);

  int progress();          // application threads; returns the number of events handled (0 = idle)
  void drain_for_fence();  // worker thread: poll until empty or CQ-capacity polls, receives go to
                           // the stash

  // Beacons and probes: a completion whose wr_id was made here stores its ibv_wc_status + 1 to
  // *done_status (0 = not yet) instead of reaching a channel. cancel when nobody waits any more
  // (done_status may then go away).
  std::uint64_t make_beacon_wr_id(std::atomic<int>* done_status);
  void cancel_beacon(std::uint64_t wr_id);

  // Callbacks due (sends posted, rdma done, amo done); any thread may push, only progress() runs
  // them, oldest first.
  void push_sent(Frag& frag) { push_due(frag, kDueFrag); }
  void push_done(RdmaOp& op) { push_due(op, kDueRdma); }
  void push_done(AmoCall& call) { push_due(call, kDueAmo); }
  bool callbacks_due() const {
    return (due_.load(std::memory_order_relaxed) | due_run_.load(std::memory_order_relaxed)) != 0;
  }
  void set_cq_depth(std::uint32_t cq_depth) { cq_depth_ = cq_depth; }

  // A channel that owes an ack or waits for one asks to be looked at when progress is idle.
  void want_attention(Channel& channel);
  // The channel is about to go away (its lanes are removed): takes it off every list, drops
  // receives queued for `context` and returns when no other thread can still touch it. Waits for
  // the delivering thread to leave progress(), so it must not be called with a lock that an upcall
  // may want.
  void forget(Channel& channel, void* context);
  void note_blocked(int delta) { blocked_.fetch_add(delta, std::memory_order_relaxed); }

  // What the fence stashed and nobody took yet: count by the context of add_lane().
  std::vector<std::pair<const void*, std::uint32_t>> stashed_by_context() const;

  std::uint64_t stale_completions() const { return stale_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kBatch = 16;
  static constexpr std::uint32_t kIdleBeforeAck = 64;  // idle polls until an owed ack is written
  static constexpr DueLink kDueFrag = 0, kDueRdma = 1, kDueAmo = 2, kDueMask = 3;

  struct BufList {
    RecvBuf* head = nullptr;
    RecvBuf* tail = nullptr;
    void push(RecvBuf& buf) {
      buf.next = nullptr;
      (head == nullptr ? head : tail->next) = &buf;
      tail = &buf;
    }
    RecvBuf* pop() {
      RecvBuf* buf = head;
      if (buf != nullptr) {
        head = buf->next;
      }
      return buf;
    }
    void append(BufList& other) {
      if (other.head != nullptr) [[unlikely]] {
        (head == nullptr ? head : tail->next) = other.head;
        tail = other.tail;
        other.head = nullptr;
      }
    }
  };

  template <typename T>
  void push_due(T& request, DueLink type) {
    const auto link = reinterpret_cast<DueLink>(&request) | type;
    DueLink old = due_.load(std::memory_order_relaxed);
    do {
      request.due_next = old;
    } while (!due_.compare_exchange_weak(old, link, std::memory_order_release,
                                         std::memory_order_relaxed));
  }
  [[gnu::noinline]] int step_nested();
  // Who polls: the delivery owner, the same from within an upcall, or the worker for a fence.
  enum class Who : std::uint8_t { Owner, Nested, Fence };
  template <Who kWho>
  int step();
  template <Who kWho>
  int poll(RecvBuf*& direct);
  template <Who kWho>
  void dispatch(const ibv_wc& wc, RecvBuf*& direct);
  template <Who kWho>
  void dispatch_receive(const ibv_wc& wc, RecvBuf*& direct);
  [[gnu::noinline]] int finish(int count);
  bool busy_otherwise() const {
    return (reinterpret_cast<std::uintptr_t>(ready_.head) | due_.load(std::memory_order_relaxed) |
            due_run_.load(std::memory_order_relaxed) |
            static_cast<unsigned>(blocked_.load(std::memory_order_relaxed))) != 0;
  }
  static void call_up(RecvBuf& buf);
  [[gnu::noinline]] int deliver_ready();
  [[gnu::cold, gnu::noinline]] void refuse_receive(const ibv_wc& wc, RecvBuf& buf, LaneEntry* lane);
  [[gnu::cold, gnu::noinline]] void dispatch_flag(const ibv_wc& wc);
  [[gnu::cold, gnu::noinline]] void notice(Channel& channel) {
    noticed_.push_back(&channel);
    any_noticed_ = true;
  }
  [[gnu::cold, gnu::noinline]] void run_noticed();
  [[gnu::noinline]] int run_due();
  static DueLink& link_of(DueLink link);
  static void run_callback(DueLink link);
  [[gnu::noinline]] void idle();
  [[gnu::noinline]] void busy();
  [[gnu::noinline]] void look_at_channels(bool long_idle);

  ibv_cq* cq_;
  RecvPool& pool_;
  std::uint32_t cq_depth_;

  // Delivery ownership.
  std::atomic<std::uintptr_t> owner_{0};
  std::uint32_t idle_polls_ = 0;
  std::uint32_t busy_polls_ = 0;
  BufList ready_;                    // counted, to be delivered by the owner
  std::atomic<DueLink> due_run_{0};  // taken from due_, oldest first; written by the owner

  std::atomic<DueLink> due_{0};
  std::atomic<int> blocked_{0};  // channels whose log waits for the window

  alignas(64) mutable SpinLock poll_lock_;
  LaneTable lanes_;                // poll lock
  bool any_noticed_ = false;       // poll lock
  std::vector<Channel*> noticed_;  // poll lock: their events are to be run when it is free
  BufList stash_;                  // poll lock: counted by the fence, delivered first
  struct FlagSlot {
    std::atomic<int>* done = nullptr;
    std::uint32_t generation = 0;
  };
  std::vector<FlagSlot> flags_;  // poll lock

  SpinLock attention_lock_;
  std::vector<Channel*> attention_;  // attention_lock_
  std::vector<Channel*> visiting_;   // poll lock
  std::atomic<bool> attention_any_{false};
  std::atomic<int> drains_{0};  // threads inside drain_for_fence
  std::atomic<std::uint64_t> stale_{0};
};

}  // namespace mend::ops
