// What comes in and goes out on the service thread: control datagrams and async events.
#include <fmt/format.h>

#include <array>

#include "plugin/conn/control_plane.h"
#include "plugin/verbs/log.h"

namespace mend::conn {

void ControlPlane::drop(DropReason reason) {
  drops_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void ControlPlane::on_control_readable(std::size_t rail) {
  struct Arrival {
    ControlPlane* plane;
    std::size_t rail;
  } arrival{this, rail};
  UdChannel& channel = *rails_[rail].control;
  channel.receive(
      [](void* context, std::span<const std::byte> bytes, const UdSource& source) {
        const auto* a = static_cast<Arrival*>(context);
        a->plane->on_datagram(a->rail, bytes, source);
      },
      &arrival);
  if (channel.broken()) mend_control(rails_[rail]);
}

void ControlPlane::on_datagram(std::size_t rail, std::span<const std::byte> bytes,
                               const UdSource& source) {
  const auto message = parse(bytes);
  if (!message) return drop(message.error());
  if (const auto refused = addressed_to_me(*message, self_)) return drop(*refused);
  accept(rail, *message, source);
}

void ControlPlane::accept(std::size_t rail, const CtlMessage& message, const UdSource& source) {
  Connection* connection = nullptr;
  PeerName name;
  {
    const std::lock_guard guard(mutex_);
    const auto it = by_boot_.find(message.src_boot);
    if (it == by_boot_.end()) {
      drop(DropReason::Boot);
      if (message.type != MsgType::Req && message.type != MsgType::Nudge) return;
      // Somebody of this job who has not been added here yet: the next progress call looks it up.
      // The sender repeats itself.
      const bool first =
          unknown_.insert_or_assign(message.src_rank, Unknown{rail, message, source}).second;
      if (first) unknown_new_.push_back(message.src_rank);
      attention_.store(true, std::memory_order_relaxed);
      return;
    }
    const Peer& peer = *it->second;
    if (message.k >= peer.connections.size()) return drop(DropReason::Connection);
    connection = peer.connections[message.k];
    name = PeerName{peer.modex.boot, peer.rank, message.k};
  }
  if (const auto refused = from_peer(message, name, connection->id())) return drop(*refused);
  connection->on_message(message, source);
}

void ControlPlane::send(RailUnit& via, const UdAddress& to, const CtlMessage& message,
                        Connection& sender) {
  std::array<std::byte, kCtlMaxBytes> bytes;
  const std::size_t size = encode(message, bytes);
  switch (via.control->send(to, std::span(bytes).first(size))) {
    case UdSend::Sent:
    case UdSend::TooLong:
    case UdSend::Busy:  // the sender's state machine repeats itself
      return;
    case UdSend::NoPath:
      return resolve_then_send(
          via, to, std::vector(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)),
          sender);
    case UdSend::Broken:
      return mend_control(via);
  }
}

void ControlPlane::resolve_then_send(RailUnit& via, const UdAddress& to,
                                     std::vector<std::byte> bytes, Connection& sender) {
  worker_->submit([this, &via, to, bytes = std::move(bytes), &sender] {
    if (auto resolved = via.control->resolve(to); !resolved) {
      log(LogLevel::Info, "no path for a control message: " + resolved.error().message);
      sender.note_trouble(resolved.error().message);
      return;
    }
    service_->post([&via, to, bytes] { (void)via.control->send(to, bytes); });
  });
}

// The control QP is reset in place and keeps its number: it has no connection into which late
// packets could get.
void ControlPlane::mend_control(RailUnit& via) {
  UdChannel* channel = via.control.get();
  if (!mending_.insert(channel).second) return;
  worker_->submit([this, channel] {
    if (auto reset = channel->reset_in_place(); !reset)
      log(LogLevel::Error, "the control queue pair cannot be reset: " + reset.error().message);
    service_->post([this, channel] { mending_.erase(channel); });
  });
}

void ControlPlane::on_async_readable(Nic& nic) {
  verbs::AsyncEvent event;
  while (verbs::next_async_event(nic.api(), nic.context(), event)) {
    if (log_wanted())
      log(LogLevel::Info,
          fmt::format("{}: async event {}", nic.name(), verbs::event_name(event.type)));
    switch (event.subject) {
      case verbs::EventSubject::QueuePair:
        on_qp_event(nic, event);
        break;
      case verbs::EventSubject::Port:
        on_port_event(nic, event);
        break;
      case verbs::EventSubject::Device:
        nic.set_fatal();
        break;
      default:
        break;  // SRQ limit, CQ and the rest: the ledger and the completions tell the same
    }
  }
}

void ControlPlane::on_qp_event(Nic& nic, const verbs::AsyncEvent& event) {
  for (RailUnit& unit : rails_) {
    if (&unit.rail->nic() != &nic) continue;
    if (event.type == IBV_EVENT_QP_LAST_WQE_REACHED) {
      if (unit.pool->on_last_wqe(event.qpn)) return;
      continue;
    }
    QpUser user{};
    {
      const std::lock_guard guard(mutex_);
      const auto it = qp_users_.find({unit.rail->id().value, event.qpn.value});
      if (it == qp_users_.end()) continue;
      user = it->second;
    }
    if (event.type == IBV_EVENT_QP_FATAL || event.type == IBV_EVENT_QP_REQ_ERR ||
        event.type == IBV_EVENT_QP_ACCESS_ERR)
      user.connection->handle(simple_event(EventKind::LinkLost, user.epoch));
    return;
  }
}

void ControlPlane::on_port_event(Nic& nic, const verbs::AsyncEvent& event) {
  for (RailUnit& unit : rails_) {
    if (&unit.rail->nic() != &nic || unit.rail->port().info.port != event.port) continue;
    const bool down = event.type == IBV_EVENT_PORT_ERR;
    if (down) unit.rail->set_port_active(false);
    worker_->submit([this, &unit, down] {
      if (!down) {
        if (auto seen = unit.rail->refresh_port(); !seen)
          log(LogLevel::Info, "asking for a port's state: " + seen.error().message);
        unit.control->paths_changed();
      }
      const bool active = unit.rail->port_active();
      each_connection([&](Connection& connection) {
        if (connection.home_rail() == unit.rail->id())
          connection.post(simple_event(active ? EventKind::PortUp : EventKind::PortDown));
      });
    });
  }
}

}  // namespace mend::conn
