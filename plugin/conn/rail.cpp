#include "plugin/conn/rail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "ops/memory_hooks.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "ops/wire.h"
#include "plugin/conn/sizing.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {
namespace {

// Inline data is copied by the CPU; beyond this a DMA read is as good.
constexpr std::uint32_t kMaxInline = 256;
// Fewest data WRs a QP is of use with.
constexpr std::uint32_t kFewestSendWrs = 2;
constexpr std::uint64_t kMaxRdmaBytes = 1u << 30;

int arm_srq_limit(void* context, ibv_srq* srq, std::uint32_t limit) {
  const auto* rail = static_cast<const Rail*>(context);
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  const int rc = rail->api().modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  return rc >= 0 ? rc : errno;
}

std::uint32_t saturate(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min(value, std::uint64_t{UINT32_MAX}));
}

}  // namespace

// Receive buffers are written by this rail's device only, so they are registered with its
// protection domain alone.
struct Rail::Memory {
  explicit Memory(Rail& owner) : rail(owner) {}

  Rail& rail;
  std::mutex mutex;
  std::unordered_map<void*, verbs::Mr> regions;
  std::string error;  // why the last registration failed

  // A pool that could not grow knows only that; why is here.
  void explain(Error& pool_error) {
    const std::scoped_lock lock(mutex);
    if (!error.empty()) pool_error.message += ": " + std::exchange(error, {});
  }
  static bool add(void* context, void* base, std::size_t bytes, ops::LocalKeys& keys) {
    auto* self = static_cast<Memory*>(context);
    auto mr = verbs::register_memory(self->rail.api(), self->rail.nic_.pd(), base, bytes,
                                     IBV_ACCESS_LOCAL_WRITE);
    const std::scoped_lock lock(self->mutex);
    if (!mr) {
      self->error = std::move(mr.error().message);
      return false;
    }
    keys.lkey[self->rail.id_.value] = Lkey{(*mr)->lkey};
    self->regions.insert_or_assign(base, std::move(*mr));
    return true;
  }
  static void remove(void* context, void* base) {
    auto* self = static_cast<Memory*>(context);
    const std::scoped_lock lock(self->mutex);
    self->regions.erase(base);
  }
};

Rail::Rail(Nic& nic, RailId id, const Params& params, std::uint32_t peers)
    : nic_(nic),
      id_(id),
      params_(params),
      peers_(peers),
      memory_(std::make_unique<Memory>(*this)) {}

Rail::~Rail() = default;

Result<std::unique_ptr<Rail>> Rail::create(Nic& nic, std::uint8_t port, RailId id,
                                           const Params& params, std::uint32_t peers) {
  std::unique_ptr<Rail> rail(new Rail(nic, id, params, peers));
  auto view = rail->look_at_port(port);
  if (!view) return tl::unexpected<Error>(std::move(view.error()));
  if (!view->info.active) {
    return fail(ENETDOWN, "port",
                fmt::format("{}:{} is not active (state {})", nic.name(), port,
                            verbs::port_state_name(view->info.state)));
  }
  rail->port_ = *view;
  rail->port_active_ = true;
  if (auto done = rail->create_queues(); !done) {
    return tl::unexpected<Error>(std::move(done.error()));
  }
  rail->fill_info();
  return rail;
}

Result<PortView> Rail::look_at_port(std::uint8_t port) const {
  PortView view;
  auto info = verbs::query_port(api(), nic_.context(), port);
  if (!info) return tl::unexpected<Error>(std::move(info.error()));
  view.info = *info;
  view.mtu = info->active_mtu;
  if (params_.mtu != 0) {
    auto wanted = verbs::mtu_from_bytes(params_.mtu);
    if (!wanted) return tl::unexpected<Error>(std::move(wanted.error()));
    view.mtu = std::min(view.mtu, *wanted);
  }
  if (!info->active) return view;  // a port that is down has neither GID nor keys to speak of
  const auto table = verbs::read_gid_table(api(), nic_.context(), *info);
  auto gid = verbs::choose_gid(table, info->link, params_.gid_index);
  if (gid) {
    view.gid = *gid;
  } else if (info->grh_required || params_.gid_index >= 0) {
    gid.error().message = fmt::format("{}:{}: {}", nic_.name(), port, gid.error().message);
    return tl::unexpected<Error>(std::move(gid.error()));
  }
  auto pkey = verbs::find_pkey(api(), nic_.context(), *info, params_.pkey);
  if (!pkey) return tl::unexpected<Error>(std::move(pkey.error()));
  view.pkey = *pkey;
  return view;
}

