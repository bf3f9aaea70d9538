// Transport: the whole connection layer of one process, as plugin/mca sees it: rails, peers,
// progress, registration, statistics.
//
// Thread contract: create/destroy and add_peer from one thread at a time; submission and
// registration from any application thread; progress() from btl_progress. Upcalls and completion
// callbacks run only inside progress(). Invariants: nothing here knows OPAL; nothing calls up from
// the service or worker thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/request.h"
#include "plugin/conn/params.h"
#include "plugin/verbs/error.h"

namespace mend::conn {

class Connection;
class Host;
class Peer;
struct Devices;

struct Identity {
  std::uint64_t job_key = 0;  // hash of the PMIx namespace
  std::uint32_t jobid = 0;
  std::uint32_t rank = 0;  // vpid
  std::string host;
  std::string fabric;            // name of the embedded device's fabric: one per mpirun
  std::uint32_t local_rank = 0;  // among the ranks of this node
  // The CPUs that the ranks of this node are bound to, in the order of their local ranks, as lists
  // "0-3,8"; an empty one is not known. Empty: nothing is known of the others.
  std::vector<std::string> local_bindings;
  std::uint32_t expected_peers = 1;  // other processes of the job, for sizing only
};

// Where a message came from.
struct Origin {
  void* context = nullptr;  // Upcalls::context
  RailId rail;              // home rail of the connection
  Peer* peer = nullptr;
};

// How the layer above is called. All from progress() only.
struct Upcalls {
  // A Data message; `origin` is an Origin, payload is valid during the call. Called straight from
  // the Poller, with nothing in between.
  ops::DeliverFn receive = nullptr;
  // Giving up on a peer: once per peer, after max_outage or at a fault that cannot be repaired.
  // text is the reason for a person. peer null: it is this process that cannot go on, in a job that
  // goes on without lost processes; once.
  void (*gave_up)(void* context, Peer* peer, const std::string& text) = nullptr;
  // A peer that was not added has asked for a connection: the layer above looks its modex up and
  // calls add_peer. Optional.
  void (*unknown_peer)(void* context, std::uint32_t rank) = nullptr;
  // Something goes on, but so slowly that a person should know; text says what and why. Optional.
  void (*warn)(void* context, const std::string& text) = nullptr;
  // Before the first device is opened, and so before mend or a driver starts a thread: what can
  // only be done without them. Not called where there is no device. Optional.
  void (*before_threads)(void* context) = nullptr;
  void* context = nullptr;
};

// One registered region, with keys for every open protection domain. Owned by the caller's
// registration cache entry.
struct Region {
  ops::LocalKeys local;    // index: rail
  ops::RemoteKeys remote;  // index: rail of this process
  std::uint32_t reg_id = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
  void* mrs[kMaxRails] = {};  // ibv_mr*, one per distinct protection domain
};

// What one rail offers, for the BTL module made of it.
struct RailInfo {
  std::string name;              // "mlx5_0:1"
  std::uint32_t speed_mbps = 0;  // megabits per second
  std::uint32_t latency_us = 1;  // microseconds, for BTL latency; grows with the distance
  int numa_node = -1;
  double distance = 10;  // from this process, relative: 10 = the same NUMA node, or not known
  std::uint32_t max_inline_payload = 0;  // bytes of payload that fit an inline SEND
  std::uint64_t max_message = 0;         // bytes per RDMA operation
};

enum Access : unsigned { kLocalWrite = 1, kRemoteRead = 2, kRemoteWrite = 4 };

class Transport {
 public:
  // Opens devices, creates rails, the control channel and the service thread. An empty Result error
  // with code ENODEV means "no usable device": the component steps aside silently. Every other
  // error is for the user.
  static Result<std::unique_ptr<Transport>> create(const Params& params, const Identity& self,
                                                   const Upcalls& upcalls);
  // The same on devices that the caller has opened, and on executors of its choice. The host
  // outlives the transport.
  static Result<std::unique_ptr<Transport>> create_on(Devices devices, const Params& params,
                                                      const Identity& self, const Upcalls& upcalls,
                                                      Host& host);
  ~Transport();  // fences and destroys everything; close() first for an orderly end
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  std::span<const RailInfo> rails() const;
  std::vector<std::byte> modex() const;  // version byte first

  // Peers. EPROTONOSUPPORT: another version of mend. ENOTSUP: no common rail, or a damaged address.
  // The message names the peer and says which.
  Result<Peer*> add_peer(std::uint32_t jobid, std::uint32_t rank, const std::string& host,
                         std::span<const std::byte> modex);
  void remove_peer(Peer* peer);  // orderly BYE; flushes within max_outage
  // The layer above goes on without the peer: whatever is or will be submitted to it is called back
  // as failed, nothing is said. Any thread.
  void give_up_peer(Peer* peer);
  // The same by name, for a process that the runtime says has ended; nothing if it is no peer.
  void give_up_process(std::uint32_t jobid, std::uint32_t rank);
  // Whether a connection to the peer has ever been active. Any thread.
  bool ever_used(const Peer* peer) const;
  bool reaches(const Peer* peer, RailId home_rail) const;  // over at least one rail it is true
  ops::Channel& channel(
      Peer* peer, RailId home_rail);  // the connection that home rail's module uses for this peer

  // Fragments, registered for every rail. size classes small_frag_size and max_send_size; nullptr
  // only when memory is exhausted.
  ops::Frag* alloc_frag(std::uint32_t payload_bytes);
  // The smaller class itself, for a caller to whom the call above is too long; may be null.
  ops::FragPool* small_frags() const { return small_frags_; }
  void release_user(ops::Frag& frag);  // the upper layer is done with it (clears kHoldUser)

  Result<void> register_region(void* base, std::size_t bytes, unsigned access, Region& out);
  void deregister_region(Region& region);

  int progress(RailId rail);
  // The same on every rail, but for attend(), which has to follow when wants_attention().
  int poll() {
    int events = 0;
    if (poller_count_ == 1) [[likely]] {
      events = pollers_[0]->progress();
    } else {
      for (std::uint32_t i = 0; i < poller_count_; ++i) events += pollers_[i]->progress();
    }
    return events;
  }
  bool wants_attention() const { return attention_->load(std::memory_order_relaxed); }
  void ask_attention();  // attend() is called soon; any thread
  int attend();          // runs the upcalls gave_up, unknown_peer and warn
  bool flushed() const;  // no log entry and no callback outstanding anywhere
  void close();          // orderly end of all connections (BYE), bounded

  // Statistics: one JSON object, fields of docs/parameters.md; and single values for MPI_T.
  std::string stats_json() const;
  std::uint64_t stat(unsigned index) const;  // index into kStatNames
  static std::span<const char* const> stat_names();

 private:
  struct Impl;
  // What poll() and sending need, flat; in impl_.
  std::array<ops::Poller*, kMaxRails> pollers_{};
  std::uint32_t poller_count_ = 0;
  const std::atomic<bool>* attention_ = nullptr;
  ops::FragPool* small_frags_ = nullptr;
  std::unique_ptr<Impl> impl_;
  explicit Transport(std::unique_ptr<Impl> impl);
};

}  // namespace mend::conn
