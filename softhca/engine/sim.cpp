#include "softhca/engine/sim.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "softhca/api/operations.h"
#include "softhca/engine/gid_table.h"
#include "softhca/engine/ports.h"
#include "softhca/engine/shared_conf.h"
#include "softhca/fault/fault_names.h"

namespace softhca::sim {

Fabric::Fabric(FabricConf conf, bool with_log) {
  fabric_.conf = std::move(conf);
  fabric_.clock = &clock_;
  fabric_.in_process = true;
  if (with_log) fabric_.log = &log_;
  fabric_.fault_log = &fault_log_;
  if (fabric_.global.create_anonymous() != 0) throw std::bad_alloc();
  publish_conf(*fabric_.global.shared(), fabric_.conf);
  unsigned index = 0;
  for (const DeviceConf& device : fabric_.conf.devices) {
    devices_.push_back(make_device(device, index++));
  }
}

Fabric::~Fabric() = default;

ibv_context* Fabric::open(unsigned device) {
  if (device >= devices_.size()) {
    errno = ENODEV;
    return nullptr;
  }
  auto node = std::make_unique<Process>(fabric_);
  node->identify(static_cast<int32_t>(nodes_.size()), 0);
  std::string why;
  if (const int rc = node->attach(&why); rc != 0) {
    errno = rc;
    return nullptr;
  }
  Context* ctx = open_context(*node, *devices_[device]);
  if (ctx == nullptr) return nullptr;
  fill_operations(*ctx);
  nodes_.push_back(std::move(node));
  return &ctx->vctx.context;
}

ibv_context* Fabric::open_beside(ibv_context* sibling, unsigned device) {
  if (device >= devices_.size()) {
    errno = ENODEV;
    return nullptr;
  }
  Context* ctx = open_context(*context_of(sibling)->proc, *devices_[device]);
  if (ctx == nullptr) return nullptr;
  fill_operations(*ctx);
  return &ctx->vctx.context;
}

void Fabric::kill(ibv_context* context) { context_of(context)->proc->die(); }

uint64_t Fabric::earliest() const noexcept {
  uint64_t first = UINT64_MAX;
  for (const auto& node : nodes_) {
    const uint64_t next = node->inert() ? UINT64_MAX : node->next_deadline();
    if (next < kDistantDeadline) first = std::min(first, next);
  }
  return first;
}

void Fabric::settle() {
  // What one node does may call for another; the number of rounds is bounded by the chain of errors
  // that a single cause can have.
  for (int round = 0; round < 8; ++round) {
    for (const auto& node : nodes_) node->service();
  }
}

void Fabric::advance(uint64_t ns) {
  const uint64_t end = clock_.now() + ns;
  settle();
  for (uint64_t next = earliest(); next <= end; next = earliest()) {
    clock_.set(next);
    settle();
  }
  clock_.set(end);
  settle();
}

bool Fabric::run_until_idle(uint64_t limit) {
  const uint64_t end = clock_.now() + limit;
  settle();
  for (uint64_t next = earliest(); next != UINT64_MAX; next = earliest()) {
    if (next > end) return false;
    clock_.set(next);
    settle();
  }
  return true;
}

bool Fabric::set_port(unsigned device, unsigned port, bool up) {
  if (nodes_.empty()) return false;
  return set_port_down(*nodes_.front(), device, port, !up);
}

bool Fabric::swap_gids(unsigned device, unsigned port, unsigned a, unsigned b) {
  return !nodes_.empty() && softhca::swap_gids(*nodes_.front(), device, port, a, b);
}

void Fabric::tell_faults() {
  for (const auto& node : nodes_) {
    if (!node->inert()) node->refresh_faults();
  }
}

bool Fabric::add_faults(std::string_view text) {
  const auto list = parse_faults(text);
  if (!list) throw std::invalid_argument(list.error().str());
  const bool added = board_add(fabric_.global.shared()->faults, *list, 0, now());
  tell_faults();
  return added;
}

void Fabric::clear_faults() {
  board_clear(fabric_.global.shared()->faults);
  tell_faults();
}

uint64_t Fabric::fault_hits(std::string_view kind) const {
  uint64_t sum = 0;
  const FaultBoard& board = fabric_.global.shared()->faults;
  for (const FaultCopy& copy : board_rules(board)) {
    if (kind.empty() || fault_kind_name(copy.rule.kind) == kind) sum += board.slots[copy.slot].hits;
  }
  return sum;
}

}  // namespace softhca::sim
