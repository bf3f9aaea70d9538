// The busy word of a target QP: who moves data for it outside the process lock. Its owner changes
// the QP's state, or clears a memory key, first and then waits here until nobody is busy; an
// initiator marks itself first and then looks at the state (both with sequentially consistent
// stores, so one of them sees the other). A dead initiator's mark counts for nothing, and neither
// does that of one that was stopped (SIGSTOP) after its copy was made: it finds its mark gone when
// it goes on and touches nothing any more. Thread safe.
#pragma once

#include "softhca/engine/process.h"

namespace softhca {

// False: another initiator is at work and does not finish.
bool take_busy(Process& self, QpShared& qp) noexcept;
inline bool still_busy(const Process& self, const QpShared& qp) noexcept {
  return qp.busy.load(std::memory_order_seq_cst) == self.word();
}
// False: the owner took the mark away; what was done does not count.
inline bool release_busy(const Process& self, QpShared& qp) noexcept {
  HolderWord mine = self.word();
  return qp.busy.compare_exchange_strong(mine, kFreeWord, std::memory_order_seq_cst);
}

// Owner: returns when no initiator can move data for this QP any more.
void wait_for_busy(Process& owner, QpShared& qp) noexcept;

}  // namespace softhca
