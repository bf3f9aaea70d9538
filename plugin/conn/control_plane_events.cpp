// Asynchronous events, on the service thread: what the error policy says about each.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plugin/conn/control_plane.h"
#include "plugin/conn/error_policy.h"
#include "plugin/verbs/log.h"

namespace mend::conn {
namespace {

// Between two lines about the same shared receive queue, and until the device is asked again to
// tell when it runs low.
constexpr TimeNs kStarvingPause = 10 * kSecond;
constexpr TimeNs kRearmPause = 100 * kMillisecond;
// A burst that is taken as soon as MPI is called again is nobody's trouble.
constexpr TimeNs kStarvingPatience = 2 * kSecond;
// A device that is asked while it is low tells at once: silence for so long means that it is not.
constexpr TimeNs kCalmAfter = 10 * kMillisecond;

bool same_address(const PortView& a, const PortView& b) {
  return a.gid.gid == b.gid.gid && a.gid.index == b.gid.index && a.info.lid == b.info.lid &&
         a.pkey.index == b.pkey.index;
}

// Whether to speak again, and if so, when it was.
bool due(TimeNs& last, TimeNs now) {
  if (last != 0 && now - last < kStarvingPause) return false;
  last = now;
  return true;
}

}  // namespace

// A copy, to be used without the lock: what is done to a connection may need it.
std::vector<Connection*> ControlPlane::connections_on(const RailUnit& unit) const {
  std::vector<Connection*> found;
  each_connection([&](Connection& connection) {
    if (connection.home_rail() == unit.rail->id()) found.push_back(&connection);
  });
  return found;
}

void ControlPlane::on_async_readable(Nic& nic) {
  verbs::AsyncEvent event;
  while (verbs::next_async_event(nic.api(), nic.context(), event)) {
    if (log_wanted())
      log(LogLevel::Info,
          fmt::format("{}: async event {}", nic.name(), verbs::event_name(event.type)));
    if (event.subject == verbs::EventSubject::QueuePair) {
      on_qp_event(nic, event);
      continue;
    }
    if (event.type == IBV_EVENT_SRQ_LIMIT_REACHED) {
      on_srq_low(nic, event);
      continue;
    }
    switch (policy_of(event.type)) {
      case FaultClass::PathChange:
        on_port_event(nic, event);
        break;
      case FaultClass::DeviceFatal:
        on_fatal_event(nic, event);
        break;
      default:
        break;  // the completions tell the same
    }
  }
}

void ControlPlane::on_srq_low(Nic& nic, const verbs::AsyncEvent& event) {
  for (RailUnit& unit : rails_) {
    if (&unit.rail->nic() != &nic || unit.rail->srq() != event.srq) continue;
    ++unit.low_events;
    worker_->submit([this, &unit] { relieve(unit); });
  }
}

// Worker. Where no buffers can be added, the user is told who holds them, now and then, and the
// device is asked again after a pause: it would tell at every message.
void ControlPlane::relieve(RailUnit& unit) {
  if (unit.rail->relieve_srq()) {
    service_->post([this, &unit] { set_free_share(unit, kPlenty); });
    return unit.rail->watch_srq();
  }
  service_->post([this, &unit] { share_what_is_left(unit); });
  const TimeNs now = monotonic_now();
  if (now - unit.low_at > 5 * kRearmPause) unit.low_since = now;
  unit.low_at = now;
  if (due(unit.starved_at, now)) log(LogLevel::Warn, unit.rail->srq_holders());
  if (now - unit.low_since >= kStarvingPatience && due(unit.told_at, now))
    report_warning(unit.rail->srq_holders());
  service_->arm(now + kRearmPause, [this, &unit] { arm_again(unit); });
}

// Service thread. Where no event follows, there is enough again.
void ControlPlane::arm_again(RailUnit& unit) {
  const auto look = [this, &unit, events = unit.low_events] {
    if (unit.low_events == events) set_free_share(unit, kPlenty);
  };
  worker_->submit([this, &unit, look] {
    unit.rail->watch_srq();
    service_->arm(after(monotonic_now(), kCalmAfter), look);
  });
}

// Service thread. Whoever sends here may have as much under way as is his part of the buffers that
// are surely left: the rest would only be refused, again and again, by the device.
void ControlPlane::share_what_is_left(RailUnit& unit) {
  const std::vector<Connection*> here = connections_on(unit);
  const auto users = static_cast<std::uint32_t>(
      std::count_if(here.begin(), here.end(), [](const Connection* c) { return c->in_use(); }));
  set_free_share(unit, std::max(unit.rail->low_watermark() / std::max(users, 1u), 1u));
}

void ControlPlane::set_free_share(RailUnit& unit, std::uint32_t share) {
  if (unit.free_share == share) return;
  const bool news = share == kPlenty || unit.free_share == kPlenty;
  unit.free_share = share;
  if (!news) return;  // the heartbeats tell
  for (Connection* connection : connections_on(unit)) connection->tell_free_buffers();
}

void ControlPlane::on_qp_event(Nic& nic, const verbs::AsyncEvent& event) {
  for (RailUnit& unit : rails_) {
    if (&unit.rail->nic() != &nic) continue;
    if (event.type == IBV_EVENT_QP_LAST_WQE_REACHED) {
      if (unit.pool->on_last_wqe(event.qpn)) return;
      continue;
    }
    if (policy_of(event.type) != FaultClass::LinkLike) return;
    if (unit.control->address().qpn == event.qpn) return mend_control(unit);
    QpUser user{};
    {
      const std::lock_guard guard(mutex_);
      const auto it = qp_users_.find({unit.rail->id().value, event.qpn.value});
      if (it == qp_users_.end()) continue;
      user = it->second;
    }
    user.connection->handle(simple_event(EventKind::LinkLost, user.epoch));
    return;
  }
}

// The port is looked at again; if it is another one than the queue pairs know, they are fenced.
void ControlPlane::on_port_event(Nic& nic, const verbs::AsyncEvent& event) {
  for (RailUnit& unit : rails_) {
    if (&unit.rail->nic() != &nic || unit.rail->port().info.port != event.port) continue;
    if (event.type == IBV_EVENT_PORT_ERR) unit.rail->set_port_active(false);
    worker_->submit([this, &unit] {
      const PortView before = unit.rail->port();
      // Also when it went down: it may be up again by now, and no further event need come.
      if (auto seen = unit.rail->refresh_port(); !seen)
        log(LogLevel::Info, "asking for a port's state: " + seen.error().message);
      const bool active = unit.rail->port_active();
      if (active) unit.control->paths_changed();
      const bool moved = active && !same_address(before, unit.rail->port());
      for (Connection* connection : connections_on(unit)) {
        if (moved) service_->post([connection] { connection->path_moved(); });
        connection->post(simple_event(active ? EventKind::PortUp : EventKind::PortDown));
      }
    });
  }
}

// A dead device, or a shared queue without which its rail is dead: nothing can be moved to another
// one yet, so that the connections that were in use there are given up, by name.
void ControlPlane::on_fatal_event(Nic& nic, const verbs::AsyncEvent& event) {
  if (event.subject == verbs::EventSubject::Device) nic.set_fatal();
  for (RailUnit& unit : rails_) {
    const bool hit =
        &unit.rail->nic() == &nic && (event.subject == verbs::EventSubject::Device ||
                                      (event.srq != nullptr && event.srq == unit.rail->srq()) ||
                                      (event.cq != nullptr && event.cq == unit.rail->cq()));
    if (!hit) continue;
    unit.rail->set_lost();
    const std::string what =
        fmt::format("device {}: {}", unit.rail->info().name, verbs::event_name(event.type));
    log(LogLevel::Error, what);
    for (Connection* connection : connections_on(unit)) connection->device_lost(what);
  }
}

}  // namespace mend::conn
