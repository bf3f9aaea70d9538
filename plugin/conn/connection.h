// Connection: the driver of one state machine: it turns what happens into events, executes the
// machine's actions, and runs the commands that may block on the worker.
//
// Thread contract: handle() and on_message() on the service thread only; post() and the channel's
// events from any thread; the members of Work belong to the worker thread. Objects live as long as
// the transport. Invariants: one command at a time reaches the worker in order; a QP is posted to
// only between StartReplay and stop_posting (the channel's own state enforces it); every QP taken
// from the pool is parked or known as stuck.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/channel.h"
#include "plugin/conn/ack_cells.h"
#include "plugin/conn/fsm.h"
#include "plugin/conn/moving_timer.h"
#include "plugin/conn/peer.h"
#include "plugin/conn/rail_unit.h"
#include "plugin/conn/transport.h"

namespace mend::conn {

class ControlPlane;

struct ConnectionStats {
  std::atomic<std::uint64_t> ups{0};             // times replay was done on a new queue pair
  std::atomic<std::uint64_t> max_outage_us{0};   // longest first sign of trouble -> repaired
  std::atomic<std::uint64_t> repairs{0};         // keys or memory renewed for an operation
  std::atomic<std::uint64_t> stale_messages{0};  // of another epoch, or without meaning then
  std::atomic<std::uint64_t> misses{0};          // heartbeats without an answer in time
  std::atomic<std::uint64_t> false_alarms{0};    // probes that succeeded
  std::atomic<std::uint64_t> slowed{0};          // times the window was narrowed for the peer
  std::atomic<std::uint32_t> path_mtu{0};        // bytes, of the last queue pair; 0: none yet
};

class Connection {
 public:
  // remote: the peer's rail this connection is homed on. cell: where the peer writes its
  // acknowledgements.
  Connection(ControlPlane& plane, Peer& peer, ConnId id, std::uint32_t k, RailUnit& home,
             const RailAddress& remote, const AckCells::Cell& cell);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  ops::Channel& channel() { return channel_; }
  const ops::Channel& channel() const { return channel_; }
  Peer& peer() const { return peer_; }
  ConnId id() const { return id_; }
  std::uint32_t k() const { return k_; }
  RailId home_rail() const { return home_.rail->id(); }
  const ConnectionStats& stats() const { return stats_; }

  void note_trouble(std::string what);  // any thread: what the give-up message will name
  void post(const Event& event);        // any thread: handled soon on the service thread
  void handle(const Event& event);      // service thread
  void on_message(const CtlMessage& message,
                  const UdSource& source);              // service thread; already accepted
  void answer(const CtlMessage& message);               // service thread: as it is
  void tell_free_buffers();                             // service thread: by a heartbeat at once
  bool in_use() const { return may_post(fsm_.state); }  // service thread
  void give_up_peer();                        // any thread: the layer above goes on without it
  void path_moved();                          // service thread: this side's address has changed
  void device_lost(const std::string& what);  // service thread
  void close();                               // any thread: BYE after the log is empty
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Given up for a fault of this process' own: nothing will be acknowledged, nobody says goodbye.
  bool beyond_help() const { return beyond_help_.load(std::memory_order_acquire); }
  bool ever_used() const { return ever_used_.load(std::memory_order_relaxed); }

  void last_fence();  // destructor of the transport, threads stopped: parks what is left

 private:
  // The worker's side: the QP of this connection.
  struct Work {
    RcQp* qp = nullptr;
    Epoch epoch;
    Psn psn;
    Qpn last;           // number of the previous QP (rule F4)
    bool lane = false;  // known to the poller and the channel
  };

  static ops::ChannelConfig channel_config(ControlPlane& plane, RailUnit& home,
                                           const RailAddress& remote, const AckCells::Cell& cell);
  ops::ChannelEvents channel_events();

