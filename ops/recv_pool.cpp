#include "ops/recv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>

#include "ops/wr_id.h"

namespace mend::ops {
namespace {

constexpr std::uint32_t kStrideAlign = 64;

}  // namespace

// A registered piece of buffer memory and the control blocks of its buffers.
struct RecvPool::Slab {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::unique_ptr<RecvBuf[]> bufs;
  MemoryHooks hooks;
  bool registered = false;

  Slab() = default;
  ~Slab() {
    if (registered) {
      hooks.unregister_chunk(hooks.context, base);
    }
    if (base != nullptr) {
      munmap(base, bytes);
    }
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
};

const char* to_string(BufferState state) {
  switch (state) {
    case BufferState::Idle:
      return "idle";
    case BufferState::Posted:
      return "posted";
    case BufferState::Stashed:
      return "stashed";
    case BufferState::Delivered:
      return "delivered";
  }
  return "?";
}

RecvPool::RecvPool(const RecvPoolConfig& config, const MemoryHooks& hooks)
    : srq_(config.srq), careful_(config.srq == nullptr), config_(config), hooks_(hooks) {
  const std::uint32_t bytes = config.payload_bytes + static_cast<std::uint32_t>(sizeof(DataHeader));
  stride_ = (bytes + kStrideAlign - 1) / kStrideAlign * kStrideAlign;
}

RecvPool::~RecvPool() = default;

Result<std::unique_ptr<RecvPool>> RecvPool::create(const RecvPoolConfig& config,
                                                   const MemoryHooks& hooks) {
  if (config.depth == 0 || config.max_depth < config.depth) {
    return fail(EINVAL, "recv_pool",
                "receive pool of " + std::to_string(config.depth) +
                    " buffers does not fit a queue of " + std::to_string(config.max_depth));
  }
  std::unique_ptr<RecvPool> pool(new RecvPool(config, hooks));
  if (!pool->per_qp()) {
    if (auto grown = pool->grow(config.depth); !grown) {
      return tl::unexpected<Error>(grown.error());
    }
  }
  return pool;
}

std::uint32_t RecvPool::buffer_bytes() const {
  return config_.payload_bytes + static_cast<std::uint32_t>(sizeof(DataHeader));
}

// --- growing ---

Result<void> RecvPool::ensure(std::uint32_t live_qps) {
  if (per_qp()) {
    return {};  // every QP brings its own buffers in attach_queue()
  }
  const std::uint32_t needed = 2 * live_qps;
  const std::uint32_t have = depth();
  if (have >= needed) {
    return {};
  }
  if (needed > config_.max_depth) {
    return fail(ENOSPC, "srq",
                std::to_string(live_qps) + " queue pairs need at least " + std::to_string(needed) +
                    " receive buffers (2 per queue pair), but the shared receive queue holds " +
                    std::to_string(config_.max_depth) +
                    "; raise btl_mend_srq_depth or use a device with a larger max_srq_wr");
  }
  // Grow by at least a half, so that a job that connects peer by peer does not register a slab for
  // each.
  return grow(std::min(config_.max_depth, std::max(needed, have + have / 2)));
}

Result<void> RecvPool::grow(std::uint32_t new_depth) {
  const std::lock_guard guard(slab_lock_);
  const std::uint32_t have = depth();
  if (new_depth <= have) {
    return {};
  }
  if (new_depth > config_.max_depth) {
    return fail(ENOSPC, "srq",
                "cannot grow the receive pool to " + std::to_string(new_depth) +
                    " buffers: the receive queue holds " + std::to_string(config_.max_depth));
  }
  const std::uint32_t count = new_depth - have;
  if (!add_slab(count)) {
    return fail(ENOMEM, "recv_pool",
                "no registered memory for " + std::to_string(count) + " receive buffers of " +
                    std::to_string(stride_) + " bytes");
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    RecvBuf* buf = take_idle();
    if (buf != nullptr) {
      buf->state.store(BufferState::Posted, std::memory_order_relaxed);
    }
    const int refused = buf == nullptr ? ENOMEM : post(*buf);
    if (refused != 0) {
      return fail(refused, "post_srq_recv",
                  "the device refused a receive buffer within its capacity");
    }
  }
  return {};
}

bool RecvPool::add_slab(std::uint32_t count) {
  auto slab = std::make_unique<Slab>();
  slab->hooks = hooks_;
  slab->bytes = static_cast<std::size_t>(count) * stride_;
  void* base =
      mmap(nullptr, slab->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return false;
  }
  slab->base = static_cast<std::byte*>(base);
  LocalKeys keys;
  if (!hooks_.register_chunk(hooks_.context, base, slab->bytes, keys)) {
    return false;
  }
  slab->registered = true;
  slab->bufs = std::make_unique<RecvBuf[]>(count);
  const std::uint32_t first = depth();
  if (first != 0) {
    least_posted_.store(ledger().min_posted, std::memory_order_relaxed);
    most_held_.store(0, std::memory_order_relaxed);
  }
  depth_.store(first + count, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    RecvBuf& buf = slab->bufs[i];
    buf.index = first + i;
    buf.sge.addr =
        reinterpret_cast<std::uint64_t>(slab->base + static_cast<std::size_t>(i) * stride_);
    buf.sge.length = buffer_bytes();
    buf.sge.lkey = keys.lkey[config_.rail.value].value;
    buf.wr.wr_id = reinterpret_cast<std::uint64_t>(&buf);
    buf.wr.next = nullptr;
    buf.wr.sg_list = &buf.sge;
    buf.wr.num_sge = 1;
    to_idle(buf);
  }
  slabs_.push_back(std::move(slab));
  return true;
}

// --- per-QP receive queues ---

Result<void> RecvPool::attach_queue(ibv_qp* qp) {
  const std::lock_guard guard(slab_lock_);
  for (std::uint32_t i = 0; i < config_.depth; ++i) {
    RecvBuf* buf = take_idle();
    if (buf == nullptr) {
      if (depth() + config_.depth > config_.max_depth || !add_slab(config_.depth)) {
        return fail(
            ENOMEM, "recv_pool",
            "no memory for " + std::to_string(config_.depth) +
                " receive buffers of a queue pair (the device has no shared receive queue)");
      }
      buf = take_idle();
    }
    buf->queue = qp;
    if (const int refused = post(*buf); refused != 0) {
      return fail(refused, "post_recv", "the device refused a receive buffer of a queue pair");
    }
  }
  return {};
}

void RecvPool::detach_queue(ibv_qp* qp) {
  const std::lock_guard guard(slab_lock_);
  for (auto& slab : slabs_) {
    for (std::size_t i = 0; i < slab->bytes / stride_; ++i) {
      RecvBuf& buf = slab->bufs[i];
      idle_lock_.lock();
      const bool mine = buf.queue == qp;
      // Posted: nobody but us can have it now. What is stashed or delivered goes to the idle list
      // from there.
      const bool take = mine && buf.state.load(std::memory_order_relaxed) == BufferState::Posted;
      if (mine) {
        buf.queue = nullptr;
      }
      idle_lock_.unlock();
      if (take) {
        to_idle(buf);
      }
    }
  }
}

void RecvPool::to_idle(RecvBuf& buf) {
  set_state(buf, BufferState::Idle);
  buf.state.store(BufferState::Idle, std::memory_order_relaxed);
  idle_lock_.lock();
  buf.queue = nullptr;
  buf.next = idle_;
  idle_ = &buf;
  add(idle_count_, 1);
  idle_lock_.unlock();
}

RecvBuf* RecvPool::take_idle() {
  idle_lock_.lock();
  RecvBuf* buf = idle_;
  if (buf != nullptr) {
    idle_ = buf->next;
    add(idle_count_, static_cast<std::uint32_t>(-1));
  }
  idle_lock_.unlock();
  return buf;
}

// --- transitions ---

void RecvPool::trace_hand_over(RecvBuf& buf, BufferState to) const {
  if (const RecvTrace trace = trace_.load(std::memory_order_acquire); trace != nullptr) {
    trace(trace_context_, buf, buf.state.load(std::memory_order_relaxed), to);
  }
  buf.state.store(to, std::memory_order_relaxed);
}

int RecvPool::post_carefully(RecvBuf& buf) {
  if (!per_qp()) {
    set_state(buf, BufferState::Posted);
    ibv_recv_wr* bad_wr = nullptr;
    const int refused = ibv_post_srq_recv(srq_, &buf.wr, &bad_wr);
    if (refused != 0) {
      to_idle(buf);
    }
    return refused;
  }
  // The lock keeps detach_queue() (and so the QP's end) away while we post.
  idle_lock_.lock();
  ibv_recv_wr* bad = nullptr;
  int refused = ENODEV;
  if (buf.queue != nullptr) {
    set_state(buf, BufferState::Posted);
    refused = ibv_post_recv(buf.queue, &buf.wr, &bad);
  }
  idle_lock_.unlock();
  if (refused != 0) {
    to_idle(buf);
  }
  return refused;
}

void RecvPool::retire_flushed(RecvBuf& buf) {
  if (per_qp()) {
    to_idle(buf);  // its QP is in the error state
  } else {
    post(buf);
  }
}

// --- the ledger ---

std::uint32_t RecvPool::posted_now() const {
  return depth() - idle_count_.load(std::memory_order_relaxed) - off_queue();
}

// The first buffer ever taken is not noted.
std::uint32_t RecvPool::most_held() const {
  const bool ever = held_.load(std::memory_order_relaxed) != 0 ||
                    only_.load(std::memory_order_relaxed) != kOnlyNever;
  const std::uint32_t any = ever ? 1 : 0;
  return std::max(any, most_held_.load(std::memory_order_relaxed));
}

RecvLedger RecvPool::ledger() const {
  RecvLedger ledger;
  ledger.depth = depth();
  ledger.posted = posted_now();
  ledger.stashed =
      stashed_in_.load(std::memory_order_relaxed) - stashed_out_.load(std::memory_order_relaxed);
  ledger.delivered = off_queue() - ledger.stashed;
  ledger.idle = idle_count_.load(std::memory_order_relaxed);
  const std::uint32_t queued = ledger.depth - ledger.idle;
  ledger.min_posted = std::min(least_posted_.load(std::memory_order_relaxed),
                               queued - std::min(most_held(), queued));
  ledger.lost = lost_.load(std::memory_order_relaxed);
  return ledger;
}

std::uint32_t RecvPool::audit(std::uint32_t device_posted) {
  const std::uint32_t expected = posted_now();
  if (device_posted >= expected) {
    return 0;
  }
  const std::uint32_t missing = expected - device_posted;
  // The device forgot these: their memory can never be used again, new buffers take their place.
  depth_.fetch_sub(missing, std::memory_order_relaxed);
  lost_.fetch_add(missing, std::memory_order_relaxed);
  static_cast<void>(grow(depth() + missing));
  return missing;
}

int RecvPool::arm_limit(std::uint32_t limit) {
  if (per_qp() || config_.arm_limit == nullptr) {
    return ENOTSUP;
  }
  return config_.arm_limit(config_.arm_context, config_.srq, limit);
}

void RecvPool::set_trace(RecvTrace trace, void* context) {
  trace_context_ = context;
  trace_.store(trace, std::memory_order_release);
  careful_.store(trace != nullptr || per_qp(), std::memory_order_relaxed);
}

}  // namespace mend::ops
