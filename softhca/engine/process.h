// One attached process of a fabric: its slot, its segment, its view of its peers, and the shared
// services of its device contexts. In shared mode there is one per OS process and library copy; in
// in-process mode tests attach several to one Fabric. Thread safe unless said otherwise.
// Lock order: registry() -> QP send lock -> process lock (own or peer's) -> CQ lock -> event locks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "softhca/engine/clock.h"
#include "softhca/engine/global_segment.h"
#include "softhca/engine/kill_point.h"
#include "softhca/engine/segment.h"
#include "softhca/engine/shm_layout.h"
#include "softhca/engine/wake.h"
#include "softhca/engine/wr_log.h"
#include "softhca/fault/fault_log.h"

namespace softhca {

struct Channel;
struct Context;
struct Cq;
struct Qp;
struct Srq;
class DeviceThread;
class Injector;
class Process;

// Later than anything, but a deadline.
inline constexpr uint64_t kDistantDeadline = UINT64_MAX - 1;

// What all processes of a fabric have in common. Outlives its processes.
struct Fabric {
  GlobalSegment global;
  FabricConf conf;
  Clock* clock = nullptr;
  bool in_process = false;
  WrLog* log = nullptr;                        // in-process mode: what was executed
  std::vector<FaultHit>* fault_log = nullptr;  // and what the fault schedule did
  std::mutex log_mutex;
  std::vector<Process*> local;  // in-process mode: by slot
};

// A process as seen from another one (or from itself). Never freed while its Process lives.
struct Peer {
  char* base = nullptr;
  ProcessShared* hdr = nullptr;
  uint32_t slot = 0;
  uint32_t gen = 0;
  pid_t pid = 0;
  bool same_address_space = false;  // copy with memcpy instead of process_vm_*
  std::unique_ptr<Segment> mapping;

  template <typename T>
  T* at(Off off) const noexcept {
    return reinterpret_cast<T*>(base + off);
  }
};

class Process {
 public:
  explicit Process(Fabric& fabric);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Before attach: the process' rank, and the schedule that it was given (origin_of()).
  void identify(int32_t rank, uint32_t fault_origin) noexcept {
    rank_ = rank;
    fault_origin_ = fault_origin;
  }
  int32_t rank() const noexcept { return rank_; }
  uint32_t fault_origin() const noexcept { return fault_origin_; }
  // nullptr: the fault schedule has nothing to do here.
  Injector* injector() const noexcept { return injector_.load(std::memory_order_acquire); }
  // Looks at the fabric's fault schedule; every process is poked when it changes.
  void refresh_faults();
  void poke_everybody() noexcept;

  // Takes a slot and creates the segment. In shared mode the caller holds the attach lock.
  int attach(std::string* why);
  void detach();
  // In a forked child: everything is replaced by empty memory and stays silent.
  void make_inert() noexcept;
  // In-process mode: what the others see when this process is killed.
  void die();
  bool inert() const noexcept { return inert_; }

  Fabric& fabric() const noexcept { return fabric_; }
  uint64_t now() const noexcept { return fabric_.clock->now(); }
  GlobalShared* global() const noexcept { return fabric_.global.shared(); }
  ProcessShared* hdr() const noexcept { return hdr_; }
  Segment& segment() noexcept { return segment_; }
  HolderWord word() const noexcept { return word_; }
  Peer& self() noexcept { return *self_; }
  const Waker& waker() const noexcept { return waker_; }

  // The peer that attached as (slot, gen), mapped on first use; nullptr if it is gone.
  Peer* peer(uint32_t slot, uint32_t gen);
  // Resolves a QPN; nullptr if no such QP lives.
  QpShared* find_qp(uint32_t qpn, Peer** peer);

  // ---- the process lock of a peer ----
  // False: that process is dead and swept, or (never for our own lock) whoever holds its lock lives
  // but does not go on, being stopped: as good as no answer.
  bool lock(Peer& peer) noexcept {
    HolderWord expected = kFreeWord;
    if (peer.hdr->lock.word.compare_exchange_strong(expected, word_, std::memory_order_acquire,
                                                    std::memory_order_relaxed)) [[likely]] {
      return true;
    }
    return lock_slow(peer);
  }
  void unlock(Peer& peer) noexcept {
    peer.hdr->lock.word.store(kFreeWord, std::memory_order_release);
  }

  // Takes the lock of `peer` out of the hands of `dead`, settles what it had begun and wakes the
  // peer. False: `dead` does not hold it (any more). Never waits.
  bool take_from_dead(Peer& peer, HolderWord dead) noexcept;

