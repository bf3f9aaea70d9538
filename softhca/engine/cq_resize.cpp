// ibv_resize_cq: a larger or smaller ring takes over while producers are locked out. Positions are
// free-running, so records keep theirs and only move to another place.
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "softhca/engine/receive_ring.h"

namespace softhca {

namespace {

int swap_rings(Cq& cq, uint32_t entries, LazyArray<SendCompletion>& sends, uint32_t send_slots,
               Off ring, uint32_t blocks) {
  CqShared& sh = *cq.sh;
  const uint32_t waiting = cq.send_count.load();
  if (waiting + (sh.pushed.load() - cq.popped) > entries) return EINVAL;
  for (uint32_t i = 0; i < waiting; ++i) {
    sends[(cq.send_head + i) & (send_slots - 1)] = cq.sends[(cq.send_head + i) & cq.send_mask];
  }
  char* fresh = cq.proc->segment().at<char>(ring);
  const uint64_t tail = sh.tail.load();
  if (tail - cq.head >= blocks) return EINVAL;
  for (uint64_t at = cq.head; at != tail; ++at) {
    std::memcpy(fresh + (at & (blocks - 1)) * kBlockBytes,
                cq.ring + (at & cq.block_mask) * kBlockBytes, kBlockBytes);
  }
  cq.sends = std::move(sends);
  cq.send_mask = send_slots - 1;
  cq.ring = fresh;
  cq.block_mask = blocks - 1;
  set_ring_head(cq, cq.head);
  sh.ring = ring;
  sh.blocks = blocks;
  sh.cqe = entries;
  cq.ex.cqe = static_cast<int>(entries);
  return 0;
}

}  // namespace

int resize_cq(Cq* cq, int cqe) {
  Process& proc = *cq->proc;
  if (cqe < 1 || static_cast<uint32_t>(cqe) > cq->ctx->limits().max_cqe) return EINVAL;
  const auto entries = static_cast<uint32_t>(cqe);
  const uint32_t blocks = ring_blocks(entries);
  const uint32_t send_slots = std::bit_ceil(entries);
  LazyArray<SendCompletion> sends(send_slots);
  const Off ring = proc.segment().alloc(std::size_t{blocks} * kBlockBytes);
  int rc = !sends || ring == 0 ? ENOMEM : 0;
  const Off old_ring = cq->sh->ring;
  const std::size_t old_bytes = std::size_t{cq->sh->blocks} * kBlockBytes;
  if (rc == 0) {
    // Lock order: the process lock before the queue's.
    if (proc.lock(proc.self())) {
      {
        std::lock_guard guard(cq->lock);
        rc = swap_rings(*cq, entries, sends, send_slots, ring, blocks);
      }
      proc.unlock(proc.self());
    } else {
      rc = EIO;
    }
  }
  if (rc == 0) {
    proc.segment().free(old_ring, old_bytes);
    return 0;
  }
  proc.segment().free(ring, std::size_t{blocks} * kBlockBytes);
  return rc;
}

}  // namespace softhca
