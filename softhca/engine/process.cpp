#include "softhca/engine/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/engine/busy.h"
#include "softhca/engine/device_thread.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/record.h"
#include "softhca/engine/spin_lock.h"

namespace softhca {

namespace {

std::size_t pool_bytes(Process::Pool pool) noexcept {
  switch (pool) {
    case Process::Pool::Qp:
      return sizeof(QpShared);
    case Process::Pool::Cq:
      return sizeof(CqShared);
    case Process::Pool::Rq:
      return sizeof(RqShared);
    case Process::Pool::Wake:
      return sizeof(WakeAddr);
    case Process::Pool::Count:
      break;
  }
  return 0;
}

}  // namespace

Process::Process(Fabric& fabric) : fabric_(fabric) {}

Process::~Process() { detach(); }

int Process::attach(std::string* why) {
  GlobalSegment& global_segment = fabric_.global;
  int slot = global_segment.claim_slot();
  if (slot < 0) {
    // A holder word that names no slot; nobody else attaches meanwhile.
    word_ = holder_word(kMaxSlots, 0);
    self_ = std::make_unique<Peer>();
    sweep_all_dead();
    slot = global_segment.claim_slot();
  }
  if (slot < 0) {
    *why = "all " + std::to_string(kMaxSlots) + " process slots of the fabric are in use";
    return EMFILE;
  }
  kill_point(KillPoint::attach_slot_claimed);
  SlotShared& shared = global()->slots[slot];
  self_ = std::make_unique<Peer>();
  self_->slot = static_cast<uint32_t>(slot);
  self_->gen = shared.gen;
  self_->pid = ::getpid();
  self_->same_address_space = true;
  word_ = holder_word(self_->slot, self_->gen);
  int rc = waker_.open();
  if (rc == 0) rc = create_segment(why);
  if (rc != 0) {
    if (why->empty()) *why = "cannot create a wake-up socket";
    global_segment.release_slot(self_->slot);
    return rc;
  }
  kill_point(KillPoint::attach_segment_created);
  shared.pid = self_->pid;
  shared.rank = rank_;
  shared.cookie = random_u64();
  shared.state.store(SlotState::Live, std::memory_order_release);
  peer_of_slot_[slot] = self_.get();
  if (fabric_.in_process) {
    if (fabric_.local.size() <= self_->slot) fabric_.local.resize(self_->slot + 1);
    fabric_.local[self_->slot] = this;
  }
  attached_ = true;
  sweep_all_dead();
  refresh_faults();
  kill_point(KillPoint::attach_done);
  return 0;
}

int Process::create_segment(std::string* why) {
  int rc = 0;
  if (fabric_.in_process) {
    rc = segment_.create_anonymous(kProcessSegmentBytes);
  } else {
    ::unlink(fabric_.global.process_path(self_->slot, self_->gen - 1).c_str());
    const std::string path = fabric_.global.process_path(self_->slot, self_->gen);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      *why = "cannot create " + path;
      return errno;
    }
    rc = ::ftruncate(fd, static_cast<off_t>(kProcessSegmentBytes)) == 0 ? 0 : errno;
    if (rc == 0) {
      rc = segment_.map_file(fd, kProcessSegmentBytes);
    } else {
      ::close(fd);
    }
    if (rc == 0) rc = segment_.commit(sizeof(ProcessShared) + 4096);
    if (rc != 0) {
      *why = rc == ENOMEM ? "no room in /dev/shm for " + path : "cannot map " + path;
      ::unlink(path.c_str());
    }
  }
  if (rc != 0) return rc;
  segment_.start_allocator(sizeof(ProcessShared));
  hdr_ = segment_.at<ProcessShared>(0);
  hdr_->slot = self_->slot;
  hdr_->gen = self_->gen;
  hdr_->pid = self_->pid;
  hdr_->magic = kProcessMagic;
  self_->base = segment_.base();
  self_->hdr = hdr_;
  return 0;
}

// Peers that still hold our QP numbers must see them gone before the memory goes.
void Process::abandon_qps() {
  const bool locked = lock(*self_);
  for (DirEntry& entry : global()->dir) {
    if (entry.slot != self_->slot || entry.gen != self_->gen || entry.qpn == 0) continue;
    auto* qp = segment_.at<QpShared>(entry.qp);
    qp->state.store(IBV_QPS_RESET);
    entry.qpn = 0;
  }
  kill_point(KillPoint::detach_directory_cleared);
  if (locked) unlock(*self_);
  // Whoever moves data right now finishes under the lock: wait without it.
  for (const Qp* qp : qps_) wait_for_busy(*this, *qp->sh);
  if (lock(*self_)) hdr_->lock.word.store(kDeadWord, std::memory_order_release);
}

