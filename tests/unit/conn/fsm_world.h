// Two state machines, abstract queue pairs and a hostile control plane in one process, driven by a
// seed: datagrams are lost, doubled and reordered, links break one way or both, completions vanish,
// queue pairs fail in the middle of a handshake, commands take their time. After a number of faults
// the world turns friendly, and everything submitted must arrive, once and in order.
//
// It executes actions the way a driver must, and checks the invariants of docs/protocol.md while it
// runs: I1 and I10 (order, no gap, no duplicate), I2 (nothing enters a fenced queue pair), I3 (both
// Active: same epoch, paired queue pairs), F4 and F5.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "plugin/conn/fsm.h"

namespace mend::conn::test {

// A rule of the protocol that the driver (not the machine) breaks on purpose, to prove that the
// world notices.
enum class Sabotage {
  None,
  SampleBeforeDrain,  // F1: rx_next is taken before the receive queue is drained
  NoFence,            // F1: FenceDone is answered although the QP still accepts
  SameQpn,            // F4: the new QP accepts what was sent to the old one
  EarlyPost,          // F5: the follower posts as soon as it is Prepared
  LostCommit,         // COMMIT and heartbeats never arrive and data flows one way only
};

struct WorldOptions {
  unsigned sends[2] = {20, 20};  // by leader, by follower
  unsigned faults = 4;
  bool close = false;  // both sides close at the end
  bool heartbeats = true;
  Sabotage sabotage = Sabotage::None;
};

class World {
 public:
  World(std::uint64_t seed, const WorldOptions& options);
  // Runs to the end; empty when all is well, else what went wrong and the last transitions.
  std::string run();

  const Fsm& fsm(int side) const { return side_[side].fsm; }
  unsigned faults_done() const { return faults_done_; }
  unsigned epochs() const { return side_[0].fsm.epoch.value; }
  std::size_t most_actions() const { return most_actions_; }

 private:
  struct Qp {
    std::uint32_t qpn = 0;
    Epoch epoch;
    bool accepts = false;  // RTR or RTS
    bool fenced = false;   // RESET
    std::uint32_t peer_qpn = 0;
    std::deque<std::uint32_t> wire;  // sent, not yet executed by the peer
    bool may_still_arrive = true;    // packets on the wire reach the peer
    bool lost = false;               // a request was lost: nothing later arrives either (RC order)
    bool acks = true;                // completions come back
    bool error_told = false;
    bool received = false;
  };
  struct Work {
    ActionType type;
    std::uint32_t number;
    Epoch epoch;
  };
  struct Side {
    Fsm fsm;
    std::vector<Qp> qps;  // all that ever were; the last one is current if has_qp
    bool has_qp = false;
    bool posting = false;
    std::deque<Work> worker;
    std::deque<std::pair<Epoch, std::uint32_t>> received;  // receive queue, not yet polled
    std::uint32_t submitted = 0, target = 0, acked = 0, rx_next = 0, replay_end = 0;
    TimeNs timer = kNever;
    bool replaying = false, closed = false, close_asked = false, gave_up = false, got_rc = false;
  };
  struct Datagram {
    int to;
    CtlMessage message;
  };

  void feed(int i, const Event& event);
  void execute(int i, const Action& action);
  void send(int i, const Action& action);
  void do_work(int i);
  void fence(int i, const Work& work);
  void prepare(int i, const Work& work);
  void connect(int i, const Work& work);
  void start_replay(int i, const Action& action);
  void post_all(int i, std::uint32_t from);
  void submit(int i);
  void deliver_datagram();
  void execute_packet(int i);
  void poll(int i);
  void acknowledge(int i);
  void notice_error(int i);
  void check_log(int i);
  void fault();
  void advance_clock();
  void check_pair();
  bool paired(int from) const;
  bool finished() const;
  bool random_step();
  void violate(const std::string& what);
  unsigned pick(unsigned n) { return n == 0 ? 0 : static_cast<unsigned>(rng_() % n); }
  Qp& current(int i) { return side_[i].qps.back(); }

  std::mt19937_64 rng_;
  WorldOptions options_;
  FsmConfig config_;
  Side side_[2];
  std::vector<Datagram> network_;
  TimeNs now_ = kSecond;
  std::uint32_t next_qpn_ = 17;
  unsigned faults_done_ = 0;
  bool quiet_ = false;
  std::size_t most_actions_ = 0;
  std::string violation_;
  std::deque<std::string> history_;
};

}  // namespace mend::conn::test
