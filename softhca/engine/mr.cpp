#include "softhca/engine/mr.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "softhca/engine/busy.h"
#include "softhca/engine/qp.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace softhca {

namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE;

// Pinned bytes of the whole process, as the kernel counts them against RLIMIT_MEMLOCK.
std::atomic<uint64_t> locked_bytes{0};

bool may_lock_without_limit() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (1U << CAP_IPC_LOCK)) != 0;
}

bool lock_within_limit(uint64_t bytes) noexcept {
  const uint64_t total = locked_bytes.fetch_add(bytes) + bytes;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      total <= limit.rlim_cur || may_lock_without_limit()) {
    return true;
  }
  locked_bytes.fetch_sub(bytes);
  return false;
}

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

struct PageRange {
  uintptr_t start;
  std::size_t bytes;
};

PageRange pages_of(const void* addr, std::size_t length) noexcept {
  const uintptr_t mask = page_size() - 1;
  const uintptr_t first = reinterpret_cast<uintptr_t>(addr) & ~mask;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(addr) + length + mask) & ~mask;
  return {first, last - first};
}

// Faults the pages in as pinning would; EFAULT for what is not mapped or not writable.
int populate(const PageRange& range, bool write) noexcept {
  if (range.bytes == 0) return 0;
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  while (::madvise(reinterpret_cast<void*>(range.start), range.bytes, advice) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return EFAULT;
    // Either a kernel before 5.14 or a mapping that cannot be populated so: ask about this page.
    alignas(4096) static char probe[4096];
    const bool supported = ::madvise(probe, sizeof(probe), advice) == 0;
    return supported ? EFAULT : 0;
  }
  return 0;
}

}  // namespace

Mr* reg_mr(Pd& pd, void* addr, std::size_t length, uint64_t iova, unsigned access) {
  Context& ctx = *pd.ctx;
  Process& proc = *ctx.proc;
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const auto start = reinterpret_cast<uintptr_t>(addr);
  if ((access & ~kKnownAccess) != 0 || (remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
      length > ctx.limits().max_mr_size || start + length < start || iova + length < iova) {
    errno = EINVAL;
    return nullptr;
  }
  const PageRange pages = pages_of(addr, length);
  const bool write = (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)) != 0;
  if (const int rc = populate(pages, write); rc != 0) {
    errno = rc;
    return nullptr;
  }
  if (ctx.mrs.fetch_add(1) >= ctx.limits().max_mr || !lock_within_limit(pages.bytes)) {
    ctx.mrs.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  auto* mr = new (std::nothrow) Mr;
  MrShared* entry = nullptr;
  uint32_t index = 0;
  int rc = mr == nullptr || proc.inert() ? ENOMEM : 0;
  if (rc == 0) rc = proc.take_mr(&entry, &index);
  if (rc != 0) {
    delete mr;
    locked_bytes.fetch_sub(pages.bytes);
    ctx.mrs.fetch_sub(1);
    errno = rc;
    return nullptr;
  }
  entry->generation = entry->generation % 255 + 1;
  const uint32_t key = (index << 8) | entry->generation;
  entry->access = access;
  entry->iova = iova;
  entry->length = length;
  entry->host = start;
  entry->pd = pd.id;
  entry->key.store(key, std::memory_order_release);
  kill_point(KillPoint::mr_public);
  mr->owner = &pd;
  mr->sh = entry;
  mr->access = access;
  mr->locked_bytes = pages.bytes;
  mr->mr.context = &ctx.vctx.context;
  mr->mr.pd = &pd.pd;
  mr->mr.addr = addr;
  mr->mr.length = length;
  mr->mr.handle = index;
  mr->mr.lkey = key;
  mr->mr.rkey = key;
  pd.users.fetch_add(1);
  return mr;
}

int dereg_mr(Mr* mr) {
  Context& ctx = *mr->owner->ctx;
  Process& proc = *ctx.proc;
  if (!proc.inert()) {
    const uint64_t host = mr->sh->host;
    const uint64_t length = mr->sh->length;
    mr->sh->key.store(0, std::memory_order_seq_cst);
    kill_point(KillPoint::mr_cleared);
    std::lock_guard guard(proc.registry());
    // Small deliveries look keys up under our lock, large transfers while they hold a busy word.
    if (proc.lock(proc.self())) proc.unlock(proc.self());
    for (Qp* qp : proc.qps()) wait_for_busy(proc, *qp->sh);
    for (Cq* cq : proc.cqs()) place_pending(*cq, host, length);
    proc.give_back_mr(mr->mr.handle);
  }
  locked_bytes.fetch_sub(mr->locked_bytes);
  mr->owner->users.fetch_sub(1);
  ctx.mrs.fetch_sub(1);
  delete mr;
  return 0;
}

}  // namespace softhca
