#include "plugin/conn/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/chunk_memory.h"
#include "plugin/conn/control_plane.h"
#include "plugin/conn/device_choice.h"
#include "plugin/conn/host.h"
#include "plugin/conn/memory_registry.h"
#include "plugin/conn/rail_unit.h"
#include "plugin/conn/service_thread.h"
#include "plugin/conn/stats.h"
#include "plugin/conn/transport_impl.h"
#include "plugin/verbs/log.h"
#include "topo/rank_nics.h"

namespace mend::conn {
namespace {

// No secret: it lets the processes of a job answer each other before they have met.
std::uint32_t qkey_of(std::uint64_t job_key) {
  const auto folded = static_cast<std::uint32_t>(job_key ^ (job_key >> 32));
  return (folded & 0x7fffffffu) | 1u;
}

// Open MPI prefers low latencies: a NIC that is twice as far counts twice.
void place(RailInfo& info, const ChosenPort& chosen) {
  info.numa_node = chosen.numa_node;
  info.distance = chosen.distance;
  info.latency_us = static_cast<std::uint32_t>(std::ceil(chosen.distance / topo::kLocalDistance));
}

Result<std::vector<RailUnit>> make_rails(const Devices& devices, const Params& params,
                                         const Identity& self) {
  std::vector<RailUnit> units;
  for (const ChosenPort& chosen : devices.ports) {
    const RailId id{static_cast<std::uint8_t>(units.size())};
    RailUnit unit;
    unit.kind = devices.kind;
    auto rail = Rail::create(*chosen.nic, chosen.port, id, params, self.expected_peers);
    if (!rail) return tl::unexpected(rail.error());
    unit.rail = std::move(*rail);
    place(unit.rail->info(), chosen);
    unit.pool = std::make_unique<QpPool>(*unit.rail, params);
    auto control = UdChannel::create(*unit.rail, qkey_of(self.job_key));
    if (!control) return tl::unexpected(control.error());
    unit.control = std::move(*control);
    units.push_back(std::move(unit));
  }
  return units;
}

Result<std::unique_ptr<ops::FragPool>> make_pool(const char* name, std::uint32_t payload,
                                                 std::uint32_t per_chunk, ChunkMemory& memory) {
  ops::FragPoolConfig config;
  config.name = name;
  config.payload_bytes = payload;
  config.frags_per_chunk = per_chunk;
  return ops::FragPool::create(config, memory.hooks());
}

}  // namespace

Transport::Transport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  for (const RailUnit& unit : impl_->rails) {
    pollers_[unit.rail->id().value] = &unit.rail->poller();
    ++poller_count_;
  }
  attention_ = &impl_->plane->attention_flag();
  small_frags_ = impl_->small.get();
}

Result<std::unique_ptr<Transport>> Transport::create(const Params& params, const Identity& self,
                                                     const Upcalls& upcalls) {
  ServiceThread::leave_signals_alone();
  auto devices = choose_devices(params, self, [&upcalls] {
    if (upcalls.before_threads != nullptr) upcalls.before_threads(upcalls.context);
  });
  if (!devices) return tl::unexpected(devices.error());
  if (auto safe = verbs::make_fork_safe(*devices->api); !safe)
    log(LogLevel::Info, "fork safety: " + safe.error().message);
  return create_on(std::move(*devices), params, self, upcalls, this_machine());
}

Result<std::unique_ptr<Transport>> Transport::create_on(Devices devices, const Params& params,
                                                        const Identity& self,
                                                        const Upcalls& upcalls, Host& host) {
  auto impl = std::make_unique<Impl>();
  impl->params = params;
  impl->self = self;
  impl->devices = std::move(devices);
  auto rails = make_rails(impl->devices, params, self);
  if (!rails) return tl::unexpected(rails.error());
  impl->rails = std::move(*rails);

  std::vector<ibv_pd*> pds;
  for (const RailUnit& unit : impl->rails) {
    pds.push_back(unit.rail->nic().pd());
    impl->rail_infos.push_back(unit.rail->info());
  }
  impl->registry = std::make_unique<MemoryRegistry>(*impl->devices.api, pds);
  impl->chunks = std::make_unique<ChunkMemory>(*impl->registry);
  auto small = make_pool("mend_small", params.small_frag_size, 64, *impl->chunks);
  if (!small) return tl::unexpected(small.error());
  impl->small = std::move(*small);
  auto large = make_pool("mend_large", params.max_send_size, 16, *impl->chunks);
  if (!large) return tl::unexpected(large.error());
  impl->large = std::move(*large);

  impl->plane = std::make_unique<ControlPlane>(params, self, upcalls, impl->rails, *impl->registry,
                                               *impl->small, host);
  if (auto started = impl->plane->start(); !started) return tl::unexpected(started.error());
  for (RailUnit& unit : impl->rails)
    impl->plane->worker().submit([plane = impl->plane.get(), &unit] { plane->tend_pool(unit); });
  return std::unique_ptr<Transport>(new Transport(std::move(impl)));
}

