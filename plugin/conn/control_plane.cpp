#include "plugin/conn/control_plane.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/recv_pool.h"
#include "plugin/conn/clock.h"
#include "plugin/conn/rail_pairs.h"
#include "plugin/conn/sizing.h"
#include "plugin/verbs/bare.h"
#include "plugin/verbs/log.h"

namespace mend::conn {
namespace {

// How long after a recovery took a warm queue pair the pool is filled up again.
constexpr TimeNs kTendDelay = 20 * kMillisecond;

std::uint64_t name_key(std::uint32_t jobid, std::uint32_t rank) {
  return std::uint64_t{jobid} << 32 | rank;
}

TimeNs from_ms(int ms) { return static_cast<TimeNs>(ms) * kMillisecond; }

TimeNs limit_of_probe(const Params& params) {
  const TimeNs one_try = static_cast<TimeNs>(4096) << params.ib_timeout;
  return std::max(2 * one_try * static_cast<TimeNs>(params.ib_retry_count + 1), 2 * kSecond);
}

FsmConfig make_fsm_config(const Params& params) {
  FsmConfig config;
  config.backoff.lowest = from_ms(params.reconnect_backoff_min_ms);
  config.backoff.highest = from_ms(params.reconnect_backoff_max_ms);
  config.max_outage = static_cast<TimeNs>(params.max_outage_s) * kSecond;
  config.heartbeat = kWatches ? from_ms(params.heartbeat_interval_ms) : 0;
  config.heartbeat_misses = static_cast<std::uint32_t>(params.heartbeat_misses);
  config.heartbeat_idle = static_cast<TimeNs>(params.heartbeat_idle_s) * kSecond;
  config.probe_limit = std::max(config.probe_limit, 4 * limit_of_probe(params));
  config.window = static_cast<std::uint32_t>(params.window);
  return config;
}

std::string other_version(std::uint32_t rank, const std::string& host, std::byte theirs) {
  return fmt::format(
      "process {} on {} runs another version of mend (wire version {}, here {}) and is left to "
      "other transports; install the same mend on every node",
      rank, host, std::to_integer<unsigned>(theirs), unsigned{kModexVersion});
}

std::mt19937_64 seeded(Host& host) {
  const std::uint64_t a = host.random_seed();
  const std::uint64_t b = host.random_seed();
  std::seed_seq seed{a, a >> 32, b, b >> 32};
  return std::mt19937_64(seed);
}

}  // namespace

ControlPlane::ControlPlane(const Params& params, const Identity& self, const Upcalls& upcalls,
                           std::vector<RailUnit>& rails, MemoryRegistry& registry,
                           ops::FragPool& frags, Host& host)
    : params_(params),
      upcalls_(upcalls),
      jobid_(self.jobid),
      host_(self.host),
      fsm_config_(make_fsm_config(params)),
      probe_limit_(limit_of_probe(params)),
      rails_(rails),
      published_(describe_rails()),
      frags_(frags),
      registry_(registry),
      cells_(registry),
      random_(seeded(host)),
      executors_from_(host),
      worker_(host.make_worker()) {
  self_.job_key = self.job_key;
  self_.rank = self.rank;
  while (self_.boot == 0) self_.boot = random_();
}

ControlPlane::~ControlPlane() {
  stop();
  for (const auto& connection : connections_)
    if (connection) connection->last_fence();
  connections_.clear();
}

Result<void> ControlPlane::start() {
  auto service = executors_from_.make_service();
  if (!service) return tl::unexpected(service.error());
  service_ = std::move(*service);
  ack_timer_ = std::make_unique<AckTimer>(*service_);
  std::set<Nic*> nics;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    nics.insert(&rails_[i].rail->nic());
    if (auto r = service_->watch(rails_[i].control->fd(), [this, i] { on_control_readable(i); });
        !r)
      return r;
  }
  for (Nic* nic : nics)
    if (auto r =
            service_->watch(nic->context()->async_fd, [this, nic] { on_async_readable(*nic); });
        !r)
      return r;
  return {};
}

void ControlPlane::stop() {
  if (service_) service_->stop();
  worker_->stop();
}

std::uint64_t ControlPlane::random() {
  const std::lock_guard guard(mutex_);
  return random_();
}