  // connection_actions.cpp, service thread
  void run(const Action& action);
  void send(const Action& action);
  void prepare(const Action& action);
  void end_turn();
  void start_replay(const Action& action);
  void give_up(const Action& action);
  void pronounce(GiveUpReason reason, std::string text);
  bool own_fault(GiveUpReason reason) const;
  bool hears_somebody() const;
  bool hears() const;
  void probe(const Action& action);
  void note_trouble_or_life(const Event& event, std::uint32_t misses_before);
  void came_up(const Action& action);
  void arm(TimeNs at);
  void on_timer(TimeNs at);
  bool stale_request();
  bool idle() const;
  void fit_window(std::uint32_t free_buffers);
  void watch_window();
  void watch_flush();
  void watch_probe(TimeNs deadline);
  void end_probe();
  std::string describe() const;
  void stamp(CtlMessage& message) const;  // the names: who, to whom, which connection

  // connection_repair.cpp, service thread
  void on_lost(Epoch epoch, int status);
  void repair(Epoch epoch, int status);
  void refuse(std::string what);  // not repairable; what names the fault
  void ask_keys(std::uint32_t ticket, TimeNs pause);
  void answer_keys(const CtlMessage& request);
  void take_keys(const CtlMessage& answer);
  void renew_memory(Lkey failed);
  void repaired();
  std::string fault_text(const ops::OpFault& op, int status) const;

  // connection_work.cpp, worker thread
  void work_fence(std::uint32_t work);
  void work_prepare(std::uint32_t work, Role role, Epoch epoch, const Endpoint& remote);
  void work_connect(std::uint32_t work, const Endpoint& remote);
  bool fence_now(FenceSample& sample, std::string& reason);
  Result<void> connect(const Endpoint& remote);
  Result<Endpoint> make_endpoint(Epoch epoch);
  Endpoint my_endpoint() const;

  ControlPlane& plane_;
  Peer& peer_;
  const ConnId id_;
  const std::uint32_t k_;
  RailUnit& home_;
  const RailAddress remote_;
  const AckCells::Cell cell_;
  Origin origin_;  // what receives of this connection are delivered with
  ops::Channel channel_;
  ConnectionStats stats_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> beyond_help_{false};
  std::atomic<bool> ever_used_{false};

  // Service thread.
  Fsm fsm_;
  UdAddress address_;  // where control messages to the peer go
  ConnId remote_conn_ = kNoConn;
  TimeNs heard_at_ = 0;            // the last sign of life of a peer whose connection works
  TimeNs trouble_since_ = kNever;  // the port is down or the peer silent, and no sign of life since
  TimeNs lost_at_ = kNever;        // when the present outage began, for the figure only
  MovingTimer timer_;              // when the machine wants to be called
  std::uint64_t recvs_seen_ = 0;
  ops::Channel::Waiting waiting_seen_;  // since stuck_since_ nothing has left the send queue
  TimeNs stuck_since_ = kNever;
  bool watching_flush_ = false;
  bool in_turn_ = false;               // it was let into a handshake
  bool may_post_before_loss_ = false;  // it was active: the next fence begins an outage
  TimeNs narrow_until_ = kNever;       // kNever: the window is as wide as configured
  bool watching_window_ = false;
  std::uint64_t probe_wr_ = 0;  // 0: no probe is out
  Epoch probe_epoch_;
  std::atomic<int> probe_status_{0};
  // The repair that the next replay waits for (docs/protocol.md 1.9).
  struct Repair {
    bool pending = false;
    std::uint32_t ticket = 0;  // counts repairs, so that an older one's timer does nothing
    std::uint32_t reg_id = 0, generation = 0;  // remote access: what the peer is asked for
    TimeNs last_bare = kNever;  // when a fault without an operation was last let pass
    std::optional<Action> held_start;
  } repair_;
  std::string last_fault_;  // what was last seen to go wrong, for the message to a person
  std::atomic<int> last_status_{0};

  Work work_;
};

}  // namespace mend::conn
