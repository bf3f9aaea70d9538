// Completion queues. Completions of receives come through the shared ring (written by initiators),
// completions of sends through a private ring (written by posting threads of this process); poll
// merges them. One private lock serialises consumers and the private ring; the empty poll takes no
// lock. SQ slots are freed when a send completion is polled.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "softhca/engine/context.h"
#include "softhca/engine/lazy_array.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

struct Qp;
struct RecordHeader;

struct SendCompletion {
  uint64_t wr_id = 0;
  Qp* qp = nullptr;  // nullptr: cleaned away, skip it
  uint64_t sq_index = 0;
  uint32_t qpn = 0;
  uint32_t byte_len = 0;
  uint8_t status = 0;
  uint8_t opcode = 0;
  uint16_t vendor_err = 0;
};

struct Cq {
  ibv_cq_ex ex{};
  Process* proc = nullptr;
  Context* ctx = nullptr;
  Channel* channel = nullptr;
  CqShared* sh = nullptr;
  char* ring = nullptr;
  uint64_t block_mask = 0;
  uint64_t key = 0;

  alignas(kLine) SpinLock lock;
  uint64_t head = 0;                               // consumer position in the shared ring
  uint64_t popped = 0;                             // records taken from it
  std::atomic<const RecordHeader*> next{nullptr};  // header at `head`
  std::atomic<uint64_t> next_seq{0};               // what its seq will be
  std::atomic<uint32_t> send_count{0};
  uint32_t send_head = 0;
  uint32_t send_mask = 0;
  LazyArray<SendCompletion> sends;
  bool overrun_reported = false;

  std::atomic<uint32_t> users{0};     // queue pairs
  uint32_t comp_events_fetched = 0;   // under ex.mutex; acked: ex.comp_events_completed
  uint32_t async_events_fetched = 0;  // likewise
  bool extended = false;
  // fault schedule: receives are not seen before, and it was asked about those up to here
  uint64_t hidden_until = 0;
  uint64_t asked_up_to = 0;
  // extended polling: the completion that read_* describe
  ibv_wc current{};
};

inline Cq* cq_of(ibv_cq* cq) noexcept { return reinterpret_cast<Cq*>(cq); }
inline ibv_cq* base_of(Cq* cq) noexcept { return reinterpret_cast<ibv_cq*>(cq); }

// Blocks of the record ring for so many entries: one each, and some for payloads to travel in.
uint32_t ring_blocks(uint32_t entries) noexcept;
Cq* create_cq(Context& ctx, int cqe, void* user, ibv_comp_channel* channel);
int destroy_cq(Cq* cq);
int resize_cq(Cq* cq, int cqe);
int poll_cq(Cq* cq, int entries, ibv_wc* wc);
int req_notify_cq(Cq* cq, bool solicited_only);

// Adds a send completion; false = the queue is full (overrun, handled).
bool push_send(Cq& cq, const SendCompletion& completion);
// Drops everything that belongs to a QP (RESET and destroy do that).
void clean_cq(Cq& cq, uint32_t qpn);
// Puts payloads that still sit in the ring and belong to [addr, addr + length) where they go.
void place_pending(Cq& cq, uint64_t addr, uint64_t length);
// If armed: counts an event and wakes the channel. The caller published a completion before.
void notify_private(Cq& cq, bool solicited);

}  // namespace softhca
