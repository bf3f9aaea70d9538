#include "plugin/conn/connection.h"

#include <algorithm>
#include <utility>

#include "ops/poller.h"
#include "plugin/conn/control_plane.h"
#include "plugin/verbs/log.h"

namespace mend::conn {
namespace {

// States in which the service and the worker thread work on what the application waits for.
bool healing(State state) {
  return state == State::Fencing || state == State::Requesting || state == State::Nudging ||
         state == State::Prepared;
}

}  // namespace

ops::ChannelConfig Connection::channel_config(ControlPlane& plane, RailUnit& home,
                                              const RailAddress& remote,
                                              const AckCells::Cell& cell) {
  const RailSizes& sizes = home.rail->sizes();
  ops::ChannelConfig config;
  config.window = static_cast<std::uint32_t>(plane.params().window);
  config.send_depth = sizes.send_depth;
  config.signal_every = std::clamp(sizes.send_depth / 4, 1u, 32u);
  config.max_inline = sizes.max_inline;
  config.max_message = home.rail->info().max_message;
  config.max_payload = remote.srq_buffer - static_cast<std::uint32_t>(sizeof(ops::DataHeader));
  config.ack_cell = cell.cell;
  config.ack_keys = &cell.region->local;
  config.frags = &plane.frags();
  return config;
}

ops::ChannelEvents Connection::channel_events() {
  ops::ChannelEvents events;
  events.context = this;
  events.wanted = [](void* self) {
    static_cast<Connection*>(self)->post(simple_event(EventKind::Submit));
  };
  events.link_lost = [](void* self, Epoch epoch, int status, std::uint32_t) {
    auto* connection = static_cast<Connection*>(self);
    connection->last_status_.store(status, std::memory_order_relaxed);
    connection->plane_.service().post(
        [connection, epoch, status] { connection->on_lost(epoch, status); });
  };
  events.log_empty = [](void* self, Epoch epoch) {
    static_cast<Connection*>(self)->post(simple_event(EventKind::LogEmpty, epoch));
  };
  events.first_receive = [](void* self, Epoch epoch) {
    static_cast<Connection*>(self)->post(simple_event(EventKind::RcReceive, epoch));
  };
  events.receiving = [](void* self) {
    auto* connection = static_cast<Connection*>(self);
    connection->plane_.ack_timer().watch(connection->channel_);
  };
  events.fault = [](void* self, ops::Fault fault, std::uint64_t detail) {
    auto* connection = static_cast<Connection*>(self);
    std::string what = std::string(ops::to_string(fault)) + " (" + std::to_string(detail) + ")";
    connection->plane_.service().post([connection, what] {
      connection->last_fault_ = what;
      connection->handle(simple_event(EventKind::NotRepairable));
    });
  };
  return events;
}

Connection::Connection(ControlPlane& plane, Peer& peer, ConnId id, std::uint32_t k, RailUnit& home,
                       const RailAddress& remote, const AckCells::Cell& cell)
    : plane_(plane),
      peer_(peer),
      id_(id),
      k_(k),
      home_(home),
      remote_(remote),
      cell_(cell),
      origin_{plane.upcalls().context, home.rail->id(), &peer},
      channel_(home.rail->poller(), channel_config(plane, home, remote, cell), channel_events()),
      fsm_(make_fsm(role_of(plane.jobid(), plane.self().rank, peer.jobid, peer.rank),
                    plane.fsm_config(), plane.random())),
      address_{remote.gid, remote.lid, remote.ud_qpn, remote.ud_qkey} {}

Connection::~Connection() { home_.rail->poller().forget(channel_, &origin_); }

void Connection::post(const Event& event) {
  plane_.service().post([this, event] { handle(event); });
}

void Connection::note_trouble(std::string what) {
  plane_.service().post([this, text = std::move(what)] { last_fault_ = text; });
}

void Connection::handle(const Event& event) {
  const State before = fsm_.state;
  const std::uint32_t misses = fsm_.misses;
  Actions actions;
  const Outcome outcome = step(fsm_, event, monotonic_now(), actions);
  note_trouble_or_life(event, misses);
  if (event.message != nullptr && outcome != Outcome::Acted && outcome != Outcome::Heard)
    stats_.stale_messages.fetch_add(1, std::memory_order_relaxed);
  if (fsm_.misses > misses) stats_.misses.fetch_add(1, std::memory_order_relaxed);
  if (event.kind == EventKind::ProbeOk && outcome == Outcome::Acted)
    stats_.false_alarms.fetch_add(1, std::memory_order_relaxed);
  if (fsm_.state != before && log_wanted())
    log(LogLevel::Debug, describe() + ": " + to_string(before) + " -> " + to_string(fsm_.state) +
                             " on " + to_string(event.kind) + ", epoch " +
                             std::to_string(fsm_.epoch.value));
  if (healing(fsm_.state) != healing(before)) plane_.count_healing(healing(before) ? -1 : 1);
  for (const Action& action : actions) run(action);
  end_turn();
}

// An outage begins before its queue pair breaks: with the port that went down or with the heartbeat
// that stayed away. A sign of life says that it was none, and so does an application that wants
// nothing of the peer. When that began is for the figure only, the sign of life for hears() too.
void Connection::note_trouble_or_life(const Event& event, std::uint32_t misses_before) {
  if (!may_post(fsm_.state)) return;
  const bool trouble = event.kind == EventKind::PortDown || fsm_.misses > misses_before;
  const bool timer = event.kind == EventKind::Timer;
  const bool life = event.message != nullptr || event.kind == EventKind::ProbeOk ||
                    (timer && event.traffic.received);
  if (life) heard_at_ = monotonic_now();
  if (trouble && trouble_since_ == kNever)
    trouble_since_ = monotonic_now();
  else if ((life || (timer && idle())) && fsm_.port_up)
    trouble_since_ = kNever;
}

// Our GID, LID or key is another: the queue pair's path names the old one.
void Connection::path_moved() {
  last_fault_ = "the port's address changed";
  handle(simple_event(EventKind::LinkLost, fsm_.epoch));
}

void Connection::give_up_peer() {
  channel_.abandon();
  Event event = simple_event(EventKind::NotRepairable);
  event.reason = GiveUpReason::PeerLost;
  post(event);
}

// One that never carried anything has lost nothing; it fails when it is wanted.
void Connection::device_lost(const std::string& what) {
  if (fsm_.state != State::Closed) refuse(what);
}

void Connection::on_message(const CtlMessage& message, const UdSource& source) {
  if (message.src_conn != kNoConn) remote_conn_ = message.src_conn;
  // The peer's address may have moved (a GID that changed its place, a new LID): what arrives
  // tells.
  address_.qpn = source.qpn;
  if (source.has_gid) address_.gid = source.gid;
  if (source.lid != 0) address_.lid = source.lid;
  Event event = message_event(message);
  event.not_met = message.type == MsgType::Busy && message.src_conn == kNoConn;
  handle(event);
  const bool heartbeat = message.type == MsgType::Hb || message.type == MsgType::HbAck;
  if (heartbeat && in_use() && message.epoch == fsm_.epoch) fit_window(message.srq_free);
  if (message.type == MsgType::KeyReq) answer_keys(message);
  if (message.type == MsgType::KeyRep) take_keys(message);
}

void Connection::close() {
  plane_.service().post([this] {
    Event event = simple_event(EventKind::Close);
    event.traffic.outstanding = !channel_.quiet();
    handle(event);
    if (event.traffic.outstanding) watch_flush();
  });
}

void Connection::last_fence() {
  if (work_.qp == nullptr) return;
  channel_.stop_posting();
  FenceSample sample;
  std::string reason;
  fence_now(sample, reason);
}

}  // namespace mend::conn
