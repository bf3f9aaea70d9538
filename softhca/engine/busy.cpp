#include "softhca/engine/busy.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "softhca/engine/injector.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

namespace {

constexpr unsigned kSleepsBeforeGivingUp = 100;  // some 60 ms
constexpr long kPauseNs = 1'000'000;

uint32_t own_tid() noexcept {
  thread_local const auto tid = static_cast<uint32_t>(::syscall(SYS_gettid));
  return tid;
}

// The start of a small file of /proc; false if it cannot be read.
bool read_proc(uint32_t pid, uint32_t tid, const char* name, char* out, std::size_t size) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%u/task/%u/%s", pid, tid, name);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = ::read(fd, out, size - 1);
  ::close(fd);
  if (n <= 0) return false;
  out[n] = '\0';
  return true;
}

// Whether a thread was stopped on its way out of process_vm_*: signals act when a system call
// returns, so the copy is complete. One that was stopped elsewhere may be about to copy.
bool stopped_after_copy(uint32_t pid, uint32_t tid) noexcept {
  char text[256];
  if (!read_proc(pid, tid, "stat", text, sizeof(text))) return false;
  const char* after_name = std::strrchr(text, ')');
  if (after_name == nullptr || std::strncmp(after_name, ") T", 3) != 0) return false;
  if (!read_proc(pid, tid, "syscall", text, sizeof(text))) return false;
  const long number = std::strtol(text, nullptr, 10);
  return number == SYS_process_vm_readv || number == SYS_process_vm_writev;
}

// Bytes that the fault schedule holds back keep the word. What this process holds back itself (for
// all nodes of a simulation: one thread) nobody would place while it waits.
void finish_late_placements(Process& owner, QpShared& qp) noexcept {
  const auto finish = [&](const Process& process) {
    if (Injector* const faults = process.injector(); faults != nullptr) faults->late().place_to(qp);
  };
  finish(owner);
  for (const Process* other : owner.fabric().local) {
    if (other != nullptr && other != &owner) finish(*other);
  }
}

}  // namespace

bool take_busy(Process& self, QpShared& qp) noexcept {
  for (Backoff backoff;; backoff.pause()) {
    HolderWord seen = kFreeWord;
    if (qp.busy.compare_exchange_strong(seen, self.word(), std::memory_order_seq_cst)) {
      qp.busy_tid.store(own_tid(), std::memory_order_relaxed);
      return true;
    }
    if (backoff.slept() == 0) continue;
    if (seen != self.word() && !self.fabric().global.alive(holder_slot(seen), holder_gen(seen))) {
      // A dead initiator's mark. Its work was never acknowledged.
      if (qp.busy.compare_exchange_strong(seen, kFreeWord)) continue;
    }
    if (backoff.slept() >= kSleepsBeforeGivingUp) return false;
  }
}

void wait_for_busy(Process& owner, QpShared& qp) noexcept {
  if (qp.busy.load(std::memory_order_seq_cst) != kFreeWord) finish_late_placements(owner, qp);
  for (unsigned spins = 1;; ++spins) {
    HolderWord seen = qp.busy.load(std::memory_order_seq_cst);
    if (seen == kFreeWord) return;
    if (spins < 64) {
      cpu_relax();
      continue;
    }
    if (spins < 1024) {
      ::sched_yield();
    } else {
      const timespec pause{0, kPauseNs};
      ::nanosleep(&pause, nullptr);
    }
    if (spins % 64 != 0 || seen == owner.word()) continue;
    const uint32_t slot = holder_slot(seen);
    if (!owner.fabric().global.alive(slot, holder_gen(seen))) return;
    if (spins < 1024) continue;
    const auto pid = static_cast<uint32_t>(owner.global()->slots[slot].pid);
    if (stopped_after_copy(pid, qp.busy_tid.load(std::memory_order_relaxed))) {
      qp.busy.compare_exchange_strong(seen, kFreeWord);
    }
  }
}

}  // namespace softhca
