#include "ops/poller.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "ops/wr_id.h"

namespace mend::ops {
namespace {

constexpr std::uint32_t kBusyLookMask =
    15;  // while traffic flows, blocked channels are looked at every 16th time

// Any value that is this thread's alone and not 0. The thread pointer is one load; pthread_self()
// is a call.
std::uintptr_t this_thread() {
#if defined(__x86_64__)
  std::uintptr_t self = 0;
  asm("mov %%fs:0, %0" : "=r"(self));
  return self;
#else
  return static_cast<std::uintptr_t>(pthread_self());
#endif
}

}  // namespace

Poller::Poller(ibv_cq* cq, RecvPool& recv_pool, std::uint32_t cq_depth)
    : cq_(cq), pool_(recv_pool), cq_depth_(cq_depth) {}

Poller::~Poller() = default;

// --- registry ---

void Poller::add_lane(Qpn qpn, Epoch epoch, Channel& channel, DeliverFn deliver, void* context) {
  const std::lock_guard guard(poll_lock_);
  lanes_.add(LaneEntry{qpn, epoch, &channel, deliver, context});
}

void Poller::remove_lane(Qpn qpn) {
  const std::lock_guard guard(poll_lock_);
  lanes_.remove(qpn);
}

std::uint64_t Poller::make_beacon_wr_id(std::atomic<int>* done_status) {
  const std::lock_guard guard(poll_lock_);
  auto free = std::find_if(flags_.begin(), flags_.end(),
                           [](const FlagSlot& slot) { return slot.done == nullptr; });
  if (free == flags_.end()) {
    free = flags_.insert(flags_.end(), FlagSlot{});
  }
  free->done = done_status;
  ++free->generation;
  return make_wr_id(WrKind::Flag, free->generation,
                    static_cast<std::uint32_t>(free - flags_.begin()));
}

void Poller::cancel_beacon(std::uint64_t wr_id) {
  const std::lock_guard guard(poll_lock_);
  const std::uint32_t index = wr_lower(wr_id);
  if (index < flags_.size() && (flags_[index].generation & kWrEpochMask) == wr_upper(wr_id)) {
    flags_[index].done = nullptr;
  }
}

// --- polling ---

// One batch, under the poll lock: every entry is counted and queued before the lock is let go. For
// the fence, messages go to the stash (ready_ is the delivery owner's). Else the first one goes to
// `direct` when nothing is queued before it, the others to ready_.
template <Poller::Who kWho>
int Poller::poll(RecvBuf*& direct) {
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(cq_, kBatch, completions);
  const ibv_wc* wc = completions;
  for (int left = count; left > 0; --left) {
    dispatch<kWho>(*wc++, direct);
  }
  return count;  // negative: a dead CQ, which its asynchronous event reports
}

template <Poller::Who kWho>
void Poller::dispatch(const ibv_wc& wc, RecvBuf*& direct) {
  const WrKind kind = wr_kind(wc.wr_id);
  if (kind == WrKind::Recv) [[likely]] {
    dispatch_receive<kWho>(wc, direct);
  } else if (kind == WrKind::Flag) [[unlikely]] {
    dispatch_flag(wc);
  } else if (LaneEntry* lane = lanes_.find(Qpn{wc.qp_num}); lane != nullptr) [[likely]] {
    lane->channel->on_send_completion(wc);
    if (lane->channel->events_pending()) [[unlikely]] {
      notice(*lane->channel);
    }
  } else {
    stale_.fetch_add(1, std::memory_order_relaxed);
  }
}

template <Poller::Who kWho>
void Poller::dispatch_receive(const ibv_wc& wc, RecvBuf*& direct) {
  RecvBuf& buf = *reinterpret_cast<RecvBuf*>(wc.wr_id);
  LaneEntry* lane = lanes_.find(Qpn{wc.qp_num});
  if (wc.status != IBV_WC_SUCCESS || lane == nullptr || wc.byte_len < sizeof(DataHeader))
      [[unlikely]] {
    refuse_receive(wc, buf, lane);
    return;
  }
  Channel& channel = *lane->channel;
  buf.payload_bytes = wc.byte_len - static_cast<std::uint32_t>(sizeof(DataHeader));
  const RxVerdict verdict =
      channel.on_receive(buf.header(), buf.payload_bytes, buf.payload(), lane->epoch);
  if (channel.events_pending()) [[unlikely]] {
    notice(channel);
  }
  if (verdict != RxVerdict::Deliver) [[unlikely]] {
    pool_.repost_unused(buf);
    return;
  }
  buf.deliver = lane->deliver;
  buf.deliver_context = lane->context;
  if constexpr (kWho == Who::Fence) {
    stash_.push(buf);
    pool_.stash(buf);
  } else if (direct == nullptr && ready_.head == nullptr) [[likely]] {
    direct = &buf;
    pool_.take<kWho == Who::Owner>(buf);
  } else {
    ready_.push(buf);
    pool_.stash(buf);
  }
}

// An error completion, a QP that nobody knows any more, or a message without a whole header.
void Poller::refuse_receive(const ibv_wc& wc, RecvBuf& buf, LaneEntry* lane) {
  if (lane == nullptr) {
    stale_.fetch_add(1, std::memory_order_relaxed);
    pool_.retire_flushed(buf);
  } else if (wc.status != IBV_WC_SUCCESS) {
    lane->channel->on_receive_error(wc, lane->epoch);
    notice(*lane->channel);
    pool_.retire_flushed(buf);
  } else {
    lane->channel->on_short_message(wc.byte_len);
    notice(*lane->channel);
    pool_.repost_unused(buf);
  }
}

void Poller::dispatch_flag(const ibv_wc& wc) {
  const std::uint32_t index = wr_lower(wc.wr_id);
  if (index < flags_.size() && flags_[index].done != nullptr &&
      (flags_[index].generation & kWrEpochMask) == wr_upper(wc.wr_id)) {
    flags_[index].done->store(static_cast<int>(wc.status) + 1, std::memory_order_release);
    flags_[index].done = nullptr;
  } else {
    stale_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Poller::drain_for_fence() {
  drains_.fetch_add(1, std::memory_order_acquire);
  int count = 1;
  RecvBuf* none = nullptr;
  for (std::uint32_t polls = 0; count > 0 && polls <= cq_depth_; ++polls) {
    poll_lock_.lock();
    count = poll<Who::Fence>(none);
    const bool noticed = any_noticed_;
    poll_lock_.unlock();
    if (noticed) {
      run_noticed();
    }
  }
  drains_.fetch_sub(1, std::memory_order_release);
}

std::vector<std::pair<const void*, std::uint32_t>> Poller::stashed_by_context() const {
  std::vector<std::pair<const void*, std::uint32_t>> counts;
  const std::lock_guard guard(poll_lock_);
  for (const RecvBuf* buf = stash_.head; buf != nullptr; buf = buf->next) {
    const auto known = std::find_if(counts.begin(), counts.end(), [buf](const auto& entry) {
      return entry.first == buf->deliver_context;
    });
    if (known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace_back(buf->deliver_context, 1);
    }
  }
  return counts;
}

// With no lock held.
void Poller::run_noticed() {
  std::vector<Channel*> channels;
  poll_lock_.lock();
  channels.swap(noticed_);
  any_noticed_ = false;
  poll_lock_.unlock();
  for (Channel* channel : channels) {
    channel->run_events();
  }
}

// --- progress ---

// By the delivery owner. One message and nothing else to do is the rule; finish() does the rest.
template <Poller::Who kWho>
int Poller::step() {
  int count = 0;
  RecvBuf* direct = nullptr;
  if (poll_lock_.try_lock()) [[likely]] {
    ready_.append(stash_);
    count = poll<kWho>(direct);
    if constexpr (kWho == Who::Nested) {
      pool_.note_most_held();
    }
    const bool noticed = any_noticed_;
    poll_lock_.unlock();
    if (noticed) [[unlikely]] {
      run_noticed();
    }
  }
  if (direct != nullptr) [[likely]] {
    call_up(*direct);
    pool_.give_back<kWho == Who::Owner>(*direct);
    if (!busy_otherwise()) [[likely]] {
      idle_polls_ = 0;
      return count;
    }
  }
  return finish(count);
}

int Poller::finish(int count) {
  if (ready_.head != nullptr) {
    count += deliver_ready();
  }
  if (callbacks_due()) {
    count += run_due();
  }
  if (count <= 0) {
    ++idle_polls_;
    idle();
    return 0;
  }
  idle_polls_ = 0;
  if (blocked_.load(std::memory_order_relaxed) > 0) {
    busy();
  }
  return count;
}

[[gnu::flatten]] int Poller::progress() {
  const std::uintptr_t self = this_thread();
  std::uintptr_t owner = 0;
  if (!owner_.compare_exchange_strong(owner, self, std::memory_order_acquire,
                                      std::memory_order_relaxed)) [[unlikely]] {
    return owner == self ? step_nested() : 0;
  }
  const int count = step<Who::Owner>();
  owner_.store(0, std::memory_order_release);
  return count;
}

int Poller::step_nested() { return step<Who::Nested>(); }

// An upcall may come back into progress(): it then goes on with the next buffer of ready_.
void Poller::call_up(RecvBuf& buf) {
  buf.deliver(buf.deliver_context, buf.header().tag, {buf.payload(), buf.payload_bytes});
}

// Each buffer is posted again before anything else happens.
int Poller::deliver_ready() {
  int count = 0;
  while (RecvBuf* buf = ready_.pop()) {
    pool_.unstash(*buf);
    call_up(*buf);
    pool_.repost(*buf);
    ++count;
  }
  return count;
}

int Poller::run_due() {
  DueLink oldest = due_run_.load(std::memory_order_relaxed);
  if (oldest == 0) {
    for (DueLink link = due_.exchange(0, std::memory_order_acquire); link != 0;) {
      DueLink& next = link_of(link);
      const DueLink older = next;
      next = oldest;
      oldest = link;
      link = older;
    }
    due_run_.store(oldest, std::memory_order_relaxed);
  }
  int count = 0;
  for (; (oldest = due_run_.load(std::memory_order_relaxed)) != 0; ++count) {
    due_run_.store(link_of(oldest), std::memory_order_relaxed);
    run_callback(oldest);
  }
  return count;
}

DueLink& Poller::link_of(DueLink link) {
  const DueLink address = link & ~kDueMask;
  switch (link & kDueMask) {
    case kDueRdma:
      return reinterpret_cast<RdmaOp*>(address)->due_next;
    case kDueAmo:
      return reinterpret_cast<AmoCall*>(address)->due_next;
    default:
      return reinterpret_cast<Frag*>(address)->due_next;
  }
}

// The request belongs to its submitter again from here on.
void Poller::run_callback(DueLink link) {
  const DueLink address = link & ~kDueMask;
  switch (link & kDueMask) {
    case kDueRdma: {
      auto& op = *reinterpret_cast<RdmaOp*>(address);
      if (op.done != nullptr) {
        op.done(op);
      }
      return;
    }
    case kDueAmo: {
      auto& call = *reinterpret_cast<AmoCall*>(address);
      if (call.done != nullptr) {
        call.done(call);
      }
      return;
    }
    default: {
      auto& frag = *reinterpret_cast<Frag*>(address);
      if (frag.sent != nullptr) {
        frag.sent(frag);
      }
      return;
    }
  }
}

// --- attention ---

// Traffic flows, but some channel's log waits for its window: its ack cell must not be forgotten.
void Poller::busy() {
  if ((++busy_polls_ & kBusyLookMask) == 0) {
    look_at_channels(false);
  }
}

void Poller::idle() {
  if (!attention_any_.load(std::memory_order_relaxed)) {
    return;
  }
  const bool long_idle = idle_polls_ >= kIdleBeforeAck;
  if (long_idle || blocked_.load(std::memory_order_relaxed) > 0) {
    if (long_idle) {
      idle_polls_ = 0;
    }
    look_at_channels(long_idle);
  }
}

void Poller::want_attention(Channel& channel) {
  attention_lock_.lock();
  attention_.push_back(&channel);
  attention_any_.store(true, std::memory_order_relaxed);
  attention_lock_.unlock();
}

// The poll lock keeps forget() away from the channels that are being visited.
void Poller::look_at_channels(bool long_idle) {
  if (!poll_lock_.try_lock()) {
    return;
  }
  attention_lock_.lock();
  visiting_.swap(attention_);
  attention_any_.store(false, std::memory_order_relaxed);
  attention_lock_.unlock();
  bool noticed = false;
  for (Channel* channel : visiting_) {
    if (channel->look(long_idle)) {
      want_attention(*channel);
    }
    if (channel->events_pending()) {
      notice(*channel);
      noticed = true;
    }
  }
  visiting_.clear();
  poll_lock_.unlock();
  if (noticed) [[unlikely]] {
    run_noticed();
  }
}

void Poller::forget(Channel& channel, void* context) {
  const std::uintptr_t self = this_thread();
  std::uintptr_t owner = 0;
  while (!owner_.compare_exchange_weak(owner, self, std::memory_order_acquire,
                                       std::memory_order_relaxed) &&
         owner != self) {
    owner = 0;
    sched_yield();
  }
  {
    const std::lock_guard guard(poll_lock_);
    attention_lock_.lock();
    std::erase(attention_, &channel);
    attention_lock_.unlock();
    std::erase(noticed_, &channel);
    ready_.append(stash_);
    BufList kept;
    while (RecvBuf* buf = ready_.pop()) {
      if (buf->deliver_context == context) {
        pool_.unstash(*buf);
        pool_.repost(*buf);
      } else {
        kept.push(*buf);
      }
    }
    ready_ = kept;
  }
  if (owner != self) {
    owner_.store(0, std::memory_order_release);
  }
  while (drains_.load(std::memory_order_acquire) != 0) {
    sched_yield();
  }
}

}  // namespace mend::ops