  // ---- QP directory ----
  // A fresh QPN for the QpShared at `qp`, 0 = none free, or whoever is about to take one stands
  // still.
  // `wanted` is given out again if it is free, in the life that it had; 0: the next one.
  uint32_t claim_qpn(Off qp, uint32_t wanted = 0);
  uint32_t last_released_qpn() const noexcept { return last_released_qpn_.load(); }
  void release_qpn(uint32_t qpn);

  // ---- type-stable shared objects ----
  enum class Pool : unsigned { Qp, Cq, Rq, Wake, Count };
  Off take(Pool pool);  // zeroed; 0 = no memory
  void give_back(Pool pool, Off off);
  // An entry of the table of memory regions; 0 or ENOMEM.
  int take_mr(MrShared** entry, uint32_t* index);
  void give_back_mr(uint32_t index);

  // ---- attention, time ----
  // Tells the owner of `peer` to look at its objects, and wakes its device thread.
  void poke(Peer& peer) noexcept;
  bool needs_service() const noexcept {
    return hdr_->attention.load(std::memory_order_relaxed) !=
               attention_seen_.load(std::memory_order_relaxed) ||
           next_deadline_.load(std::memory_order_relaxed) != UINT64_MAX;
  }
  // Looks at what peers did to our objects and re-drives what is due. Called from poll, from event
  // calls, from the device thread and from the simulation.
  void service();
  void schedule(uint64_t deadline) noexcept;
  uint64_t next_deadline() const noexcept { return next_deadline_.load(std::memory_order_relaxed); }
  // Has the device thread watch `peer`.
  void watch(Peer& peer);
  // With the first device context opened, and when the last is closed (nothing in in-process mode).
  void start_device_thread();
  void rest_device_thread();
  void wake_device_thread() noexcept;

  // Cleans up after a dead process; no-op if somebody else has done so. Needs no lock held.
  void sweep_dead(uint32_t slot, uint32_t gen);
  // Same for every dead slot; the caller holds the attach lock.
  void sweep_all_dead();

  // Numbers that are unique in this process.
  uint32_t next_id() noexcept { return next_id_.fetch_add(1); }

  // ---- registry of live objects ----
  std::recursive_mutex& registry() noexcept { return registry_; }
  std::vector<Context*>& contexts() noexcept { return contexts_; }
  std::vector<Qp*>& qps() noexcept { return qps_; }
  std::vector<Cq*>& cqs() noexcept { return cqs_; }
  std::vector<Srq*>& srqs() noexcept { return srqs_; }
  std::vector<Channel*>& channels() noexcept { return channels_; }

 private:
  bool lock_slow(Peer& peer) noexcept;
  bool break_lock(Peer& peer, HolderWord dead) noexcept;
  void repair(Peer& peer) noexcept;
  void bury(uint32_t slot, uint32_t gen);
  void settle_debts_of(uint32_t slot, uint32_t gen);
  bool lock_global() noexcept;
  void unlock_global() noexcept;
  void sweep_locked(uint32_t slot, uint32_t gen);
  std::unique_ptr<Peer> map_peer(uint32_t slot, uint32_t gen);
  void drive(uint64_t now);
  int create_segment(std::string* why);
  void abandon_qps();

  Fabric& fabric_;
  Segment segment_;
  ProcessShared* hdr_ = nullptr;
  HolderWord word_ = 0;
  std::unique_ptr<Peer> self_;
  Waker waker_;
  std::atomic<uint32_t> attention_seen_{0};
  std::atomic<uint64_t> next_deadline_{UINT64_MAX};
  std::atomic<uint32_t> next_id_{1};
  std::atomic<uint32_t> last_released_qpn_{0};
  bool inert_ = false;
  bool attached_ = false;
  int32_t rank_ = kAnyRank;
  uint32_t fault_origin_ = 0;
  uint32_t faults_seen_ = 0;  // epoch of the board
  std::unique_ptr<Injector> injector_kept_;
  std::atomic<Injector*> injector_{nullptr};

  std::mutex peers_mutex_;
  std::atomic<Peer*> peer_of_slot_[kMaxSlots]{};  // newest generation seen
  std::vector<std::unique_ptr<Peer>> peers_;

  std::mutex pools_mutex_;
  std::vector<Off> pools_[static_cast<unsigned>(Pool::Count)];
  std::vector<uint32_t> free_mrs_;
  uint32_t next_mr_ = 0;  // entries from here on were never used

  std::mutex sweep_mutex_;
  std::recursive_mutex registry_;
  std::vector<Context*> contexts_;
  std::vector<Qp*> qps_;
  std::vector<Cq*> cqs_;
  std::vector<Srq*> srqs_;
  std::vector<Channel*> channels_;
  std::mutex thread_mutex_;
  std::unique_ptr<DeviceThread> thread_;
};

// Repeats what a journal describes; idempotent.
void apply_journal(char* base, const Journal& journal) noexcept;

}  // namespace softhca
