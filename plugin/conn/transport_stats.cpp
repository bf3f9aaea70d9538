// Gathers the statistics of a transport from its parts.
#include <algorithm>

#include "ops/recv_pool.h"
#include "plugin/conn/transport_impl.h"
#include "plugin/verbs/gid.h"

namespace mend::conn {
namespace {

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

void add_channel(Stats& stats, const ops::ChannelStats& channel) {
  stats[Stat::Sends] += number(channel.sends);
  stats[Stat::Recvs] += number(channel.recvs);
  stats[Stat::Puts] += number(channel.puts);
  stats[Stat::Gets] += number(channel.gets);
  stats[Stat::Atomics] += number(channel.atomics);
  stats[Stat::BytesSent] += number(channel.bytes_sent);
  stats[Stat::BytesReceived] += number(channel.bytes_received);
  stats[Stat::Replayed] += number(channel.replayed);
  stats[Stat::ReplayedBytes] += number(channel.replayed_bytes);
  stats[Stat::InDoubt] += number(channel.in_doubt);
  stats[Stat::DupRx] += number(channel.dup_rx);
}

void add_rail(Stats& stats, const RailUnit& unit) {
  const QpCounts qps = unit.pool->counts();
  stats[Stat::QpsCreated] += number(qps.created);
  stats[Stat::QpsDestroyed] += number(qps.destroyed);
  stats[Stat::QpsLiveMax] += number(qps.live_max);
  const ops::RecvLedger ledger = unit.rail->recv_pool().ledger();
  stats[Stat::SrqDepth] += number(ledger.depth);
  stats[Stat::SrqLost] += number(ledger.lost);
  std::int64_t& min_free = stats[Stat::SrqMinFree];
  min_free =
      min_free < 0 ? number(ledger.min_posted) : std::min(min_free, number(ledger.min_posted));
  const RailInfo& info = unit.rail->info();
  RailStats rail{.name = info.name, .numa_node = info.numa_node, .distance = info.distance};
  if (const verbs::GidEntry gid = unit.rail->port().gid; gid.gid != verbs::Gid{}) {
    rail.gid = verbs::format_gid(gid.gid);
    rail.gid_index = gid.index;
  }
  stats.rails.push_back(rail);
}

void note_path_mtu(RailStats& rail, std::uint32_t bytes) {
  if (bytes != 0 && (rail.path_mtu == 0 || bytes < rail.path_mtu)) rail.path_mtu = bytes;
}

}  // namespace

Stats Transport::Impl::collect() const {
  Stats stats;
  stats.rank = self.rank;
  stats.host = self.host;
  stats[Stat::SrqMinFree] = -1;
  stats[Stat::Rnr] = -1;  // no device's counter is read yet
  for (const RailUnit& unit : rails) add_rail(stats, unit);
  for (const auto& nic : devices.nics) {
    const bool used = std::any_of(rails.begin(), rails.end(), [&](const RailUnit& unit) {
      return &unit.rail->nic() == nic.get();
    });
    if (used) stats.device += (stats.device.empty() ? "" : ",") + nic->name();
  }
  plane->each_connection([&](const Connection& connection) {
    const ops::ChannelStats channel = connection.channel().stats();
    add_channel(stats, channel);
    RailStats& rail = stats.rails[connection.home_rail().value];
    rail.bytes_sent += channel.bytes_sent;
    rail.bytes_received += channel.bytes_received;
    note_path_mtu(rail, connection.stats().path_mtu.load(std::memory_order_relaxed));
    const std::uint64_t ups = connection.stats().ups.load(std::memory_order_relaxed);
    stats[Stat::Connections] += connection.ever_used() ? 1 : 0;
    stats[Stat::Recoveries] += ups > 1 ? number(ups - 1) : 0;
    const auto add = [&stats](Stat stat, const std::atomic<std::uint64_t>& count) {
      stats[stat] += number(count.load(std::memory_order_relaxed));
    };
    add(Stat::Repairs, connection.stats().repairs);
    add(Stat::CtlStale, connection.stats().stale_messages);
    add(Stat::HeartbeatMisses, connection.stats().misses);
    add(Stat::HbFalseAlarm, connection.stats().false_alarms);
    add(Stat::Slowed, connection.stats().slowed);
    std::int64_t& longest = stats[Stat::MaxOutageUs];
    longest =
        std::max(longest, number(connection.stats().max_outage_us.load(std::memory_order_relaxed)));
  });
  for (std::uint8_t reason = 0; reason < kDropReasons; ++reason)
    stats[Stat::CtlDropped] += number(plane->dropped(static_cast<DropReason>(reason)));
  stats[Stat::MrsLiveMax] = number(registry->live_max());
  stats[Stat::MrBytesMax] = number(registry->bytes_max());
  return stats;
}

std::string Transport::stats_json() const { return impl_->collect().to_json(); }

std::uint64_t Transport::stat(unsigned index) const {
  return static_cast<std::uint64_t>(impl_->collect().values.at(index));
}

std::span<const char* const> Transport::stat_names() { return kStatNames; }

}  // namespace mend::conn