Transport::~Transport() {
  if (impl_->plane) impl_->plane->stop();
}

Transport::Impl::~Impl() {
  plane.reset();  // fences what is left
  for (RailUnit& unit : rails) unit.pool->clear();
  small.reset();
  large.reset();
  chunks.reset();
  if (const std::string left = leftovers(); !left.empty())
    log(LogLevel::Warn, "closed with objects left: " + left);
}

// Everything was fenced, drained and given back: what is still there has been lost by somebody.
std::string Transport::Impl::leftovers() const {
  std::string left;
  const auto add = [&left](std::uint64_t count, const std::string& what) {
    if (count != 0) left += (left.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  for (const RailUnit& unit : rails) {
    const std::string& name = unit.rail->info().name;
    add(unit.pool->counts().existing(), "queue pairs of " + name);
    const ops::RecvLedger ledger = unit.rail->recv_pool().ledger();
    add(ledger.delivered, "receive buffers of " + name + " in upcalls");
    add(ledger.stashed, "receive buffers of " + name + " undelivered");
    add(ledger.lost, "receive buffers of " + name + " missing");
  }
  if (registry) add(registry->live(), "memory regions (the registration cache was not emptied)");
  return left;
}

std::span<const RailInfo> Transport::rails() const { return impl_->rail_infos; }
std::vector<std::byte> Transport::modex() const { return impl_->plane->modex(); }

Result<Peer*> Transport::add_peer(std::uint32_t jobid, std::uint32_t rank, const std::string& host,
                                  std::span<const std::byte> modex) {
  return impl_->plane->add_peer(jobid, rank, host, modex);
}

void Transport::remove_peer(Peer* peer) {
  for (Connection* connection : peer->connections) connection->close();
}

void Transport::ask_attention() { impl_->plane->ask_attention(); }

void Transport::give_up_peer(Peer* peer) {
  peer->gave_up.store(true);
  for (Connection* connection : peer->connections) connection->give_up_peer();
}

void Transport::give_up_process(std::uint32_t jobid, std::uint32_t rank) {
  if (Peer* peer = impl_->plane->find_peer(jobid, rank)) give_up_peer(peer);
}

bool Transport::ever_used(const Peer* peer) const {
  return std::any_of(peer->connections.begin(), peer->connections.end(),
                     [](const Connection* connection) { return connection->ever_used(); });
}

bool Transport::reaches(const Peer* peer, RailId home_rail) const {
  return peer->by_home[home_rail.value] != nullptr;
}

ops::Channel& Transport::channel(Peer* peer, RailId home_rail) {
  return peer->by_home[home_rail.value]->channel();
}

ops::Frag* Transport::alloc_frag(std::uint32_t payload_bytes) {
  return payload_bytes <= impl_->params.small_frag_size ? impl_->small->get() : impl_->large->get();
}

void Transport::release_user(ops::Frag& frag) { ops::release_hold(frag, ops::kHoldUser); }

Result<void> Transport::register_region(void* base, std::size_t bytes, unsigned access,
                                        Region& out) {
  return impl_->registry->add(base, bytes, access, out);
}
void Transport::deregister_region(Region& region) { impl_->registry->remove(region); }

int Transport::progress(RailId rail) {
  int events = impl_->rails[rail.value].rail->poller().progress();
  if (wants_attention()) events += attend();
  return events;
}

// Where ranks have a core each, the thread that polls and those that repair share it: without the
// yield every step of a recovery would wait for the end of a time slice.
int Transport::attend() {
  const int events = impl_->plane->attention();
  if (events == 0 && impl_->plane->healing()) std::this_thread::yield();
  return events;
}

bool Transport::flushed() const {
  bool quiet = true;
  for (const RailUnit& unit : impl_->rails) quiet = quiet && !unit.rail->poller().callbacks_due();
  impl_->plane->each_connection(
      [&](const Connection& connection) { quiet = quiet && connection.channel().quiet(); });
  return quiet;
}

}  // namespace mend::conn
