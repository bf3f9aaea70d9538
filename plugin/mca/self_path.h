// Traffic of a process with itself: no queue pair, a local queue. Messages are delivered and
// callbacks run from progress(), in the order of submission, as for any peer; puts, gets and
// atomics act at once and complete from progress().
//
// Thread contract: submit from any application thread; progress() from application threads,
// re-entrant (an upcall may submit and may call progress again). Invariant: each submission is
// completed exactly once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ops/request.h"
#include "ops/spin_lock.h"
#include "plugin/verbs/types.h"

namespace mend::mca {

class SelfPath {
 public:
  // Delivers a message of this process to itself; the frag keeps its kHoldUser until the upcall has
  // returned.
  using DeliverFn = void (*)(void* context, RailId rail, std::uint8_t tag, ops::Frag& frag);
  // Gives a frag back that nobody else holds.
  using ReleaseFn = void (*)(void* context, ops::Frag& frag);

  void start(DeliverFn deliver_fn, ReleaseFn release_fn, void* context) noexcept {
    deliver_ = deliver_fn;
    release_ = release_fn;
    context_ = context;
  }

  // want_callback: frag.sent runs after the delivery and the submitter gives the frag back;
  // otherwise it is given back here.
  void send(ops::Frag& frag, RailId rail, std::uint8_t tag, bool want_callback) noexcept;
  void rdma(ops::RdmaOp& op) noexcept;       // copies, op.done later
  void atomic(ops::AmoCall& call) noexcept;  // executes, call.done later

  bool pending() const noexcept { return pending_.load(std::memory_order_relaxed) != 0; }
  int progress() noexcept;  // number of events

 private:
  template <typename T>
  struct Queue {
    T* head = nullptr;
    T* tail = nullptr;
    void push(T& item) {
      item.due_next = 0;
      if (tail == nullptr) {
        head = &item;
      } else {
        tail->due_next = reinterpret_cast<ops::DueLink>(&item);
      }
      tail = &item;
    }
    T* pop() {
      T* item = head;
      if (item == nullptr) return nullptr;
      head = reinterpret_cast<T*>(item->due_next);
      if (head == nullptr) tail = nullptr;
      return item;
    }
  };
  template <typename T>
  void push(Queue<T>& queue, T& item) noexcept;
  template <typename T>
  T* pop(Queue<T>& queue) noexcept;
  void deliver(ops::Frag& frag) noexcept;

  // Notes in the header of a queued frag, which does not travel: kind says who gives it back, aux
  // is the rail.
  static constexpr std::uint8_t kWithCallback = 1, kOwned = 2;
  static constexpr int kEventsPerCall =
      64;               // so that an upcall that sends to itself cannot hold the caller for ever
  ops::SpinLock lock_;  // guards the queues
  Queue<ops::Frag> frags_;
  Queue<ops::RdmaOp> rdma_done_;
  Queue<ops::AmoCall> atomic_done_;
  std::atomic<std::uint32_t> pending_{0};
  DeliverFn deliver_ = nullptr;
  ReleaseFn release_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace mend::mca
