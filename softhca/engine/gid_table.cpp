#include "softhca/engine/gid_table.h"

namespace softhca {

namespace {

// Place p holds the configured GID p. In shared memory the difference to this is kept, so that zero
// is as configured.
constexpr uint64_t kAsConfigured = 0xfedcba9876543210;
static_assert(kMaxGids == 16);

// Puts `difference` in the place of `seen`, and counts whether the table is the configured one.
bool publish(Process& proc, PortShared& shared, uint64_t seen, uint64_t difference) {
  GlobalShared& global = *proc.global();
  if (!shared.gids_moved.compare_exchange_strong(seen, difference)) return false;
  if (seen == 0 && difference != 0) global.ports_disturbed.fetch_add(1);
  if (seen != 0 && difference == 0) global.ports_disturbed.fetch_sub(1);
  shared.gid_changes.fetch_add(1);
  global.port_epoch.fetch_add(1);
  proc.poke_everybody();
  return true;
}

}  // namespace

GidTable::GidTable(const Process& proc, unsigned device, unsigned port) noexcept
    : conf_(proc.fabric().conf.devices[device].ports[port - 1]),
      places_(proc.global()->ports[device][port - 1].gids_moved.load() ^ kAsConfigured) {}

unsigned GidTable::size() const noexcept {
  unsigned size = kMaxGids;
  while (size > conf_.gids.size() && at(size - 1) == nullptr) --size;
  return size;
}

const GidConf* GidTable::at(unsigned place) const noexcept {
  if (place >= kMaxGids) return nullptr;
  const unsigned configured = configured_at(place);
  return configured < conf_.gids.size() ? &conf_.gids[configured] : nullptr;
}

bool swap_gids(Process& proc, unsigned device, unsigned port, unsigned a, unsigned b) {
  PortShared& shared = proc.global()->ports[device][port - 1];
  for (;;) {
    const GidTable table(proc, device, port);
    if (a == b || a >= kMaxGids || b >= kMaxGids) return false;
    if (table.at(a) == nullptr && table.at(b) == nullptr) return false;
    const uint64_t seen = shared.gids_moved.load();
    const uint64_t places = seen ^ kAsConfigured;
    const uint64_t both = ((places >> (4 * a)) ^ (places >> (4 * b))) & 0xf;
    if (publish(proc, shared, seen, seen ^ (both << (4 * a)) ^ (both << (4 * b)))) return true;
  }
}

void reset_gids(Process& proc, unsigned device, unsigned port) {
  PortShared& shared = proc.global()->ports[device][port - 1];
  for (;;) {
    const uint64_t seen = shared.gids_moved.load();
    if (seen == 0 || publish(proc, shared, seen, 0)) return;
  }
}

}  // namespace softhca
