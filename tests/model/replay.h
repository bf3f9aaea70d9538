// Replays a schedule of a Promela model in two real state machines and compares, after every step:
// state, epoch, the messages sent and their rx_next, where the replay starts, when a fence is
// ordered. Between the steps copies of the machines are asked two more questions: does each
// datagram that was ever sent change something exactly when the model says so, and is what the
// model keeps repeating repeated by the real timers.
//
// One thread. The driver's part is the model's: a fence is answered at the model's step of that
// name; the commands that the model takes for granted (PrepareQp, ConnectQp) are answered at once.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugin/conn/fsm.h"
#include "tests/model/trace.h"

namespace mend::conn::model {

using StepFunction = std::function<Outcome(Fsm&, const Event&, TimeNs, Actions&)>;

class Replay {
 public:
  // variant picks among the equal ways in which a driver can tell the same thing (a COMMIT or a
  // heartbeat of a leader that replays).
  explicit Replay(StepFunction step = mend::conn::step, unsigned variant = 0);

  // Empty if the machines did what the model did, else the first difference.
  std::string run(const Trace& trace);

  // "follower Prepared --COMMIT--> Replaying", of the steps that were compared.
  const std::set<std::string>& transitions() const { return transitions_; }
  std::size_t questions() const { return questions_; }

 private:
  struct Machine {
    Fsm fsm;
    std::optional<std::uint32_t> fence;  // number of the fence that was ordered
    std::deque<Action> commands;         // PrepareQp, ConnectQp: not yet answered
    std::deque<CtlMessage> sent;         // not yet compared
    std::deque<Seq> replays;             // not yet compared
    std::deque<GiveUpReason> gave_up;    // not yet compared
    unsigned closed = 0;                 // not yet compared
    Seq received;                        // rx_next, for messages that carry the present one
    TimeNs now = kSecond;                // each has its own clock: the models have none
  };
  // What a copy of a machine did with one event.
  struct Effect {
    bool moved = false;
    std::vector<CtlMessage> sent;
  };

  void feed(int side, const Event& event);
  void act(int side, const Action& action);
  void answer_commands(int side);
  void wait_for_prepare(int side);
  void do_line(const TraceLine& line);
  void do_step(const TraceLine& line);
  void do_fenced(const TraceLine& line);
  void do_send(const TraceLine& line);
  void do_replay(const TraceLine& line);
  void do_end(const TraceLine& line);
  void do_report(const TraceLine& line);
  void deliver(int side, const std::string& name, Epoch epoch);
  void suspect(int side);
  void reach_deadline(int side);
  void compare_state(const TraceLine& line);
  void compare_leftovers(int side);
  void ask_datagrams(const TraceLine& line);
  void ask_heartbeats(const TraceLine& line);
  void ask_repetitions(const TraceLine& line);
  void ask_answers(const TraceLine& line);
  Effect effect(int side, const Event& event);
  Effect effect(int side, const CtlMessage& message) {
    return effect(side, message_event(message));
  }
  // What the timers alone make this side send, in their next three rounds.
  std::vector<CtlMessage> repeated_by(int side);
  bool repeats(int side, MsgType type, Epoch epoch);
  CtlMessage heartbeat_of(int side) const;
  void differ(const std::string& what);

  StepFunction step_;
  FsmConfig config_;
  Machine machine_[2];
  std::map<std::pair<std::string, std::uint32_t>, CtlMessage> network_;  // all ever sent
  std::uint32_t next_qpn_ = 17;
  unsigned variant_;
  std::string event_, before_;  // of the step under way
  std::string difference_;
  std::set<std::string> transitions_;
  std::size_t questions_ = 0;
};

}  // namespace mend::conn::model