Result<void> Rail::create_queues() {
  const verbs::DeviceCaps& caps = nic_.caps();
  sizes_ = plan_sizes(caps, port_.info.speed_mbps, params_, peers_);
  if (caps.has_srq()) {
    auto srq = verbs::create_srq(api(), nic_.pd(), caps,
                                 {.depth = sizes_.srq_capacity, .minimum = two_times(1)});
    if (!srq) return tl::unexpected<Error>(std::move(srq.error()));
    srq_ = std::move(srq->srq);
    sizes_.srq_capacity = srq->depth;
    sizes_.recv_buffers = std::min(sizes_.recv_buffers, srq->depth);
  }
  auto cq = verbs::create_cq(
      api(), nic_.context(), caps,
      {.depth = saturate(cq_entries_for(first_qps(params_, peers_), sizes_.recv_buffers)),
       .minimum = saturate(cq_entries_for(1, sizes_.recv_buffers))});
  if (!cq) return tl::unexpected<Error>(std::move(cq.error()));
  cq_ = std::move(*cq);
  sizes_.cq_entries = static_cast<std::uint32_t>(cq_->cqe);
  if (auto probed = probe_qp(); !probed) return probed;
  return create_receive_buffers();
}

// What the device grants a QP is known only by making one; the modules need the inline size before
// the first peer exists.
Result<void> Rail::probe_qp() {
  const std::uint32_t inline_wanted =
      params_.max_inline < 0 ? kMaxInline
                             : std::min(static_cast<std::uint32_t>(params_.max_inline), kMaxInline);
  auto grant = verbs::create_qp(api(), nic_.pd(), nic_.caps(),
                                {.send_cq = cq_.get(),
                                 .recv_cq = cq_.get(),
                                 .srq = srq_.get(),
                                 .send_depth = sizes_.send_depth + kReservedSendWrs,
                                 .send_minimum = kFewestSendWrs + kReservedSendWrs,
                                 .recv_depth = sizes_.per_qp_recv,
                                 .recv_minimum = srq_ ? 0u : two_times(1),
                                 .max_inline = inline_wanted});
  if (!grant) return tl::unexpected<Error>(std::move(grant.error()));
  sizes_.send_depth = grant->send_depth - kReservedSendWrs;
  sizes_.per_qp_recv = grant->recv_depth;
  sizes_.max_inline = grant->max_inline;
  return {};
}

Result<void> Rail::create_receive_buffers() {
  const bool shared = static_cast<bool>(srq_);
  const ops::RecvPoolConfig config{.srq = srq_.get(),
                                   .rail = id_,
                                   .payload_bytes = params_.max_send_size,
                                   .depth = shared ? sizes_.recv_buffers : sizes_.per_qp_recv,
                                   .max_depth = shared ? sizes_.srq_capacity : UINT32_MAX,
                                   .arm_limit = arm_srq_limit,
                                   .arm_context = this};
  const ops::MemoryHooks hooks{
      .context = memory_.get(), .register_chunk = Memory::add, .unregister_chunk = Memory::remove};
  auto pool = ops::RecvPool::create(config, hooks);
  if (!pool) {
    memory_->explain(pool.error());
    return tl::unexpected<Error>(std::move(pool.error()));
  }
  recv_pool_ = std::move(*pool);
  poller_ = std::make_unique<ops::Poller>(cq_.get(), *recv_pool_, sizes_.cq_entries);
  first_recv_buffers_ = recv_pool_->depth();
  watch_srq();
  return {};
}

void Rail::fill_info() {
  info_.name = fmt::format("{}:{}", nic_.name(), port_.info.port);
  info_.speed_mbps = port_.info.speed_mbps;
  constexpr std::uint32_t kHeader = sizeof(ops::DataHeader);
  info_.max_inline_payload = sizes_.max_inline > kHeader ? sizes_.max_inline - kHeader : 0;
  const std::uint64_t device_max = port_.info.max_message;
  info_.max_message = device_max != 0 ? std::min(device_max, kMaxRdmaBytes) : kMaxRdmaBytes;
}