void Process::detach() {
  if (!attached_ || inert_) return;
  attached_ = false;
  std::unique_ptr<DeviceThread> thread;
  {
    std::lock_guard guard(thread_mutex_);
    thread = std::move(thread_);
  }
  thread.reset();  // joins; the thread may want the mutex meanwhile
  if (injector_kept_) injector_kept_->late().place_everything();
  abandon_qps();
  inert_ = true;
  if (fabric_.in_process) {
    fabric_.global.release_slot(self_->slot);
    return;
  }
  fabric_.global.lock_attach();
  fabric_.global.unlink_process_file(self_->slot, self_->gen, segment_.fd());
  kill_point(KillPoint::detach_segment_unlinked);
  if (!fabric_.global.anyone_else_attached(self_->slot)) fabric_.global.unlink_file();
  fabric_.global.release_slot(self_->slot);
  fabric_.global.unlock_attach();
}

void Process::make_inert() noexcept {
  if (!attached_) return;
  inert_ = true;
  injector_.store(nullptr);
  // The mappings are MADV_DONTFORK: put zero pages there, in which every QP is RESET and every
  // queue is empty, so that verbs calls fail or find nothing and nothing of the parent is touched.
  const auto blank = [](char* base, std::size_t bytes) {
    (void)::mmap(base, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  };
  blank(segment_.base(), kProcessSegmentBytes);
  blank(reinterpret_cast<char*>(global()), sizeof(GlobalShared));
  for (const auto& peer : peers_) {
    if (peer->mapping) blank(peer->base, kProcessSegmentBytes);
  }
  // The thread exists only in the parent, and so nobody can join it.
  [[maybe_unused]] DeviceThread* lost = thread_.release();
}

std::unique_ptr<Peer> Process::map_peer(uint32_t slot, uint32_t gen) {
  auto peer = std::make_unique<Peer>();
  peer->slot = slot;
  peer->gen = gen;
  peer->pid = global()->slots[slot].pid;
  if (fabric_.in_process) {
    Process* other = slot < fabric_.local.size() ? fabric_.local[slot] : nullptr;
    if (other == nullptr || other->self_->gen != gen) return nullptr;
    peer->base = other->segment_.base();
    peer->same_address_space = true;
  } else {
    const int fd =
        ::open(fabric_.global.process_path(slot, gen).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return nullptr;
    peer->mapping = std::make_unique<Segment>();
    if (peer->mapping->map_file(fd, kProcessSegmentBytes) != 0) return nullptr;
    peer->base = peer->mapping->base();
    peer->same_address_space = peer->pid == self_->pid;
  }
  peer->hdr = peer->at<ProcessShared>(0);
  if (peer->hdr->magic != kProcessMagic || peer->hdr->gen != gen) return nullptr;
  return peer;
}

Peer* Process::peer(uint32_t slot, uint32_t gen) {
  if (slot >= kMaxSlots) return nullptr;
  Peer* known = peer_of_slot_[slot].load(std::memory_order_acquire);
  if (known != nullptr && known->gen == gen) [[likely]]
    return known;
  std::lock_guard guard(peers_mutex_);
  known = peer_of_slot_[slot].load(std::memory_order_acquire);
  if (known != nullptr && known->gen == gen) return known;
  auto fresh = map_peer(slot, gen);
  if (!fresh) return nullptr;
  known = fresh.get();
  peers_.push_back(std::move(fresh));
  peer_of_slot_[slot].store(known, std::memory_order_release);
  return known;
}

QpShared* Process::find_qp(uint32_t qpn, Peer** peer_out) {
  const DirEntry& entry = global()->dir[qpn & (kDirSize - 1)];
  if (qpn == 0 || entry.qpn.load(std::memory_order_acquire) != qpn) return nullptr;
  const uint32_t slot = entry.slot.load(std::memory_order_relaxed);
  const uint32_t gen = entry.gen.load(std::memory_order_relaxed);
  const Off off = entry.qp.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.qpn.load(std::memory_order_relaxed) != qpn) return nullptr;
  Peer* owner = peer(slot, gen);
  if (owner == nullptr) return nullptr;
  *peer_out = owner;
  return owner->at<QpShared>(off);
}

// ---- locks --------------------------------------------------------------------------------------

bool Process::lock_slow(Peer& peer) noexcept {
  std::atomic<HolderWord>& word = peer.hdr->lock.word;
  constexpr uint64_t kPatienceNs = 500'000'000;
  RealClock clock;
  uint64_t give_up = 0;
  HolderWord last = kFreeWord;
  for (Backoff backoff;;) {
    HolderWord seen = word.load(std::memory_order_relaxed);
    if (seen == kDeadWord || inert_) return false;
    if (seen == kFreeWord) {
      if (word.compare_exchange_strong(seen, word_, std::memory_order_acquire)) return true;
      continue;
    }
    backoff.pause();
    if (backoff.slept() == 0 || seen == word_) continue;
    if (fabric_.global.alive(holder_slot(seen), holder_gen(seen))) {
      const uint64_t t = clock.now();
      if (seen != last || give_up == 0) give_up = t + kPatienceNs;
      last = seen;
      if (t >= give_up && &peer != self_.get()) return false;
      continue;
    }
    if (break_lock(peer, seen)) return true;
  }
}

// The holder died inside the critical section. One contender wins the word and finishes what the
// journal says.
bool Process::break_lock(Peer& peer, HolderWord dead) noexcept {
  if (!peer.hdr->lock.word.compare_exchange_strong(dead, word_, std::memory_order_acquire)) {
    return false;
  }
  kill_point(KillPoint::lock_broken);
  repair(peer);
  return true;
}

bool Process::take_from_dead(Peer& peer, HolderWord dead) noexcept {
  if (!break_lock(peer, dead)) return false;
  unlock(peer);
  return true;
}

void apply_journal(char* base, const Journal& journal) noexcept {
  const auto at = [base](Off off) { return base + off; };
  if (journal.cq != 0) {
    auto* cq = reinterpret_cast<CqShared*>(at(journal.cq));
    const auto* record = reinterpret_cast<const RecordHeader*>(
        at(cq->ring) + (journal.record & (cq->blocks - 1)) * kBlockBytes);
    // Not published: the holder died before the message existed.
    if (record->seq.load(std::memory_order_acquire) != cq->key + journal.record) return;
    // `pushed` counts records; it moves exactly when `tail` does.
    if (cq->tail.load() != journal.cq_tail) {
      cq->pushed.store(cq->pushed.load() + 1);
      cq->tail.store(journal.cq_tail);
    }
  }
  auto* qp = reinterpret_cast<QpShared*>(at(journal.qp));
  if (journal.rq != 0) {
    reinterpret_cast<RqShared*>(at(journal.rq))->head.store(journal.rq_head);
  }
  qp->rx_psn.store(journal.rx_psn);
  qp->reserved.store(journal.reserved);
}

void Process::repair(Peer& peer) noexcept {
  Journal& journal = peer.hdr->lock.journal;
  if (journal.valid.load(std::memory_order_acquire) != 0) {
    apply_journal(peer.base, journal);
    journal.valid.store(0, std::memory_order_release);
  }
  // The dead holder may have owed anybody in that process a wake-up.
  poke(peer);
}

bool Process::lock_global() noexcept {
  std::atomic<HolderWord>& word = global()->lock;
  constexpr unsigned kSleepsBeforeGivingUp = 4000;  // three seconds, longer on a busy machine
  for (Backoff backoff;;) {
    HolderWord seen = kFreeWord;
    if (word.compare_exchange_strong(seen, word_, std::memory_order_acquire)) return true;
    if (inert_) return false;
    backoff.pause();
    if (backoff.slept() == 0 || seen == word_) continue;
    // Everything under this lock is published by one last store: nothing to repair.
    if (!fabric_.global.alive(holder_slot(seen), holder_gen(seen)) &&
        word.compare_exchange_strong(seen, word_, std::memory_order_acquire)) {
      return true;
    }
    // It lives, but is stopped. It cannot be overruled, since it will go on writing.
    if (backoff.slept() >= kSleepsBeforeGivingUp) return false;
  }
}

void Process::unlock_global() noexcept {
  global()->lock.store(kFreeWord, std::memory_order_release);
}

// ---- directory ----------------------------------------------------------------------------------

uint32_t Process::claim_qpn(Off qp, uint32_t wanted) {
  if (!lock_global()) return 0;
  GlobalShared* g = global();
  uint32_t qpn = 0;
  const auto take = [&](DirEntry& entry) {
    if (entry.qpn.load() != 0) return false;
    entry.slot = self_->slot;
    entry.gen = self_->gen;
    entry.qp = qp;
    return true;
  };
  if (DirEntry& rested = g->dir[wanted & (kDirSize - 1)]; wanted != 0 && take(rested)) {
    qpn = wanted;
    rested.qpn.store(qpn, std::memory_order_release);
  }
  for (unsigned i = 0; i < kDirSize && qpn == 0; ++i) {
    const uint32_t index = (g->dir_next + i) & (kDirSize - 1);
    DirEntry& entry = g->dir[index];
    if (!take(entry)) continue;
    kill_point(KillPoint::qp_directory_claimed);
    // The search starts behind the last entry given out, so a number rests as long as possible
    // before its index is used again, and then with another generation.
    if (index + 1 == kDirSize) g->qpn_gen = g->qpn_gen % 511 + 1;
    g->dir_next = (index + 1) & (kDirSize - 1);
    if (g->qpn_gen == 0) g->qpn_gen = 1;
    qpn = (g->qpn_gen << kDirBits) | index;
    entry.qpn.store(qpn, std::memory_order_release);
    kill_point(KillPoint::qp_directory_public);
  }
  unlock_global();
  return qpn;
}

void Process::release_qpn(uint32_t qpn) {
  DirEntry& entry = global()->dir[qpn & (kDirSize - 1)];
  last_released_qpn_.store(qpn);
  entry.qpn.compare_exchange_strong(qpn, 0);
}

// ---- pools --------------------------------------------------------------------------------------

int Process::take_mr(MrShared** entry, uint32_t* index) {
  std::lock_guard guard(pools_mutex_);
  if (!free_mrs_.empty()) {
    *index = free_mrs_.back();
    free_mrs_.pop_back();
  } else {
    if (next_mr_ == kMrChunks * kMrChunk) return ENOMEM;
    std::atomic<Off>& chunk = hdr_->mr_chunks[next_mr_ >> kMrChunkBits];
    if (chunk == 0) {
      const Off off = segment_.alloc(sizeof(MrShared) * kMrChunk);
      if (off == 0) return ENOMEM;
      chunk.store(off, std::memory_order_release);
    }
    *index = next_mr_++;
  }
  const Off chunk = hdr_->mr_chunks[*index >> kMrChunkBits];
  *entry = segment_.at<MrShared>(chunk) + (*index & (kMrChunk - 1));
  return 0;
}

void Process::give_back_mr(uint32_t index) {
  std::lock_guard guard(pools_mutex_);
  free_mrs_.push_back(index);
}

Off Process::take(Pool pool) {
  {
    std::lock_guard guard(pools_mutex_);
    auto& list = pools_[static_cast<unsigned>(pool)];
    if (!list.empty()) {
      const Off off = list.back();
      list.pop_back();
      return off;
    }
  }
  return segment_.alloc(pool_bytes(pool));
}

void Process::give_back(Pool pool, Off off) {
  if (off == 0) return;
  std::lock_guard guard(pools_mutex_);
  pools_[static_cast<unsigned>(pool)].push_back(off);
}

// ---- attention ----------------------------------------------------------------------------------

void Process::poke(Peer& peer) noexcept {
  peer.hdr->attention.fetch_add(1);
  waker_.wake(peer.hdr->device_thread);
}

void Process::poke_everybody() noexcept {
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    const SlotShared& entry = global()->slots[slot];
    if (entry.state.load() != SlotState::Live) continue;
    if (Peer* other = peer(slot, entry.gen); other != nullptr) poke(*other);
  }
}

