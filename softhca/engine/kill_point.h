// Places where a process may die while it changes shared memory, one after every such change.
// SOFTHCA_KILL=name[:n] makes the n-th passage of a point raise SIGKILL, so that a test can
// enumerate the list and prove that no peer is harmed. SOFTHCA_KILL=name:n:stop raises SIGSTOP
// there, and at every passage after it: a process that does not go on, until SIGCONT. Compiled in
// always; a passage costs one predictable branch on a process-private word.
#pragma once

#include <atomic>
#include <span>

namespace softhca {

// clang-format off
#define SOFTHCA_KILL_POINTS(X)                                                       \
  X(attach_slot_claimed)     /* slot taken, own segment not yet there */             \
  X(attach_segment_created)  /* own segment exists, slot not yet live */             \
  X(attach_done)                                                                     \
  X(stale_fabric_opened)     /* another fabric's file opened, not yet locked */      \
  X(global_init_started)     /* global segment sized, magic not yet written */       \
  X(sweep_started)           /* a dead peer's slot is being cleaned */               \
  X(sweep_directory_done)                                                            \
  X(qp_directory_claimed)    /* directory entry filled, QPN not yet public */        \
  X(qp_directory_public)                                                             \
  X(qp_state_changed)        /* modify_qp wrote the state under the lock */          \
  X(qp_state_unlocked)                                                               \
  X(mr_public)                                                                       \
  X(mr_cleared)                                                                      \
  X(recv_posted)                                                                     \
  X(deliver_locked)          /* target lock held, nothing written */                 \
  X(deliver_record_written)  /* record in the ring, not journalled */                \
  X(deliver_journalled)                                                              \
  X(deliver_rq_popped)                                                               \
  X(deliver_published)                                                               \
  X(deliver_journal_closed)                                                          \
  X(deliver_notified)        /* completion event counted, wake-up not sent */        \
  X(reserve_popped)          /* large send: work request reserved */                 \
  X(reserve_copying)                                                                 \
  X(reserve_relocked)                                                                \
  X(rdma_busy)               /* busy word set, nothing copied */                     \
  X(rdma_copied)                                                                     \
  X(rdma_psn_advanced)                                                               \
  X(nak_events_set)                                                                  \
  X(nak_state_set)                                                                   \
  X(srq_limit_fired)                                                                 \
  X(cq_overrun_marked)                                                               \
  X(flush_rq_popped)         /* owner flushes its own receive queue */               \
  X(poll_head_advanced)                                                              \
  X(lock_broken)             /* a dead holder's lock was taken over */               \
  X(detach_directory_cleared)                                                        \
  X(detach_segment_unlinked)
// clang-format on

enum class KillPoint : unsigned {
#define SOFTHCA_KILL_ENUM(name) name,
  SOFTHCA_KILL_POINTS(SOFTHCA_KILL_ENUM)
#undef SOFTHCA_KILL_ENUM
};

std::span<const char* const> kill_point_names() noexcept;

// Reads SOFTHCA_KILL; an unknown name is reported on stderr and aborts the attach.
bool arm_kill_points_from_env() noexcept;

namespace detail {
extern std::atomic<int> armed_kill_point;  // index, -1 = none
void kill_point_passed() noexcept;
}  // namespace detail

inline void kill_point(KillPoint point) noexcept {
  if (detail::armed_kill_point.load(std::memory_order_relaxed) == static_cast<int>(point))
      [[unlikely]] {
    detail::kill_point_passed();
  }
}

}  // namespace softhca