std::uint64_t Rail::cq_entries_for(std::uint32_t qps, std::uint32_t recv_buffers) const {
  return cq_depth(qps, sizes_.send_depth + kReservedSendWrs + sizes_.per_qp_recv, recv_buffers);
}

Result<void> Rail::make_room(std::uint32_t qps) {
  // The CQ first: once the buffers are posted, each may complete.
  const std::uint32_t have = sizes_.recv_buffers;
  std::uint32_t buffers = have;
  if (srq_ && two_times(qps) > have) {
    // Half as many again, so that a start-up of many peers does not register memory for each.
    buffers = std::max(two_times(qps), std::min(have + have / 2, sizes_.srq_capacity));
  }
  if (auto room = make_cq_room(qps, buffers); !room) return room;
  if (auto ruled = recv_pool_->ensure(qps); !ruled || buffers == have) return ruled;
  sizes_.recv_buffers = recv_pool_->depth();
  return {};
}

Result<void> Rail::make_cq_room(std::uint32_t qps, std::uint32_t buffers) {
  const std::uint64_t needed = cq_entries_for(qps, buffers);
  if (needed <= sizes_.cq_entries) return {};
  const verbs::DeviceCaps& caps = nic_.caps();
  const std::uint64_t generous = std::min(needed + needed / 2, std::uint64_t{caps.max_cqe});
  auto grown = verbs::grow_cq(api(), cq_.get(), caps, saturate(std::max(generous, needed)));
  if (!grown) grown = verbs::grow_cq(api(), cq_.get(), caps, saturate(needed));
  if (!grown) return grown;
  sizes_.cq_entries = static_cast<std::uint32_t>(cq_->cqe);
  poller_->set_cq_depth(sizes_.cq_entries);
  return {};
}

Result<void> Rail::reserve_qps(std::uint32_t count) {
  if (auto room = make_room(reserved_qps_ + count); !room) {
    memory_->explain(room.error());
    room.error().message = fmt::format("{}: no room for QP {} of this process: {}", info_.name,
                                       reserved_qps_ + count, room.error().message);
    return room;
  }
  reserved_qps_ += count;
  return {};
}

void Rail::release_qps(std::uint32_t count) { reserved_qps_ -= std::min(count, reserved_qps_); }

PortView Rail::port() const {
  const std::scoped_lock lock(port_mutex_);
  return port_;
}

Result<void> Rail::refresh_port() {
  auto view = look_at_port(port().info.port);
  if (!view) {
    set_port_active(false);
    return tl::unexpected<Error>(std::move(view.error()));
  }
  const std::scoped_lock lock(port_mutex_);
  if (!view->info.active) {
    // GID, LID and keys stay as they were: they are what the peers know.
    port_.info.state = view->info.state;
    port_.info.active = false;
  } else {
    port_ = *view;
  }
  set_port_active(port_.info.active);
  return {};
}

verbs::QpParams Rail::qp_params(const RemotePort& remote) const {
  const PortView view = port();
  verbs::QpParams out;
  out.port = view.info.port;
  out.pkey_index = view.pkey.index;
  out.mtu = view.mtu;
  out.path.port = view.info.port;
  out.path.dlid = remote.lid;
  out.path.dgid = remote.gid;
  // Within an InfiniBand subnet the LID is enough; between subnets (or where the port demands it)
  // the GRH is needed.
  const bool same_subnet =
      std::equal(remote.gid.begin(), remote.gid.begin() + 8, view.gid.gid.begin());
  const bool has_gid = remote.gid != verbs::Gid{};
  out.path.global = view.info.grh_required || (has_gid && !same_subnet);
  out.path.sgid_index = static_cast<std::uint8_t>(view.gid.index);
  out.path.service_level = static_cast<std::uint8_t>(params_.service_level);
  out.path.traffic_class = static_cast<std::uint8_t>(params_.traffic_class);
  out.min_rnr_timer = static_cast<std::uint8_t>(params_.ib_min_rnr_timer);
  out.timeout = static_cast<std::uint8_t>(params_.ib_timeout);
  out.retry_count = static_cast<std::uint8_t>(params_.ib_retry_count);
  out.rnr_retry = static_cast<std::uint8_t>(params_.ib_rnr_retry);
  return out;
}

}  // namespace mend::conn