void Process::refresh_faults() {
  const uint32_t epoch = global()->faults.epoch.load();
  if (!injector_kept_) {
    if (epoch == 0 && fabric_.log == nullptr) return;
    injector_kept_ = std::make_unique<Injector>(*this);
  }
  faults_seen_ = epoch;
  injector_kept_->refresh();
  injector_.store(injector_kept_->needed() ? injector_kept_.get() : nullptr,
                  std::memory_order_release);
  schedule(injector_kept_->next_due());
}

void Process::schedule(uint64_t deadline) noexcept {
  uint64_t seen = next_deadline_.load();
  while (deadline < seen && !next_deadline_.compare_exchange_weak(seen, deadline)) {
  }
  if (deadline < seen) wake_device_thread();
}

void Process::wake_device_thread() noexcept {
  if (!fabric_.in_process) waker_.wake(hdr_->device_thread);
}

// Neither start nor rest under the mutex: the thread may want it meanwhile, and one of them may
// wait for the other. The object stays until detach.
void Process::start_device_thread() {
  if (fabric_.in_process || inert_) return;
  DeviceThread* thread = nullptr;
  {
    std::lock_guard guard(thread_mutex_);
    if (!thread_) thread_ = DeviceThread::create(*this);
    thread = thread_.get();
  }
  if (thread != nullptr) thread->run_on();
}

