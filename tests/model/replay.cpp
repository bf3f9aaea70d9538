#include "tests/model/replay.h"

#include <algorithm>
#include <array>
#include <span>

namespace mend::conn::model {
namespace {

constexpr std::array<std::pair<const char*, MsgType>, 7> kMessages{{{"REQ", MsgType::Req},
                                                                    {"REP", MsgType::Rep},
                                                                    {"COMMIT", MsgType::Commit},
                                                                    {"NUDGE", MsgType::Nudge},
                                                                    {"BYE", MsgType::Bye},
                                                                    {"BYE_ACK", MsgType::ByeAck},
                                                                    {"REJ", MsgType::Rej}}};

std::optional<MsgType> message_type(const std::string& name) {
  for (const auto& [text, type] : kMessages)
    if (name == text) return type;
  return std::nullopt;
}

std::string text_of(MsgType type, Epoch epoch) {
  return std::string(to_string(type)) + "(" + std::to_string(epoch.value) + ")";
}

std::string place(const Fsm& fsm) {
  return std::string(to_string(fsm.state)) + "(" + std::to_string(fsm.epoch.value) + ")";
}

// As the peer would read it.
std::optional<CtlMessage> over_the_wire(const CtlMessage& message) {
  std::array<std::byte, kCtlMaxBytes> bytes{};
  const std::size_t size = encode(message, bytes);
  const auto parsed = parse(std::span(bytes).first(size));
  if (!parsed) return std::nullopt;
  return *parsed;
}

// A message of an epoch that is taken from then on, or of exactly that one.
bool is_taken(MsgType type, Epoch epoch, std::uint32_t takes) {
  if (takes == kNone) return false;
  const bool from = type == MsgType::Req || type == MsgType::Bye || type == MsgType::ByeAck ||
                    type == MsgType::Rej;
  return from ? epoch.value >= takes : epoch.value == takes;
}

// The model says it for a message, or for a message to one side ("BYE>1").
std::optional<std::uint32_t> look_up(const std::map<std::string, std::uint32_t>& epochs,
                                     const std::string& name, int side) {
  if (const auto it = epochs.find(name + ">" + std::to_string(side)); it != epochs.end())
    return it->second;
  if (const auto it = epochs.find(name); it != epochs.end()) return it->second;
  return std::nullopt;
}

bool is_message(ActionType type) {
  return type >= ActionType::SendReq && type <= ActionType::SendRej;
}

bool is_heartbeat_or_busy(MsgType type) {
  return type == MsgType::Hb || type == MsgType::HbAck || type == MsgType::Busy;
}

}  // namespace

Replay::Replay(StepFunction step, unsigned variant) : step_(std::move(step)), variant_(variant) {
  config_.heartbeat = 0;
  config_.resends_per_epoch = 0;
  config_.max_outage = 3600 * kSecond;
  machine_[0].fsm = make_fsm(Role::Leader, config_, 1);
  machine_[1].fsm = make_fsm(Role::Follower, config_, 2);
}

std::string Replay::run(const Trace& trace) {
  std::size_t number = 0;
  for (const TraceLine& line : trace) {
    ++number;
    do_line(line);
    if (difference_.empty()) continue;
    return "line " + std::to_string(number) + ", " + event_ + ": " + difference_ + " (leader " +
           place(machine_[0].fsm) + ", follower " + place(machine_[1].fsm) + ")";
  }
  return {};
}

void Replay::differ(const std::string& what) {
  if (difference_.empty()) difference_ = what;
}

// --- the driver's part ---

void Replay::feed(int side, const Event& event) {
  Actions actions;
  step_(machine_[side].fsm, event, machine_[side].now, actions);
  if (actions.overflow()) differ("too many actions");
  for (const Action& action : actions) act(side, action);
  answer_commands(side);
}

void Replay::act(int side, const Action& action) {
  Machine& m = machine_[side];
  switch (action.type) {
    case ActionType::Fence:
      m.fence = action.work;
      m.commands.clear();
      return;
    case ActionType::PrepareQp:
    case ActionType::ConnectQp:
      m.commands.push_back(action);
      return;
    case ActionType::StartReplay:
      m.replays.push_back(action.seq);
      return;
    case ActionType::GiveUp:
      m.gave_up.push_back(action.reason);
      return;
    case ActionType::Closed:
      ++m.closed;
      return;
    case ActionType::PeerAck:
    case ActionType::Probe:
    case ActionType::ArmTimer:
    case ActionType::Up:
      return;
    default:
      break;
  }
  const auto message = over_the_wire(compose(m.fsm, action, m.received, 1));
  if (!message) return differ("a message that cannot be parsed");
  if (!is_heartbeat_or_busy(message->type)) m.sent.push_back(*message);
}

void Replay::answer_commands(int side) {
  Machine& m = machine_[side];
  while (!m.commands.empty()) {
    Event event = work_event(EventKind::QpReady, m.commands.front().work);
    event.endpoint.qpn = Qpn{next_qpn_++};
    m.commands.pop_front();
    feed(side, event);
  }
}

// A leader whose epochs do not hold pauses before the next one; the model knows no time.
void Replay::wait_for_prepare(int side) {
  Fsm& f = machine_[side].fsm;
  for (int i = 0; i < 4 && f.role == Role::Leader && f.state == State::Fencing; ++i) {
    if (f.awaited != Command::None || f.armed_at == kNever) return;
    machine_[side].now = std::max(machine_[side].now, f.armed_at);
    feed(side, timer_event({}));
  }
}

// --- the schedule ---

void Replay::do_line(const TraceLine& line) {
  if (line.verb == "step") return do_step(line);
  if (line.verb == "fenced") return do_fenced(line);
  if (line.verb == "send") return do_send(line);
  if (line.verb == "replay") return do_replay(line);
  if (line.verb == "gaveup" || line.verb == "closed") return do_report(line);
  if (line.verb == "end") return do_end(line);
  if (line.verb == "log")
    return feed(line.side, simple_event(EventKind::LogEmpty, machine_[line.side].fsm.epoch));
  differ("no such line: " + line.verb);
}

void Replay::do_step(const TraceLine& line) {
  Machine& m = machine_[line.side];
  const Epoch argument{line.numbers.at(0)};
  m.now += kMillisecond;
  event_ = line.name;
  before_ = to_string(m.fsm.state);
  if (message_type(line.name)) return deliver(line.side, line.name, argument);
  if (line.name == "submit") return feed(line.side, simple_event(EventKind::Submit));
  if (line.name == "lost") return feed(line.side, simple_event(EventKind::LinkLost, m.fsm.epoch));
  if (line.name == "suspect") return suspect(line.side);
  if (line.name == "deadline") return reach_deadline(line.side);
  if (line.name == "flushed") return feed(line.side, simple_event(EventKind::Flushed));
  if (line.name == "receive") {
    m.received = m.received.next();
    return feed(line.side, simple_event(EventKind::RcReceive, argument));
  }
  if (line.name == "close") {
    Event event = simple_event(EventKind::Close);
    event.traffic.outstanding = argument.value != 0;
    return feed(line.side, event);
  }
  if (line.name == "waited") {
    if (m.fsm.bye_until == kNever) return differ("it does not wait for BYE_ACK");
    m.now = std::max(m.now, m.fsm.bye_until);
    return feed(line.side, timer_event({}));
  }
  if (line.name == "fence" && !m.fence) return differ("no fence was ordered");
  if (line.name != "fence" && line.name != "data") differ("no such event");
}

// The same message as it was sent; or, where that is equal, the heartbeat that carries its meaning.
void Replay::deliver(int side, const std::string& name, Epoch epoch) {
  const Fsm& from = machine_[1 - side].fsm;
  const auto it = network_.find({std::to_string(1 - side) + name, epoch.value});
  if (it == network_.end()) return differ("it was never sent");
  const bool same = from.epoch == epoch && variant_ % 2 == 1;
  const bool carried = (name == "COMMIT" && may_post(from.state)) ||
                       (name == "NUDGE" && from.state == State::Nudging &&
                        machine_[side].fsm.state != State::Closed);
  feed(side, message_event(same && carried ? heartbeat_of(1 - side) : it->second));
}

void Replay::suspect(int side) {
  const Fsm& f = machine_[side].fsm;
  const bool probed = may_post(f.state) && variant_ % 2 == 1;
  feed(side, simple_event(probed ? EventKind::ProbeFailed : EventKind::LinkLost, f.epoch));
}

void Replay::reach_deadline(int side) {
  const TimeNs deadline = deadline_of(machine_[side].fsm);
  if (deadline == kNever) return differ("there is no deadline");
  machine_[side].now = std::max(machine_[side].now, deadline);
  feed(side, timer_event({}));
}

void Replay::do_fenced(const TraceLine& line) {
  Machine& m = machine_[line.side];
  if (!m.fence) return differ("no fence was ordered");
  Event event = work_event(EventKind::FenceDone, *m.fence);
  event.sample =
      FenceSample{Seq{line.numbers.at(0)}, Seq{line.numbers.at(1)}, Seq{line.numbers.at(2)}};
  m.fence.reset();
  m.received = event.sample.rx_next;
  feed(line.side, event);
  wait_for_prepare(line.side);
}

void Replay::do_send(const TraceLine& line) {
  Machine& m = machine_[line.side];
  const auto type = message_type(line.name);
  const Epoch epoch{line.numbers.at(0)};
  if (!type) return differ("no such message: " + line.name);
  if (m.sent.empty()) return differ("did not send " + text_of(*type, epoch));
  const CtlMessage message = m.sent.front();
  m.sent.pop_front();
  if (message.type != *type || message.epoch != epoch)
    return differ("sent " + text_of(message.type, message.epoch) + " instead of " +
                  text_of(*type, epoch));
  const bool counts = *type == MsgType::Req || *type == MsgType::Rep;
  if (counts && message.progress.rx_next != Seq{line.numbers.at(1)})
    return differ(text_of(*type, epoch) + " says rx_next " +
                  std::to_string(message.progress.rx_next.value));
  network_[{std::to_string(line.side) + line.name, epoch.value}] = message;
}

void Replay::do_replay(const TraceLine& line) {
  Machine& m = machine_[line.side];
  if (m.replays.empty()) return differ("no replay was started");
  const Seq from = m.replays.front();
  m.replays.pop_front();
  if (from != Seq{line.numbers.at(0)})
    differ("the replay starts from " + std::to_string(from.value));
}

void Replay::do_report(const TraceLine& line) {
  Machine& m = machine_[line.side];
  if (line.verb == "closed") {
    if (m.closed == 0) return differ("it is not closed");
    --m.closed;
    return;
  }
  if (m.gave_up.empty()) return differ("it did not give up");
  const bool fatal = m.gave_up.front() != GiveUpReason::FlushExpired;
  m.gave_up.pop_front();
  if (fatal != (line.numbers.at(0) != 0)) differ("gave up in the other way");
}

void Replay::do_end(const TraceLine& line) {
  compare_state(line);
  compare_leftovers(line.side);
  if (!difference_.empty()) return;
  const Fsm& f = machine_[line.side].fsm;
  transitions_.insert(std::string(to_string(f.role)) + " " + before_ + " --" + event_ + "--> " +
                      to_string(f.state));
  ask_datagrams(line);
  ask_heartbeats(line);
  ask_repetitions(line);
  ask_answers(line);
}

void Replay::compare_state(const TraceLine& line) {
  const Machine& m = machine_[line.side];
  const std::string model = line.name + "(" + std::to_string(line.numbers.at(0)) + ")";
  if (place(m.fsm) != model) return differ("is in " + place(m.fsm) + " instead of " + model);
  if (m.fsm.state == State::Fencing && !m.fence) differ("Fencing, and no fence was ordered");
  if (m.fence && (may_post(m.fsm.state) || m.fsm.state == State::Closed))
    differ("a fence was ordered");
}

void Replay::compare_leftovers(int side) {
  const Machine& m = machine_[side];
  if (!m.sent.empty())
    differ("sent " + text_of(m.sent.front().type, m.sent.front().epoch) + " too");
  if (!m.replays.empty()) differ("a replay was started");
  if (!m.gave_up.empty()) differ("gave up");
  if (m.closed != 0) differ("is closed");
}

// --- the questions ---

Replay::Effect Replay::effect(int side, const Event& event) {
  ++questions_;
  Fsm copy = machine_[side].fsm;
  const Fsm before = copy;
  Actions actions;
  step_(copy, event, machine_[side].now, actions);
  Effect effect;
  effect.moved = copy.state != before.state || copy.epoch != before.epoch ||
                 copy.departed != before.departed || copy.bye_done != before.bye_done;
  for (const Action& action : actions) {
    const ActionType t = action.type;
    if (is_message(t))
      effect.sent.push_back(compose(copy, action, Seq{}, 1));
    else if (t != ActionType::ArmTimer && t != ActionType::PeerAck)
      effect.moved = true;
  }
  return effect;
}

void Replay::ask_datagrams(const TraceLine& line) {
  for (const auto& [key, message] : network_) {
    const int side = key.first[0] == '0' ? 1 : 0;
    const auto takes = look_up(line.takes, key.first.substr(1), side);
    if (!takes) continue;
    const bool expected = is_taken(message.type, message.epoch, *takes);
    if (effect(side, message).moved == expected) continue;
    return differ(text_of(message.type, message.epoch) +
                  (expected ? " would be ignored" : " would be obeyed") + " afterwards");
  }
}

CtlMessage Replay::heartbeat_of(int side) const {
  Action action;
  action.type = ActionType::SendHb;
  action.epoch = machine_[side].fsm.epoch;
  return compose(machine_[side].fsm, action, machine_[side].received, 1);
}

// F5: a heartbeat stands in for COMMIT if its sender replays, for NUDGE if it nudges, for nothing
// otherwise.
void Replay::ask_heartbeats(const TraceLine& line) {
  const Fsm& leader = machine_[0].fsm;
  const Fsm& follower = machine_[1].fsm;
  const bool commits = may_post(leader.state) && line.takes.at("COMMIT") == leader.epoch.value;
  if (effect(1, heartbeat_of(0)).moved != commits)
    differ(commits ? "a heartbeat of the leader would not release the follower"
                   : "a heartbeat of the leader would be obeyed");
  const bool nudges = follower.state == State::Nudging && leader.state != State::Closed &&
                      line.takes.at("NUDGE") == follower.epoch.value;
  if (effect(0, heartbeat_of(1)).moved != nudges)
    differ(nudges ? "a heartbeat of the follower would not nudge"
                  : "a heartbeat of the follower would be obeyed");
}

std::vector<CtlMessage> Replay::repeated_by(int side) {
  ++questions_;
  std::vector<CtlMessage> sent;
  Fsm copy = machine_[side].fsm;
  for (int round = 0; round < 3; ++round) {
    if (copy.armed_at == kNever || copy.armed_at >= deadline_of(copy)) break;
    Actions actions;
    step_(copy, timer_event({}), copy.armed_at, actions);
    for (const Action& action : actions)
      if (is_message(action.type)) sent.push_back(compose(copy, action, Seq{}, 1));
  }
  return sent;
}

bool Replay::repeats(int side, MsgType type, Epoch epoch) {
  const auto sent = repeated_by(side);
  return std::any_of(sent.begin(), sent.end(), [&](const CtlMessage& message) {
    return message.type == type && message.epoch == epoch;
  });
}

// Whoever ended answers what the other side still repeats.
void Replay::ask_answers(const TraceLine& line) {
  for (const auto& [key, tells] : line.tells) {
    const int to = key.back() == '1' ? 1 : 0;
    const auto type = message_type(key.substr(0, key.find('>')));
    for (const CtlMessage& message : repeated_by(to)) {
      if (message.type == MsgType::Bye) continue;  // gets BYE_ACK
      bool told = false;
      for (const CtlMessage& answer : effect(1 - to, message).sent)
        told = told || (answer.type == type && (tells == kNone || answer.epoch.value == tells));
      if (told == (tells != kNone)) continue;
      return differ(text_of(message.type, message.epoch) + (told ? " is" : " is not") +
                    " answered with " + key);
    }
  }
}

// REP is repeated in answer to REQ, too. COMMIT may stop once the follower has shown that it knows.
// The others are repeated exactly as long as the model says.
void Replay::ask_repetitions(const TraceLine& line) {
  const Fsm& leader = machine_[0].fsm;
  const Fsm& follower = machine_[1].fsm;
  for (const auto& [key, keeps] : line.keeps) {
    const std::size_t arrow = key.find('>');
    const std::string name = key.substr(0, arrow);
    const auto type = message_type(name);
    if (!type) return differ("no such message: " + name);
    if (*type == MsgType::Rep && follower.state != State::Prepared) continue;
    const bool by_leader =
        arrow != std::string::npos ? key.back() == '1' : name == "REQ" || name == "COMMIT";
    const Fsm& sender = by_leader ? leader : follower;
    const bool repeated = repeats(by_leader ? 0 : 1, *type, sender.epoch);
    if (*type == MsgType::Commit && follower.state != State::Prepared) continue;
    if (repeated != (keeps == sender.epoch.value))
      differ(name + (repeated ? " is repeated" : " is not repeated"));
  }
  const auto request = network_.find({"0REQ", follower.epoch.value});
  const auto keeps = line.keeps.find("REP");
  if (request == network_.end() || keeps == line.keeps.end()) return;
  bool answered = false;
  for (const CtlMessage& m : effect(1, request->second).sent)
    answered = answered || (m.type == MsgType::Rep && m.epoch == follower.epoch);
  if (answered != (keeps->second == follower.epoch.value))
    differ(answered ? "a repeated REQ is answered" : "a repeated REQ is not answered");
}

}  // namespace mend::conn::model
