// The commands of a connection that may block, on the worker thread.
#include <algorithm>
#include <chrono>

#include "ops/poller.h"
#include "plugin/conn/connection.h"
#include "plugin/conn/control_plane.h"
#include "plugin/conn/fence.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/mutate.h"

namespace mend::conn {
namespace {

constexpr std::chrono::milliseconds kFenceLimit{2000};
constexpr std::uint32_t kMaxRdAtomic =
    16;  // enough for any round trip; more only costs the device memory

verbs::Gid to_verbs(const Gid& gid) {
  verbs::Gid out;
  std::copy(gid.begin(), gid.end(), out.begin());
  return out;
}

}  // namespace

void Connection::work_fence(std::uint32_t work) {
  Event event = work_event(EventKind::FenceDone, work);
  std::string reason;
  if (!fence_now(event.sample, reason)) {
    event.kind = EventKind::FenceFailed;
    log(LogLevel::Error, "fencing a queue pair failed: " + reason);
  }
  post(event);
}

bool Connection::fence_now(FenceSample& sample, std::string& reason) {
  ops::TxRxProgress progress = channel_.progress_now();
  [[maybe_unused]] const Seq uncounted = progress.rx_next;  // before the fence: too early (F1)
  if (RcQp* qp = work_.qp; qp != nullptr) {
    const FenceReport report = fence(*home_.rail, *qp, kFenceLimit);
    plane_.qp_in_use(home_.rail->id(), qp->qpn, nullptr, work_.epoch);
    if (work_.lane) {
      home_.rail->poller().remove_lane(qp->qpn);
      progress = channel_.detach(report.fenced());
      if constexpr (missing(Rule::F1)) progress.rx_next = uncounted;
    }
    work_.last = qp->qpn;
    work_.qp = nullptr;
    work_.lane = false;
    home_.pool->park(qp, monotonic_now());
    plane_.tend_pool_soon(home_);
    if (!report.fenced()) {
      reason = report.reason;
      return false;
    }
  }
  sample = FenceSample{progress.rx_next, progress.tx_acked, progress.tx_next};
  return true;
}

Result<Endpoint> Connection::make_endpoint(Epoch epoch) {
  auto taken = home_.pool->take(work_.last);
  if (!taken) return tl::unexpected(taken.error());
  work_.qp = *taken;
  work_.epoch = epoch;
  work_.psn = Psn{static_cast<std::uint32_t>(plane_.random()) & kPsnMask};
  if constexpr (missing(Rule::F4)) work_.psn = Psn{1};
  plane_.qp_in_use(home_.rail->id(), work_.qp->qpn, this, epoch);
  return my_endpoint();
}

Endpoint Connection::my_endpoint() const {
  const PortView port = home_.rail->port();
  Endpoint endpoint;
  endpoint.rail = home_.rail->id();
  endpoint.port = port.info.port;
  endpoint.link = port.info.link == verbs::LinkLayer::Ethernet ? Link::Ethernet : Link::InfiniBand;
  endpoint.mtu = static_cast<std::uint8_t>(port.mtu);
  endpoint.lid = port.info.lid;
  endpoint.qpn = work_.qp->qpn;
  endpoint.psn = work_.psn;
  std::copy(port.gid.gid.begin(), port.gid.gid.end(), endpoint.gid.begin());
  endpoint.ack_cell_addr = reinterpret_cast<std::uintptr_t>(&cell_.cell->from_peer);
  endpoint.ack_cell_rkey = cell_.region->remote.rkey[home_.rail->id().value];
  return endpoint;
}

void Connection::work_prepare(std::uint32_t work, Role role, Epoch epoch, const Endpoint& remote) {
  Event event = work_event(EventKind::QpReady, work);
  auto endpoint = make_endpoint(epoch);
  Result<void> connected;
  if (endpoint) {
    event.endpoint = *endpoint;
    if (role == Role::Follower) connected = connect(remote);
  }
  if (!endpoint || !connected) {
    event.kind = EventKind::QpFailed;
    const std::string& why = !endpoint ? endpoint.error().message : connected.error().message;
    log(LogLevel::Info, "preparing a queue pair: " + why);
    note_trouble(why);
  }
  post(event);
  plane_.tend_pool_soon(home_);
}

void Connection::work_connect(std::uint32_t work, const Endpoint& remote) {
  Event event = work_event(EventKind::QpReady, work);
  if (work_.qp == nullptr) {
    event.kind = EventKind::QpFailed;
  } else if (auto connected = connect(remote); !connected) {
    event.kind = EventKind::QpFailed;
    log(LogLevel::Info, "connecting a queue pair: " + connected.error().message);
    note_trouble(connected.error().message);
  } else {
    event.endpoint = my_endpoint();
  }
  post(event);
}

// The lane is known to poller and channel before the QP can receive.
Result<void> Connection::connect(const Endpoint& remote) {
  const verbs::DeviceCaps& caps = home_.rail->nic().caps();
  verbs::QpParams params = home_.rail->qp_params(RemotePort{to_verbs(remote.gid), remote.lid});
  params.mtu = std::min(home_.rail->port().mtu, static_cast<ibv_mtu>(remote.mtu));
  params.dest_qpn = remote.qpn;
  params.rq_psn = remote.psn;
  params.sq_psn = work_.psn;
  params.max_dest_rd_atomic =
      static_cast<std::uint8_t>(std::min(caps.max_qp_rd_atom, kMaxRdAtomic));
  params.max_rd_atomic = static_cast<std::uint8_t>(
      std::min({caps.max_qp_init_rd_atom, std::uint32_t{remote_.rd_atomic}, kMaxRdAtomic}));

  ops::Lane lane;
  lane.qp = work_.qp->qp.get();
  lane.qpn = work_.qp->qpn;
  lane.epoch = work_.epoch;
  lane.local_rail = home_.rail->id();
  lane.remote_rail = remote.rail;
  lane.ack_cell_addr = remote.ack_cell_addr;
  lane.ack_cell_rkey = remote.ack_cell_rkey;
  home_.rail->poller().add_lane(lane.qpn, lane.epoch, channel_, plane_.upcalls().receive, &origin_);
  channel_.attach(lane);
  work_.lane = true;
  stats_.path_mtu.store(verbs::mtu_bytes(params.mtu), std::memory_order_relaxed);
  if (auto done = home_.pool->to_rtr(*work_.qp, params); !done) return done;
  return home_.pool->to_rts(*work_.qp, params);
}

}  // namespace mend::conn
