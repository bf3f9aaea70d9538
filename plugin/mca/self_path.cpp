#include "plugin/mca/self_path.h"

#include <cstring>
#include <mutex>

#include "ops/amo_execute.h"

namespace mend::mca {

template <typename T>
void SelfPath::push(Queue<T>& queue, T& item) noexcept {
  const std::lock_guard guard(lock_);
  queue.push(item);
  pending_.fetch_add(1, std::memory_order_relaxed);
}

template <typename T>
T* SelfPath::pop(Queue<T>& queue) noexcept {
  const std::lock_guard guard(lock_);
  T* item = queue.pop();
  if (item != nullptr) pending_.fetch_sub(1, std::memory_order_relaxed);
  return item;
}

void SelfPath::send(ops::Frag& frag, RailId rail, std::uint8_t tag, bool want_callback) noexcept {
  frag.header.tag = tag;
  frag.header.aux = rail.value;
  frag.header.kind = want_callback ? kWithCallback : kOwned;
  push(frags_, frag);
}

void SelfPath::rdma(ops::RdmaOp& op) noexcept {
  void* remote = reinterpret_cast<void*>(op.remote);
  if (op.dir == ops::RdmaOp::Dir::Put) {
    std::memmove(remote, op.local, op.length);
  } else {
    std::memmove(op.local, remote, op.length);
  }
  push(rdma_done_, op);
}

void SelfPath::atomic(ops::AmoCall& call) noexcept {
  call.result = ops::execute_amo(call.op, call.width, reinterpret_cast<void*>(call.remote),
                                 call.operand, call.compare);
  push(atomic_done_, call);
}

void SelfPath::deliver(ops::Frag& frag) noexcept {
  // Read before the upcall: the submitter may give the frag back in its callback.
  const bool want_callback = frag.header.kind == kWithCallback;
  deliver_(context_, RailId{static_cast<std::uint8_t>(frag.header.aux)}, frag.header.tag, frag);
  if (!want_callback) {
    release_(context_, frag);
  } else if (frag.sent != nullptr) {
    frag.sent(frag);
  }
}

int SelfPath::progress() noexcept {
  int events = 0;
  while (events < kEventsPerCall) {
    const int before = events;
    if (ops::Frag* frag = pop(frags_)) {
      deliver(*frag);
      ++events;
    }
    if (ops::RdmaOp* op = pop(rdma_done_)) {
      op->done(*op);
      ++events;
    }
    if (ops::AmoCall* call = pop(atomic_done_)) {
      call->done(*call);
      ++events;
    }
    if (events == before) break;
  }
  return events;
}

}  // namespace mend::mca
