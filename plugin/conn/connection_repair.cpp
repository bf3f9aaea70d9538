// What a lost queue pair was lost for: link-like faults are recovered as often as it takes; an
// operation whose memory or keys were refused gets one repair and one replay (docs/protocol.md
// 1.9). All on the service thread; registering memory on the worker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plugin/conn/connection.h"
#include "plugin/conn/control_plane.h"
#include "plugin/conn/error_policy.h"
#include "plugin/conn/memory_registry.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/wc_status.h"

namespace mend::conn {
namespace {

constexpr TimeNs kFirstKeyPause = 20 * kMillisecond;
constexpr TimeNs kLongestKeyPause = 1 * kSecond;
// A fault that belongs to no operation (an acknowledgement, a receive) is let pass as a broken link
// if the last one was longer ago.
constexpr TimeNs kBareFaultPause = 1 * kSecond;

const char* kind_name(ops::LogKind kind) {
  switch (kind) {
    case ops::LogKind::Send:
      return "message";
    case ops::LogKind::Put:
      return "put";
    case ops::LogKind::Get:
      return "get";
  }
  return "operation";
}

// What ends needs no repair, and its last fence finds errors of what it left behind.
bool ends(State state) {
  return state == State::Closing || state == State::Closed || state == State::Failed;
}

}  // namespace

void Connection::on_lost(Epoch epoch, int status) {
  if (ends(fsm_.state)) return handle(simple_event(EventKind::LinkLost, epoch));
  const FaultClass fault =
      status < 0 ? FaultClass::LinkLike : policy_of(static_cast<ibv_wc_status>(status));
  switch (fault) {
    case FaultClass::LocalFault:
    case FaultClass::RemoteAccess:
      return repair(epoch, status);
    case FaultClass::NotRepairable:
      return refuse(fault_text(channel_.op_fault(), status));
    case FaultClass::PeerSlow:
    case FaultClass::RemoteOperation:
    case FaultClass::LinkLike:
    case FaultClass::PathChange:
    case FaultClass::DeviceFatal:
    case FaultClass::Ignore:
      return handle(simple_event(EventKind::LinkLost, epoch));
  }
}

void Connection::repair(Epoch epoch, int status) {
  if (epoch != fsm_.epoch) return handle(simple_event(EventKind::LinkLost, epoch));
  const ops::OpFault op = channel_.op_fault();
  if (op.found && op.repaired)
    return refuse(fault_text(op, status) + ", again after its keys were renewed");
  const TimeNs now = monotonic_now();
  if (!op.found && repair_.last_bare != kNever && now - repair_.last_bare < kBareFaultPause)
    return refuse(fault_text(op, status) + ", again on a new queue pair");
  if (!op.found) repair_.last_bare = now;
  log(LogLevel::Warn, fmt::format("{}: {}; repairing it once", describe(), fault_text(op, status)));
  channel_.begin_repair();
  stats_.repairs.fetch_add(1, std::memory_order_relaxed);
  ++repair_.ticket;
  const bool local = policy_of(static_cast<ibv_wc_status>(status)) == FaultClass::LocalFault;
  const bool renew_local = local && op.found && op.lkey.value != 0;
  const bool renew_remote = !local && op.found && op.kind != ops::LogKind::Send && op.reg_id != 0;
  repair_.pending = renew_local || renew_remote;
  repair_.reg_id = renew_remote ? op.reg_id : 0;
  repair_.generation = op.generation;
  handle(simple_event(EventKind::LinkLost, epoch));
  if (renew_local) renew_memory(op.lkey);
  if (renew_remote) ask_keys(repair_.ticket, kFirstKeyPause);
}

void Connection::refuse(std::string what) {
  last_fault_ = std::move(what);
  repair_.pending = false;
  handle(simple_event(EventKind::NotRepairable));
}

// Repeated until it is answered; the outage's deadline ends it.
void Connection::ask_keys(std::uint32_t ticket, TimeNs pause) {
  if (!repair_.pending || ticket != repair_.ticket) return;
  if (ends(fsm_.state)) return;
  CtlMessage request;
  request.type = MsgType::KeyReq;
  request.epoch = fsm_.epoch;
  request.data_epoch = fsm_.data_epoch;
  request.reg_id = repair_.reg_id;
  request.generation = repair_.generation;
  stamp(request);
  plane_.send(home_, address_, request, this);
  const TimeNs next = std::min(2 * pause, kLongestKeyPause);
  plane_.service().arm(monotonic_now() + pause, [this, ticket, next] { ask_keys(ticket, next); });
}

// The peer's device was refused by ours: what it asks for is registered once more, at most once per
// region; its number is looked up, never used otherwise.
void Connection::answer_keys(const CtlMessage& request) {
  plane_.worker().submit([this, reg_id = request.reg_id, generation = request.generation] {
    const auto keys = plane_.registry().renew(reg_id, generation);
    CtlMessage answer;
    answer.type = MsgType::KeyRep;
    answer.reg_id = reg_id;
    answer.key_status = keys ? KeyStatus::Ok : KeyStatus::Gone;
    if (keys) {
      answer.generation = keys->remote.generation;
      std::copy(std::begin(keys->remote.rkey), std::end(keys->remote.rkey), answer.rkeys.begin());
    } else {
      log(LogLevel::Info, "a peer asked for keys: " + keys.error().message);
    }
    plane_.service().post([this, answer]() mutable {
      answer.epoch = fsm_.epoch;
      answer.data_epoch = fsm_.data_epoch;
      stamp(answer);
      plane_.send(home_, address_, answer, this);
    });
  });
}

void Connection::take_keys(const CtlMessage& answer) {
  if (!repair_.pending || repair_.reg_id == 0 || answer.reg_id != repair_.reg_id) return;
  if (answer.key_status == KeyStatus::Gone)
    return refuse(fmt::format("{}, and the peer has no region {} any more",
                              fault_text(channel_.op_fault(), last_status_.load()), answer.reg_id));
  ops::RemoteKeys keys;
  std::copy(answer.rkeys.begin(), answer.rkeys.end(), std::begin(keys.rkey));
  keys.reg_id = answer.reg_id;
  keys.generation = answer.generation;
  channel_.renew_remote_keys(keys);
  repaired();
}

void Connection::renew_memory(Lkey failed) {
  plane_.worker().submit([this, failed, ticket = repair_.ticket] {
    const auto keys = plane_.registry().renew(home_.rail->id(), failed);
    if (keys) channel_.renew_local_keys(home_.rail->id(), failed, *keys->local);
    plane_.service().post([this, ticket, why = keys ? std::string() : keys.error().message] {
      if (!repair_.pending || ticket != repair_.ticket) return;
      if (why.empty())
        repaired();
      else
        refuse(fault_text(channel_.op_fault(), last_status_.load()) + ": " + why);
    });
  });
}

void Connection::repaired() {
  repair_.pending = false;
  repair_.reg_id = 0;
  const std::optional<Action> held = std::exchange(repair_.held_start, std::nullopt);
  if (held) start_replay(*held);
}

std::string Connection::fault_text(const ops::OpFault& op, int status) const {
  const char* name = verbs::wc_status_name(static_cast<ibv_wc_status>(status));
  if (!op.found) return fmt::format("{} on a request that is no operation", name);
  std::string text = fmt::format("{} of {} bytes at {:#x} (lkey {:#x})", kind_name(op.kind),
                                 op.bytes, op.local, op.lkey.value);
  if (op.kind != ops::LogKind::Send)
    text += fmt::format(" to address {:#x} (rkey {:#x}, region {}.{}) of rank {}", op.remote,
                        op.rkey.value, op.reg_id, op.generation, peer_.rank);
  return text + fmt::format(" ended with {}", name);
}

}  // namespace mend::conn