void Process::rest_device_thread() {
  DeviceThread* thread = nullptr;
  {
    std::lock_guard guard(thread_mutex_);
    thread = thread_.get();
  }
  if (thread != nullptr) thread->rest();
}

void Process::watch(Peer& peer) {
  if (&peer == self_.get() || fabric_.in_process) return;
  std::lock_guard guard(thread_mutex_);
  if (thread_) thread_->watch(peer.slot, peer.gen, peer.pid);
}

// ---- death of others ----------------------------------------------------------------------------

void Process::sweep_locked(uint32_t slot, uint32_t gen) {
  SlotShared& shared = global()->slots[slot];
  if (shared.gen != gen || shared.state != SlotState::Live || fabric_.global.alive(slot, gen)) {
    return;
  }
  bury(slot, gen);
}

// The dead process may have died holding the lock of another, with a message half published, or
// after a message and before the wake-up for it. Its victims may be asleep: nobody else would tell
// them. Whoever comes here holds the attach lock, for which everybody who opens or leaves waits, so
// this must not wait for a lock that another may hold: if it is not the dead one's any more, then
// somebody took it over, and that one repairs and wakes. If he is stopped, when he goes on; if he
// dies meanwhile, the journal is still open and the next one finds it.
void Process::settle_debts_of(uint32_t slot, uint32_t gen) {
  const HolderWord dead = holder_word(slot, gen);
  for (uint32_t other = 0; other < kMaxSlots; ++other) {
    const SlotShared& shared = global()->slots[other];
    if (other == slot || shared.state != SlotState::Live) continue;
    Peer* victim = peer(other, shared.gen);
    if (victim == nullptr) continue;
    if (!take_from_dead(*victim, dead)) poke(*victim);
  }
}