std::vector<RailAddress> ControlPlane::describe_rails() const {
  std::vector<RailAddress> rails;
  for (const RailUnit& unit : rails_) {
    const PortView port = unit.rail->port();
    const UdAddress ud = unit.control->address();
    RailAddress address;
    address.rail = unit.rail->id();
    address.kind = unit.kind;
    address.link = port.info.link == verbs::LinkLayer::Ethernet ? Link::Ethernet : Link::InfiniBand;
    address.mtu = static_cast<std::uint8_t>(port.mtu);
    address.lid = ud.lid;
    address.rd_atomic =
        static_cast<std::uint8_t>(std::clamp(unit.rail->nic().caps().max_qp_rd_atom, 1u, 255u));
    address.ud_qpn = ud.qpn;
    address.ud_qkey = ud.qkey;
    address.srq_buffer = unit.rail->recv_pool().buffer_bytes();
    std::copy(ud.gid.begin(), ud.gid.end(), address.gid.begin());
    rails.push_back(address);
  }
  return rails;
}

std::vector<std::byte> ControlPlane::modex() const {
  ModexInfo info;
  info.boot = self_.boot;
  info.job_key = self_.job_key;
  info.rails = published_;
  return encode_modex(info);
}

Result<Peer*> ControlPlane::add_peer(std::uint32_t jobid, std::uint32_t rank,
                                     const std::string& host, std::span<const std::byte> modex) {
  auto info = parse_modex(modex);
  if (!info && info.error() == ModexError::Version)
    return fail(EPROTONOSUPPORT, "modex", other_version(rank, host, modex.front()));
  if (!info)
    return fail(ENOTSUP, "modex",
                fmt::format("process {} on {} published a damaged address: {}", rank, host,
                            to_string(info.error())));
  Peer* peer = nullptr;
  std::optional<Unknown> waiting;
  {
    const std::lock_guard guard(mutex_);
    if (const auto known = by_name_.find(name_key(jobid, rank)); known != by_name_.end())
      return known->second;
    auto fresh = std::make_unique<Peer>();
    fresh->jobid = jobid;
    fresh->rank = rank;
    fresh->host = host;
    fresh->modex = *info;
    peer = fresh.get();
    peers_.push_back(std::move(fresh));
  }
  if (auto made = make_connections(*peer); !made) {
    forget_unconnected(*peer);
    return tl::unexpected(made.error());
  }
  {
    const std::lock_guard guard(mutex_);
    by_name_[name_key(jobid, rank)] = peer;
    by_boot_[peer->modex.boot] = peer;
    if (const auto it = unknown_.find(rank); it != unknown_.end()) {
      waiting = it->second;
      unknown_.erase(it);
    }
  }
  if (waiting)
    service_->post(
        [this, request = *waiting] { accept(request.rail, request.message, request.source); });
  if (params_.prewarm)
    for (Connection* connection : peer->connections)
      connection->post(simple_event(EventKind::Submit));
  return peer;
}

// Whoever asks for a connection is looked up again and again: what fails must leave nothing.
void ControlPlane::forget_unconnected(const Peer& peer) {
  if (!peer.connections.empty()) return;
  const std::lock_guard guard(mutex_);
  std::erase_if(peers_, [&peer](const auto& one) { return one.get() == &peer; });
}

Result<void> ControlPlane::make_connections(Peer& peer) {
  const bool leads = role_of(jobid_, self_.rank, peer.jobid, peer.rank) == Role::Leader;
  const std::vector<RailAddress>& own = published_;
  const std::vector<RailAddress>& theirs = peer.modex.rails;
  const bool same_host = peer.host == host_ || params_.test_one_machine;
  const std::vector<RailPair> pairs =
      leads ? pair_rails(own, theirs, same_host) : pair_rails(theirs, own, same_host);
  const bool usable = std::all_of(theirs.begin(), theirs.end(), [](const RailAddress& rail) {
    return rail.srq_buffer > sizeof(ops::DataHeader);
  });
  if (pairs.empty() || !usable)
    return fail(ENOTSUP, "rail",
                fmt::format("no rail of process {} on {} can talk to {}", peer.rank, peer.host,
                            rails_.front().rail->info().name));
  for (const RailPair& pair : pairs) {
    const RailAddress& remote = theirs[leads ? pair.follower : pair.leader];
    const std::uint32_t mine = leads ? pair.leader : pair.follower;
    if (auto made = make_connection(peer, mine, remote); !made) return made;
  }
  return {};
}

Result<void> ControlPlane::make_connection(Peer& peer, std::uint32_t my_rail,
                                           const RailAddress& remote) {
  auto cell = cells_.take();
  if (!cell) return tl::unexpected(cell.error());
  const auto k = static_cast<std::uint32_t>(peer.connections.size());
  ConnId id;
  {
    const std::lock_guard guard(mutex_);
    id = ConnId{static_cast<std::uint32_t>(connections_.size())};
    connections_.emplace_back();  // its place in the table; filled in below
  }
  auto connection =
      std::make_unique<Connection>(*this, peer, id, k, rails_[my_rail], remote, *cell);
  peer.connections.push_back(connection.get());
  Connection*& by_home = peer.by_home[my_rail];
  if (by_home == nullptr) by_home = connection.get();
  const std::lock_guard guard(mutex_);
  connections_[id.value] = std::move(connection);
  return {};
}

