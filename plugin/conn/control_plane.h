// ControlPlane: the table of connections and everything they share: service thread, worker, control
// channels, async events.
//
// Thread contract: add_peer, find and the lists from any thread (one mutex); on_* on the service
// thread; attention() from progress only. Invariants: nothing from the wire is dereferenced: a
// datagram is parsed, its names are compared with ours and the modex's, and indices are looked up
// in tables. Peers and connections live as long as the plane.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ops/frag_pool.h"
#include "plugin/conn/accept.h"
#include "plugin/conn/ack_cells.h"
#include "plugin/conn/ack_timer.h"
#include "plugin/conn/connection.h"
#include "plugin/conn/host.h"
#include "plugin/conn/params.h"
#include "plugin/conn/rail_unit.h"
#include "plugin/conn/transport.h"
#include "plugin/verbs/async_events.h"

namespace mend::conn {

class ControlPlane {
 public:
  ControlPlane(const Params& params, const Identity& self, const Upcalls& upcalls,
               std::vector<RailUnit>& rails, MemoryRegistry& registry, ops::FragPool& frags,
               Host& host);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  Result<void> start();
  void stop();  // no handler, job or event runs afterwards

  Result<Peer*> add_peer(std::uint32_t jobid, std::uint32_t rank, const std::string& host,
                         std::span<const std::byte> modex);
  std::vector<std::byte> modex() const;

  // For connections.
  const Params& params() const { return params_; }
  const Upcalls& upcalls() const { return upcalls_; }
  const FsmConfig& fsm_config() const { return fsm_config_; }
  // How long a request, or the probe that asks after it, may take: twice the time in which the
  // device gives up on one by itself, at least two seconds. The machine itself is more patient.
  TimeNs probe_limit() const { return probe_limit_; }
  const SelfName& self() const { return self_; }
  std::uint32_t jobid() const { return jobid_; }
  ops::FragPool& frags() const { return frags_; }
  MemoryRegistry& registry() const { return registry_; }
  Service& service() { return *service_; }
  WorkQueue& worker() { return *worker_; }
  AckTimer& ack_timer() { return *ack_timer_; }
  std::uint64_t random();
  // Service thread. sender, if any, hears of a path that cannot be resolved.
  void send(RailUnit& via, const UdAddress& to, const CtlMessage& message, Connection* sender);
  // Service thread. At most kRecoveriesInFlight handshakes are under way (after a switch failed, a
  // thousand connections would starve each other): runs start now or when it is the connection's
  // turn. leave_handshake() ends its turn; no-op without one.
  void enter_handshake(Connection& connection, std::function<void()> start);
  void leave_handshake(Connection& connection);
  void qp_in_use(RailId rail, Qpn qpn, Connection* connection, Epoch epoch);  // null: no longer
  // Worker thread. Reap what has lingered, refill what was taken: now, or when recovery is over.
  void tend_pool(RailUnit& unit);
  void tend_pool_soon(RailUnit& unit);
  Peer* find_peer(std::uint32_t jobid, std::uint32_t rank) const;  // any thread; null: no peer
  void report_give_up(Peer& peer, std::string text);
  void report_own_end(std::string text);  // this process cannot go on
  void report_warning(std::string text);

  // For the transport.
  template <typename Fn>
  void each_connection(Fn&& fn) const {
    const std::lock_guard guard(mutex_);
    for (const auto& connection : connections_)
      if (connection) fn(*connection);
  }
  // Somebody has to call attention(); read by every progress call.
  void ask_attention() { attention_.store(true, std::memory_order_relaxed); }
  const std::atomic<bool>& attention_flag() const { return attention_; }
  // A connection is being opened or repaired: the threads of this process have something to do that
  // the application waits for.
  bool healing() const { return healing_.load(std::memory_order_relaxed) > 0; }
  void count_healing(int change);  // service thread
  int attention();                 // progress: runs the upcalls that are due; returns how many
  std::uint64_t dropped(DropReason reason) const {
    return drops_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  struct Unknown {  // a request of a process that has not been added yet
    std::size_t rail;
    CtlMessage message;
    UdSource source;
  };
  struct QpUser {
    Connection* connection;
    Epoch epoch;
  };

  void forget_unconnected(const Peer& peer);
  Result<void> make_connections(Peer& peer);
  void tend_pool_at(RailUnit& unit, TimeNs when);
  std::vector<RailAddress> describe_rails() const;
  Result<void> make_connection(Peer& peer, std::uint32_t my_rail, const RailAddress& remote);
  void on_control_readable(std::size_t rail);
  void on_datagram(std::size_t rail, std::span<const std::byte> bytes, const UdSource& source);
  void accept(std::size_t rail, const CtlMessage& message, const UdSource& source);
  void drop(DropReason reason);
  std::vector<Connection*> connections_on(const RailUnit& unit) const;
  void on_async_readable(Nic& nic);
  void on_qp_event(Nic& nic, const verbs::AsyncEvent& event);
  void on_srq_low(Nic& nic, const verbs::AsyncEvent& event);
  void relieve(RailUnit& unit);
  void share_what_is_left(RailUnit& unit);
  void arm_again(RailUnit& unit);
  void set_free_share(RailUnit& unit, std::uint32_t share);
  void on_port_event(Nic& nic, const verbs::AsyncEvent& event);
  void on_fatal_event(Nic& nic, const verbs::AsyncEvent& event);
  void resolve_then_send(RailUnit& via, const UdAddress& to, std::vector<std::byte> bytes,
                         Connection* sender);
  void reject_stale(const CtlMessage& message);
  void say_busy(RailUnit& via, const CtlMessage& message, const UdSource& source);
  void mend_control(RailUnit& via);

  const Params params_;
  const Upcalls upcalls_;
  const std::uint32_t jobid_;
  const std::string host_;
  SelfName self_;
  FsmConfig fsm_config_;
  TimeNs probe_limit_;
  std::vector<RailUnit>& rails_;
  const std::vector<RailAddress> published_;  // what the modex says of them, whatever changes later
  ops::FragPool& frags_;
  MemoryRegistry& registry_;
  AckCells cells_;

  mutable std::mutex mutex_;  // guards what follows, up to the threads
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::uint64_t, Peer*> by_boot_;
  std::map<std::uint64_t, Peer*> by_name_;              // jobid << 32 | rank
  std::map<std::uint32_t, Unknown> unknown_;            // by rank, the latest request of each
  std::vector<std::uint32_t> unknown_new_;              // not yet reported upwards
  std::vector<std::pair<Peer*, std::string>> gave_up_;  // null: this process itself
  bool own_end_ = false;                                // was reported
  std::vector<std::string> warnings_;
  std::map<std::pair<std::uint8_t, std::uint32_t>, QpUser> qp_users_;  // by rail and QP number
  std::mt19937_64 random_;

  std::atomic<bool> attention_{false};
  std::atomic<int> healing_{0};  // connections between Fencing and Prepared
  std::array<std::atomic<std::uint64_t>, kDropReasons>
      drops_{};  // datagrams thrown away, by reason

  // Service thread.
  std::set<const UdChannel*> mending_;
  std::set<Connection*> handshakes_;  // at most kRecoveriesInFlight
  std::deque<std::pair<Connection*, std::function<void()>>> waiting_handshakes_;

  Host& executors_from_;
  std::unique_ptr<AckTimer> ack_timer_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<WorkQueue> worker_;
};

}  // namespace mend::conn
