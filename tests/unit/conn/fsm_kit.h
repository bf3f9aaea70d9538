// What the state machine tests share: machines put into a named state by hand, messages, and a
// readable list of actions.
#pragma once

#include <string>

#include "plugin/conn/fsm.h"

namespace mend::conn::test {

constexpr Epoch kCur{3};
constexpr TimeNs kStart = 1000 * kSecond;

inline const FsmConfig& kit_config() {
  static const FsmConfig config;
  return config;
}

// A machine as it would be after some life: epoch 3 (0 in Closed), a QP wherever there is one,
// nothing awaited but in Fencing.
inline Fsm machine(Role role, State state, const FsmConfig& config = kit_config()) {
  Fsm f = make_fsm(role, config, 7);
  f.state = state;
  f.work = 40;
  f.sample = FenceSample{Seq{5}, Seq{7}, Seq{9}};
  if (state == State::Closed) return f;
  f.epoch = kCur;
  f.data_epoch = may_post(state) ? kCur : Epoch{2};
  f.has_qp = state != State::Nudging;
  f.mine = Offer{kCur, Epoch{2}, {}, {Seq{5}, Seq{7}, config.window, 0}};
  f.peer = Offer{kCur, Epoch{2}, {}, {Seq{8}, Seq{5}, config.window, 0}};
  f.active_since = kStart - kSecond;
  if (may_post(state)) f.heartbeat_at = kStart + config.heartbeat;
  if (state != State::Active && state != State::Suspect) f.outage_since = kStart - kSecond;
  if (state == State::Suspect) f.misses = 1;
  if (state == State::Fencing) {
    f.awaited = Command::Fence;
    f.pending = role == Role::Leader ? kCur.next() : Epoch{};
  }
  if (state == State::Closing) f.departed = true;
  if (state == State::Failed) f.failure = GiveUpReason::Deadline;
  return f;
}

inline CtlMessage message(MsgType type, Epoch epoch, State state = State::Active) {
  CtlMessage m;
  m.type = type;
  m.epoch = epoch;
  m.state = state;
  m.progress = Progress{Seq{8}, Seq{5}, 128, 0};
  m.rx_next = Seq{8};
  m.srq_free = 10;
  return m;
}

struct Result {
  Outcome outcome;
  Actions actions;
  // Names of the actions in order, without ArmTimer.
  std::string names() const {
    std::string text;
    for (const Action& a : actions)
      if (a.type != ActionType::ArmTimer)
        text += (text.empty() ? "" : " ") + std::string(to_string(a.type));
    return text;
  }
  const Action* find(ActionType type) const {
    for (const Action& a : actions)
      if (a.type == type) return &a;
    return nullptr;
  }
  bool has(ActionType type) const { return find(type) != nullptr; }
};

inline Result run(Fsm& f, const Event& event, TimeNs now = kStart) {
  Result result{};
  result.outcome = step(f, event, now, result.actions);
  return result;
}
inline Result run(Fsm& f, const CtlMessage& m, TimeNs now = kStart) {
  return run(f, message_event(m), now);
}
inline Result run(Fsm& f, EventKind kind, Epoch epoch, TimeNs now = kStart) {
  return run(f, simple_event(kind, epoch), now);
}
// The result of the last command.
inline Result done(Fsm& f, EventKind kind, TimeNs now = kStart) {
  Event event = work_event(kind, f.work);
  event.sample = FenceSample{Seq{5}, Seq{7}, Seq{9}};
  return run(f, event, now);
}

}  // namespace mend::conn::test