void ControlPlane::report_give_up(Peer& peer, std::string text) {
  if (peer.gave_up.exchange(true)) return;
  const std::lock_guard guard(mutex_);
  gave_up_.emplace_back(&peer, std::move(text));
  ask_attention();
}

void ControlPlane::report_own_end(std::string text) {
  const std::lock_guard guard(mutex_);
  if (std::exchange(own_end_, true)) return;
  gave_up_.emplace_back(nullptr, std::move(text));
  ask_attention();
}

Peer* ControlPlane::find_peer(std::uint32_t jobid, std::uint32_t rank) const {
  const std::lock_guard guard(mutex_);
  const auto known = by_name_.find(name_key(jobid, rank));
  return known == by_name_.end() ? nullptr : known->second;
}

void ControlPlane::report_warning(std::string text) {
  const std::lock_guard guard(mutex_);
  warnings_.push_back(std::move(text));
  ask_attention();
}

void ControlPlane::count_healing(int change) {
  const std::lock_guard guard(mutex_);
  healing_.fetch_add(change, std::memory_order_relaxed);
  if (change > 0) ask_attention();
}

int ControlPlane::attention() {
  std::vector<std::pair<Peer*, std::string>> gave_up;
  std::vector<std::uint32_t> unknown;
  std::vector<std::string> warnings;
  {
    const std::lock_guard guard(mutex_);
    gave_up.swap(gave_up_);
    unknown.swap(unknown_new_);
    warnings.swap(warnings_);
    attention_.store(healing(), std::memory_order_relaxed);
  }
  for (const std::uint32_t rank : unknown)
    if (upcalls_.unknown_peer != nullptr) upcalls_.unknown_peer(upcalls_.context, rank);
  for (const std::string& text : warnings)
    if (upcalls_.warn != nullptr) upcalls_.warn(upcalls_.context, text);
  for (const auto& [peer, text] : gave_up)
    if (upcalls_.gave_up != nullptr) upcalls_.gave_up(upcalls_.context, peer, text);
  return static_cast<int>(unknown.size() + warnings.size() + gave_up.size());
}

void ControlPlane::qp_in_use(RailId rail, Qpn qpn, Connection* connection, Epoch epoch) {
  const std::lock_guard guard(mutex_);
  const auto key = std::make_pair(rail.value, qpn.value);
  if (connection == nullptr)
    qp_users_.erase(key);
  else
    qp_users_[key] = QpUser{connection, epoch};
}

void ControlPlane::enter_handshake(Connection& connection, std::function<void()> start) {
  if (handshakes_.count(&connection) == 0 && handshakes_.size() >= kRecoveriesInFlight) {
    waiting_handshakes_.emplace_back(&connection, std::move(start));
    return;
  }
  handshakes_.insert(&connection);
  start();
}

void ControlPlane::leave_handshake(Connection& connection) {
  if (handshakes_.erase(&connection) == 0) return;
  while (!waiting_handshakes_.empty() && handshakes_.size() < kRecoveriesInFlight) {
    auto [next, start] = std::move(waiting_handshakes_.front());
    waiting_handshakes_.pop_front();
    handshakes_.insert(next);
    start();
  }
}

void ControlPlane::tend_pool(RailUnit& unit) {
  if (auto filled = unit.pool->refill(); !filled)
    log(LogLevel::Info, "the pool of warm queue pairs stays short: " + filled.error().message);
  tend_pool_at(unit, unit.pool->reap(monotonic_now()));
}

// Creating a queue pair may take milliseconds: not while the connection that took one waits.
void ControlPlane::tend_pool_soon(RailUnit& unit) {
  tend_pool_at(unit, after(monotonic_now(), kTendDelay));
}

// The next look, if none is due before. Every fence comes here: timers that each arm the next would
// add up in a storm of flaps.
void ControlPlane::tend_pool_at(RailUnit& unit, TimeNs when) {
  if (!service_ || !unit.tend.move(std::min(when, unit.tend.wanted()))) return;
  service_->arm(unit.tend.wanted(), [this, &unit, at = unit.tend.wanted()] {
    worker_->submit([this, &unit, at] {
      if (unit.tend.fired(at, monotonic_now()))
        tend_pool(unit);
      else
        tend_pool_at(unit, unit.tend.wanted());
    });
  });
}

}  // namespace mend::conn
