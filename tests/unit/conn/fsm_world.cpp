#include "tests/unit/conn/fsm_world.h"

#include <algorithm>

namespace mend::conn::test {

World::World(std::uint64_t seed, const WorldOptions& options) : rng_(seed), options_(options) {
  config_.max_outage = 0;  // liveness is checked by finishing, not by a deadline
  config_.heartbeat = options.heartbeats ? 500 * kMillisecond : 0;
  config_.resends_per_epoch = pick(2) == 0 ? 0 : 8;
  for (int i = 0; i < 2; ++i) {
    side_[i].fsm = make_fsm(i == 0 ? Role::Leader : Role::Follower, config_, rng_());
    side_[i].target = options.sends[i];
  }
}

void World::violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

// --- the driver's part ---

void World::feed(int i, const Event& event) {
  Side& s = side_[i];
  const State before = s.fsm.state;
  const Epoch epoch = s.fsm.epoch;
  Actions actions;
  step(s.fsm, event, now_, actions);
  if (actions.overflow()) violate("too many actions in one step");
  most_actions_ = std::max(most_actions_, actions.size());
  if (s.fsm.epoch < epoch) violate("F2: the epoch shrank");
  if (before != s.fsm.state || epoch != s.fsm.epoch) {
    history_.push_back(std::string(to_string(s.fsm.role)) +
                       " e=" + std::to_string(s.fsm.epoch.value) + " " + to_string(before) + "->" +
                       to_string(s.fsm.state) + " on " + to_string(event.kind));
    if (history_.size() > 40) history_.pop_front();
  }
  for (const Action& action : actions) execute(i, action);
  check_pair();
}

void World::execute(int i, const Action& action) {
  Side& s = side_[i];
  switch (action.type) {
    case ActionType::Fence:
      s.posting = s.replaying = false;
      s.worker.push_back(Work{action.type, action.work, action.epoch});
      break;
    case ActionType::PrepareQp:
    case ActionType::ConnectQp:
      s.worker.push_back(Work{action.type, action.work, action.epoch});
      break;
    case ActionType::StartReplay:
      if (options_.sabotage == Sabotage::EarlyPost && s.posting) break;
      start_replay(i, action);
      break;
    case ActionType::PeerAck:
      if (action.seq.value > s.submitted) violate("an ack beyond what was sent");
      s.acked = std::max(s.acked, action.seq.value);
      check_log(i);
      break;
    case ActionType::Probe:
      if (!s.posting) violate("F5: a probe before the replay");
      feed(i, simple_event(paired(i) ? EventKind::ProbeOk : EventKind::ProbeFailed, action.epoch));
      break;
    case ActionType::ArmTimer:
      s.timer = action.at;
      break;
    case ActionType::Up:
      s.replaying = false;
      break;
    case ActionType::GiveUp:
      s.gave_up = true;
      break;
    case ActionType::Closed:
      s.closed = true;
      break;
    default:
      send(i, action);
      break;
  }
}

void World::send(int i, const Action& action) {
  const CtlMessage m = compose(side_[i].fsm, action, Seq{side_[i].rx_next}, 64);
  const bool silenced =
      options_.sabotage == Sabotage::LostCommit &&
      (m.type == MsgType::Commit || m.type == MsgType::Hb || m.type == MsgType::HbAck);
  if (silenced) return;
  const unsigned lot = quiet_ ? 9 : pick(10);
  if (lot == 0) return;                                  // lost
  if (lot == 1) network_.push_back(Datagram{1 - i, m});  // doubled
  network_.push_back(Datagram{1 - i, m});
}

void World::do_work(int i) {
  const Work work = side_[i].worker.front();
  side_[i].worker.pop_front();
  if (work.type == ActionType::Fence) fence(i, work);
  if (work.type == ActionType::PrepareQp) prepare(i, work);
  if (work.type == ActionType::ConnectQp) connect(i, work);
}

void World::fence(int i, const Work& work) {
  Side& s = side_[i];
  const std::uint32_t early = s.rx_next;
  if (s.has_qp && options_.sabotage != Sabotage::NoFence) {
    current(i).accepts = false;
    current(i).fenced = true;
  }
  while (!s.received.empty()) poll(i);  // what was received counts
  s.has_qp = false;
  Event event = work_event(EventKind::FenceDone, work.number);
  const bool sabotage = options_.sabotage == Sabotage::SampleBeforeDrain;
  event.sample = FenceSample{Seq{sabotage ? early : s.rx_next}, Seq{s.acked}, Seq{s.submitted}};
  feed(i, event);
}

void World::prepare(int i, const Work& work) {
  Side& s = side_[i];
  if (!quiet_ && faults_done_ < options_.faults && pick(12) == 0) {
    ++faults_done_;
    feed(i, work_event(EventKind::QpFailed, work.number));
    return;
  }
  Qp qp;
  qp.qpn = options_.sabotage == Sabotage::SameQpn ? 17 + static_cast<unsigned>(i) : next_qpn_++;
  qp.epoch = work.epoch;
  if (s.fsm.role == Role::Follower) {
    qp.accepts = true;
    qp.peer_qpn = s.fsm.peer.endpoint.qpn.value;
  }
  s.qps.push_back(qp);
  s.has_qp = true;
  Event event = work_event(EventKind::QpReady, work.number);
  event.endpoint.qpn = Qpn{qp.qpn};
  feed(i, event);
  if (options_.sabotage == Sabotage::EarlyPost && s.fsm.state == State::Prepared)
    start_replay(i, Action{ActionType::StartReplay, s.fsm.epoch, 0, s.fsm.peer.progress.rx_next});
}

void World::connect(int i, const Work& work) {
  Side& s = side_[i];
  if (s.has_qp) {
    current(i).accepts = true;
    current(i).peer_qpn = s.fsm.peer.endpoint.qpn.value;
  }
  feed(i, work_event(EventKind::QpReady, work.number));
}

void World::start_replay(int i, const Action& action) {
  Side& s = side_[i];
  if (action.seq.value < s.acked && options_.sabotage == Sabotage::None) violate("F7: data loss");
  if (action.seq.value > s.submitted) violate("F7: more received than sent");
  if (!s.has_qp || current(i).epoch != action.epoch) violate("replay without a queue pair");
  s.acked = std::max(s.acked, action.seq.value);
  s.posting = true;
  s.replaying = true;
  s.replay_end = s.submitted;
  post_all(i, action.seq.value);
  check_log(i);
}

void World::post_all(int i, std::uint32_t from) {
  for (std::uint32_t seq = from; seq < side_[i].submitted; ++seq) current(i).wire.push_back(seq);
}

void World::submit(int i) {
  Side& s = side_[i];
  ++s.submitted;
  if (s.posting)
    current(i).wire.push_back(s.submitted - 1);
  else
    feed(i, simple_event(EventKind::Submit));
}

// --- the world's part ---

void World::deliver_datagram() {
  const std::size_t at = pick(static_cast<unsigned>(network_.size()));
  const Datagram datagram = network_[at];
  // A doubled one stays in the network and may come again, much later.
  if (quiet_ || pick(4) != 0) network_.erase(network_.begin() + static_cast<long>(at));
  std::byte bytes[kCtlMaxBytes];
  const std::size_t n = encode(datagram.message, bytes);
  const auto parsed = parse(std::span(bytes, n));
  if (!parsed) {
    violate("a datagram did not survive the wire");
    return;
  }
  feed(datagram.to, message_event(*parsed));
}

bool World::paired(int from) const {
  const Side& a = side_[from];
  const Side& b = side_[1 - from];
  if (!a.has_qp || !b.has_qp) return false;
  const Qp& qa = a.qps.back();
  const Qp& qb = b.qps.back();
  return qa.may_still_arrive && !qa.lost && qa.acks && qb.accepts && qa.peer_qpn == qb.qpn &&
         qb.peer_qpn == qa.qpn;
}

// Executes the oldest packet of some QP of side i (a ghost if that QP is long gone) or loses what
// is in flight.
void World::execute_packet(int i) {
  std::vector<Qp*> busy;
  for (Qp& qp : side_[i].qps)
    if (!qp.wire.empty() && qp.peer_qpn != 0) busy.push_back(&qp);
  if (busy.empty()) return;
  Qp& qp = *busy[pick(static_cast<unsigned>(busy.size()))];
  Side& peer = side_[1 - i];
  const bool gone = qp.fenced || !qp.may_still_arrive;
  if (qp.lost || (gone && pick(3) == 0)) {
    qp.lost = true;
    if (qp.fenced) qp.wire.clear();
    return;
  }
  for (Qp& target : peer.qps) {
    if (target.qpn != qp.peer_qpn || !target.accepts || target.fenced) continue;
    if (target.epoch != qp.epoch && options_.sabotage == Sabotage::None)
      violate("I2: a packet entered a queue pair of another epoch");
    peer.received.emplace_back(target.epoch, qp.wire.front());
    qp.wire.pop_front();
    return;
  }
}

void World::poll(int i) {
  Side& s = side_[i];
  const auto [epoch, seq] = s.received.front();
  s.received.pop_front();
  if (seq != s.rx_next) {
    violate("I1: received " + std::to_string(seq) + ", expected " + std::to_string(s.rx_next));
    return;
  }
  ++s.rx_next;
  s.got_rc = true;
  if (!s.has_qp || current(i).epoch != epoch || current(i).received) return;
  current(i).received = true;
  feed(i, simple_event(EventKind::RcReceive, epoch));
}

// Side i learns how far the peer got (piggy-backed or through the ack cell): only while the peer
// may post.
void World::acknowledge(int i) {
  if (!paired(1 - i) || !side_[1 - i].posting) return;
  side_[i].acked = std::max(side_[i].acked, side_[1 - i].rx_next);
  check_log(i);
}

void World::check_log(int i) {
  Side& s = side_[i];
  if (!s.replaying || s.acked < s.replay_end) return;
  s.replaying = false;
  feed(i, simple_event(EventKind::LogEmpty, s.fsm.epoch));
}

// Something outstanding cannot get through any more, or its completion will not come: the QP
// reports an error, once.
void World::notice_error(int i) {
  Side& s = side_[i];
  if (!s.posting || !s.has_qp || current(i).error_told || paired(i)) return;
  const bool owes_ack = side_[1 - i].acked < s.rx_next;
  if (s.acked >= s.submitted && !owes_ack && current(i).wire.empty()) return;
  current(i).error_told = true;
  feed(i, simple_event(EventKind::LinkLost, s.fsm.epoch));
}

void World::fault() {
  if (quiet_ || faults_done_ >= options_.faults) return;
  const int i = static_cast<int>(pick(2));
  Side& s = side_[i];
  if (!s.has_qp) return;
  ++faults_done_;
  switch (pick(5)) {
    case 0:
      current(i).may_still_arrive = false;
      break;  // requests lost
    case 1:
      current(i).acks = false;
      break;  // only the acks are lost
    case 2:
      feed(i, simple_event(EventKind::LinkLost, s.fsm.epoch));
      break;  // suspicion, true or false
    case 3:
      current(i).may_still_arrive = false;
      if (side_[1 - i].has_qp) current(1 - i).may_still_arrive = false;
      break;
    default: {
      feed(i, simple_event(EventKind::PortDown));
      feed(i, simple_event(EventKind::PortUp));
      break;
    }
  }
}

void World::advance_clock() {
  const TimeNs next = std::min(side_[0].timer, side_[1].timer);
  if (next == kNever) return;
  now_ = std::max(now_, next);
  for (int i = 0; i < 2; ++i) {
    Side& s = side_[i];
    if (s.timer > now_) continue;
    s.timer = kNever;
    Traffic traffic;
    traffic.received = s.got_rc;
    traffic.outstanding = s.acked < s.submitted;
    s.got_rc = false;
    feed(i, timer_event(traffic));
  }
}

void World::check_pair() {
  const Fsm& a = side_[0].fsm;
  const Fsm& b = side_[1].fsm;
  const auto up = [](State s) { return s == State::Active || s == State::Suspect; };
  if (!up(a.state) || !up(b.state)) return;
  if (a.epoch != b.epoch) violate("I3: both Active on different epochs");
  if (current(0).peer_qpn != current(1).qpn || current(1).peer_qpn != current(0).qpn)
    violate("I3: both Active on queue pairs that are not paired");
}

bool World::finished() const {
  if (!quiet_ && faults_done_ < options_.faults) return false;
  for (const Side& s : side_) {
    if (s.submitted < s.target || s.acked < s.submitted) return false;
    const bool idle = s.target == 0 && side_[0].target + side_[1].target == 0;
    if (!idle && !options_.close && s.fsm.state != State::Active) return false;
    if (options_.close && !s.closed) return false;
  }
  return options_.close || side_[0].fsm.epoch == side_[1].fsm.epoch;
}

// One random thing happens; false if it was only time that passed.
bool World::random_step() {
  const int i = static_cast<int>(pick(2));
  Side& s = side_[i];
  switch (pick(9)) {
    case 0:
      if (s.submitted < s.target && pick(4) == 0) submit(i);
      return true;
    case 1:
      if (!s.worker.empty()) do_work(i);
      return true;
    case 2:
      if (!network_.empty()) deliver_datagram();
      return true;
    case 3:
      execute_packet(i);
      return true;
    case 4:
      if (!s.received.empty()) poll(i);
      return true;
    case 5:
      acknowledge(i);
      return true;
    case 6:
      notice_error(i);
      return true;
    case 7:
      if (pick(6) == 0) fault();
      return true;
    default:
      if (pick(4) == 0) advance_clock();
      return false;
  }
}

std::string World::run() {
  constexpr unsigned kHostile = 1500, kEnough = 60000;
  for (unsigned n = 0; n < kEnough && violation_.empty(); ++n) {
    if (n == kHostile) quiet_ = true;
    random_step();
    if (side_[0].gave_up || side_[1].gave_up) violate("gave up");
    if (finished()) return {};
    const bool data_done = side_[0].acked == side_[0].target && side_[1].acked == side_[1].target;
    if (!options_.close || !data_done) continue;
    for (int i = 0; i < 2; ++i)
      if (!side_[i].close_asked && pick(50) == 0) {
        side_[i].close_asked = true;
        feed(i, simple_event(EventKind::Close));
      }
  }
  if (violation_.empty()) violation_ = "L1: not finished";
  std::string text = violation_;
  for (int i = 0; i < 2; ++i)
    text += "\n  " + std::string(to_string(side_[i].fsm.role)) + " is " +
            to_string(side_[i].fsm.state) + " e=" + std::to_string(side_[i].fsm.epoch.value) +
            " acked " + std::to_string(side_[i].acked) + "/" + std::to_string(side_[i].target);
  for (const std::string& line : history_) text += "\n  " + line;
  return text;
}

}  // namespace mend::conn::test