void Process::bury(uint32_t slot, uint32_t gen) {
  kill_point(KillPoint::sweep_started);
  Peer* dead = peer(slot, gen);
  // False after a while if whoever holds the dead one's lock is stopped. Then nobody marks the lock
  // as dead, and it is free when that one goes on, which does no harm: the memory stays mapped, and
  // its queue pairs answer nobody.
  const bool locked = dead != nullptr && lock(*dead);
  for (DirEntry& entry : global()->dir) {
    if (entry.slot != slot || entry.gen != gen || entry.qpn == 0) continue;
    // Initiators that are connected look at the QP itself, not at the directory.
    if (dead != nullptr) dead->at<QpShared>(entry.qp)->state.store(IBV_QPS_RESET);
    entry.qpn = 0;
  }
  kill_point(KillPoint::sweep_directory_done);
  if (locked) dead->hdr->lock.word.store(kDeadWord, std::memory_order_release);
  if (!fabric_.in_process) settle_debts_of(slot, gen);
  const bool mapped = dead != nullptr && dead->mapping;
  fabric_.global.unlink_process_file(slot, gen, mapped ? dead->mapping->fd() : -1);
  global()->slots[slot].state.store(SlotState::Free, std::memory_order_release);
}

void Process::die() {
  if (!fabric_.in_process || inert_) return;
  bury(self_->slot, self_->gen);
  inert_ = true;
}

void Process::sweep_dead(uint32_t slot, uint32_t gen) {
  // The attach lock belongs to the process; the mutex keeps our own threads apart.
  std::lock_guard guard(sweep_mutex_);
  if (inert_ || fabric_.in_process) return;
  fabric_.global.lock_attach();
  sweep_locked(slot, gen);
  fabric_.global.unlock_attach();
}

void Process::sweep_all_dead() {
  if (fabric_.in_process) return;
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    const SlotShared& shared = global()->slots[slot];
    // The kernel never reports a record lock to its own holder.
    if (slot == self_->slot && attached_) continue;
    if (shared.state != SlotState::Live || fabric_.global.alive(slot, shared.gen)) continue;
    sweep_locked(slot, shared.gen);
  }
}

}  // namespace softhca
