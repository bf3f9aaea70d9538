// The state machine under arbitrary events: the input is a list of events, three bytes each. It
// must keep its invariants: epochs only grow, a follower's only through a REQ, no more actions than
// fit, no posting state without a QP.
#include <cstdint>

#include "plugin/conn/fsm.h"
#include "tests/fuzz/check.h"

using namespace mend;
using namespace mend::conn;
using mend::fuzz::check;

namespace {

CtlMessage message_from(EventKind kind, std::uint8_t a, const Fsm& fsm) {
  CtlMessage m;
  const int type = static_cast<int>(kind) - static_cast<int>(EventKind::Req) + 1;
  m.type = static_cast<MsgType>(type);
  m.epoch = Epoch{fsm.epoch.value + (a & 3u) - ((a & 3u) == 3u ? 4u : 0u)};
  m.state = static_cast<State>((a >> 2) % kStates);
  m.reason = static_cast<RejReason>(1 + (a >> 6));
  m.srq_free = a & 8u;
  return m;
}

Event event_from(EventKind kind, std::uint8_t a, const Fsm& fsm) {
  Event event = simple_event(kind, Epoch{fsm.epoch.value + (a & 1u)});
  event.work = fsm.work - (a >> 1 & 1u);
  event.traffic = Traffic{(a & 4) != 0, (a & 8) != 0, (a & 16) != 0};
  return event;
}

void check_invariants(const Fsm& f, const Actions& actions) {
  check(!actions.overflow(), "the actions fit");
  check(!may_post(f.state) || f.has_qp, "posting needs a QP");
  check(f.state != State::Prepared || f.has_qp, "Prepared needs a QP");
  check(f.state != State::Closed || !f.has_qp, "Closed holds no QP");
  check(f.awaited == Command::None || f.has_qp, "a command concerns a QP");
  check(f.role == Role::Follower || (f.state != State::Nudging && f.state != State::Prepared),
        "a leader neither nudges nor is prepared");
  check(f.role == Role::Leader || f.state != State::Requesting, "a follower does not request");
  check(f.epoch >= f.data_epoch, "data only on epochs that were");
  for (const Action& action : actions)
    check(action.type != ActionType::Probe || may_post(f.state),
          "probes only where posting is allowed");
}

void drive(Role role, const std::uint8_t* data, std::size_t size) {
  const FsmConfig config;
  Fsm fsm = make_fsm(role, config, size);
  TimeNs now = kSecond;
  for (std::size_t i = 0; i + 2 < size; i += 3) {
    const auto kind = static_cast<EventKind>(data[i] % kEventKinds);
    now += TimeNs{data[i + 2]} * data[i + 2] * 10 * kMillisecond;
    const Epoch before = fsm.epoch;
    Actions actions;
    const CtlMessage m = kind >= EventKind::Req && kind <= EventKind::Key
                             ? message_from(kind, data[i + 1], fsm)
                             : CtlMessage{};
    const bool is_message = kind >= EventKind::Req && kind <= EventKind::Key;
    step(fsm, is_message ? message_event(m) : event_from(kind, data[i + 1], fsm), now, actions);
    check(fsm.epoch >= before, "F2: the epoch only grows");
    check(fsm.epoch == before || kind == EventKind::QpReady,
          "F2: cur changes with a QP that is ready");
    check_invariants(fsm, actions);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  drive(Role::Leader, data, size);
  drive(Role::Follower, data, size);
  return 0;
}
