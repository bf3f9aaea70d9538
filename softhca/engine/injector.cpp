#include "softhca/engine/injector.h"

#include <algorithm>
#include <cerrno>

#include "softhca/engine/cq.h"
#include "softhca/engine/receive_ring.h"

namespace softhca {

namespace {

// Rules of a kind are in force for questions of that kind only; these are about requests.
bool concerns_requests(const FaultRule& rule) noexcept {
  switch (rule.kind) {
    case FaultKind::None:
    case FaultKind::FailCall:
    case FaultKind::DelayCall:
    case FaultKind::LateRecv:
    case FaultKind::NoLastWqe:
    case FaultKind::LateFlush:
    case FaultKind::ReuseQpn:
    case FaultKind::kCount:
      return false;
    default:
      return !acts_alone(rule);
  }
}

// What a request sets off does not concern the request itself.
bool acts_besides(FaultKind kind) noexcept {
  return kind == FaultKind::PortDown || kind == FaultKind::PortUp || kind == FaultKind::Event ||
         kind == FaultKind::DeviceFatal;
}

FaultQuestion about(const Qp& qp) noexcept {
  FaultQuestion q;
  q.ctx = qp.ctx;
  q.port = qp.attr.port_num;
  q.qp_type = qp_type_bit(qp.type);
  q.qpn = qp.ex.qp_base.qp_num;
  q.dest_qpn = qp.type == IBV_QPT_UD ? 0 : qp.attr.dest_qp_num;
  return q;
}

FaultQuestion about(const Qp& qp, const SendWr& wr) noexcept {
  FaultQuestion q = about(qp);
  q.opcode = wr.opcode;
  q.wr_id = wr.wr_id;
  if (qp.type == IBV_QPT_UD) q.dest_qpn = wr.remote_qpn;
  return q;
}

}  // namespace

// ---- rules --------------------------------------------------------------------------------------

void Injector::refresh() {
  std::vector<ActiveRule> fresh;
  std::lock_guard guard(mutex_);
  for (const FaultCopy& copy : board_rules(proc_.global()->faults)) {
    if (copy.origin != 0 && copy.origin != proc_.fault_origin()) continue;
    const auto known = std::find_if(rules_.begin(), rules_.end(),
                                    [&](const ActiveRule& a) { return a.serial == copy.serial; });
    if (known != rules_.end()) {
      fresh.push_back(*known);
      continue;
    }
    ActiveRule& active = fresh.emplace_back(ActiveRule{copy});
    if (active.rule.timed) {
      active.next_at = first_firing(active.rule, active.serial, active.added);
    }
  }
  rules_ = std::move(fresh);
  used_ = used_ || !rules_.empty();
  if (!rules_.empty()) log_.open_from_env(proc_.rank());
}

bool Injector::needed() {
  if (proc_.fabric().log != nullptr || !late_.empty()) return true;
  std::lock_guard guard(mutex_);
  return used_;
}

bool Injector::matches(const ActiveRule& active, const FaultQuestion& q) const {
  const FaultRule& rule = active.rule;
  if (rule.rank != kAnyRank && rule.rank != proc_.rank()) return false;
  if (!rule.on_device(q.ctx == nullptr ? std::string_view{} : q.ctx->conf->name)) return false;
  if (rule.port != 0 && rule.port != q.port) return false;
  if (q.qp_type != 0 && (rule.qp_types & q.qp_type) == 0) return false;
  if (rule.qpn != 0 && rule.qpn != q.qpn) return false;
  if (q.opcode >= 0 && (rule.opcodes >> q.opcode & 1U) == 0) return false;
  if (rule.to_state >= 0 && rule.to_state != q.to_state) return false;
  if (rule.peer == kAnyRank) return true;
  Peer* peer = nullptr;
  return proc_.find_qp(q.dest_qpn, &peer) != nullptr &&
         proc_.global()->slots[peer->slot].rank == rule.peer;
}

bool Injector::triggered(ActiveRule& active) {
  const FaultRule& rule = active.rule;
  if (rule.timed) return fire_if_due(active, proc_.now());
  const uint64_t occurrence = ++active.seen;
  if (rule.first != 0) return rule.hits(occurrence);
  if (rule.probability == 0.0) return true;
  // Ranks draw from streams of their own, so that a run depends on the seed alone.
  const auto rank = static_cast<uint32_t>(
      proc_.rank() == kAnyRank ? static_cast<int32_t>(proc_.self().slot) : proc_.rank());
  const uint64_t stream = uint64_t{active.serial} << 32 | rank;
  return fault_fraction(rule.seed, stream, occurrence) < rule.probability;
}

bool Injector::count_hit(const ActiveRule& active) {
  FaultSlot& slot = slot_of(active);
  if (slot.serial.load() != active.serial) return false;  // cleared meanwhile
  if (slot.hits.fetch_add(1) < active.rule.limit) return true;
  slot.hits.fetch_sub(1);
  return false;
}

FaultHit Injector::hit_of(const ActiveRule& active, const FaultQuestion& q) const {
  FaultHit hit;
  hit.time = proc_.now();
  hit.rule = active.slot;
  hit.kind = active.rule.kind;
  hit.rank = proc_.rank();
  hit.qpn = q.qpn;
  hit.dest_qpn = q.dest_qpn;
  hit.opcode = q.opcode;
  hit.wr_id = q.wr_id;
  hit.call = q.call;
  return hit;
}

void Injector::log_hit(const ActiveRule& active, const FaultHit& hit) {
  log_.write(hit, active.rule.written());
  Fabric& fabric = proc_.fabric();
  if (fabric.fault_log == nullptr) return;
  std::lock_guard guard(fabric.log_mutex);
  fabric.fault_log->push_back(hit);
}

bool Injector::ask(ActiveRule& active, const FaultQuestion& q) {
  if (!matches(active, q)) return false;
  const uint64_t age = proc_.now() - active.added;
  if (age < active.rule.from || age >= active.rule.until) return false;
  if (!triggered(active)) return false;
  // Whether a queue pair can be killed turns out later.
  if (active.rule.kind == FaultKind::KillQp) return true;
  if (!count_hit(active)) return false;
  log_hit(active, hit_of(active, q));
  return true;
}

// ---- calls --------------------------------------------------------------------------------------

int Injector::on_call(Context& ctx, FaultCall call, int32_t to_state) {
  if (ctx.fatal.load() && call != FaultCall::QueryQp) return EIO;
  FaultQuestion q;
  q.ctx = &ctx;
  q.call = call;
  q.to_state = to_state;
  int error = 0;
  uint64_t delay = 0;
  {
    std::lock_guard guard(mutex_);
    for (ActiveRule& active : rules_) {
      const FaultKind kind = active.rule.kind;
      if (kind != FaultKind::FailCall && kind != FaultKind::DelayCall) continue;
      if (active.rule.call != call || (kind == FaultKind::FailCall && error != 0)) continue;
      if (!ask(active, q)) continue;
      if (kind == FaultKind::FailCall) error = active.rule.error;
      if (kind == FaultKind::DelayCall) delay += active.rule.delay;
    }
  }
  if (delay != 0) proc_.fabric().clock->pass(delay);
  return error;
}

// ---- requests -----------------------------------------------------------------------------------

Flight Injector::decide(Qp& qp, const SendWr& wr) {
  Flight flight;
  flight.asked = true;
  const FaultQuestion q = about(qp, wr);
  std::vector<ActiveRule> at_once;
  {
    std::lock_guard guard(mutex_);
    for (ActiveRule& active : rules_) {
      if (!concerns_requests(active.rule) || !ask(active, q)) continue;
      flight.kind = active.rule.kind;
      apply(active, wr, flight);
      if (acts_besides(active.rule.kind)) at_once.push_back(active);
    }
  }
  for (const ActiveRule& active : at_once) act(active, &qp);
  return flight;
}

void Injector::apply(const ActiveRule& active, const SendWr& wr, Flight& flight) {
  const FaultRule& rule = active.rule;
  switch (rule.kind) {
    case FaultKind::Drop:
      flight.drops = rule.times;
      break;
    case FaultKind::DropAck:
      flight.ack_drops = rule.times;
      flight.window = rule.window;
      break;
    case FaultKind::Status:
      flight.status = rule.status;
      flight.execute_first = rule.executed;
      break;
    case FaultKind::NoCqe:
      flight.silent = true;
      flight.lost = !rule.flush;
      flight.execute_first = rule.executed;
      break;
    case FaultKind::LateCqe:
      flight.cqe_delay = rule.delay;
      break;
    case FaultKind::LateFetch:
      flight.fetch_at = proc_.now() + rule.delay;
      break;
    case FaultKind::LatePlace:
      if (wr.opcode == IBV_WR_RDMA_WRITE && wr.length != 0) flight.place_delay = rule.delay;
      break;
    case FaultKind::Rnr:
      flight.not_ready = rule.times;
      break;
    case FaultKind::Ghost:
      flight.ghost_delay = std::max<uint64_t>(rule.delay, 1);
      flight.drops = kForever;
      break;
    case FaultKind::Duplicate:
      flight.copy_delay = std::max<uint64_t>(rule.delay, 1);
      break;
    case FaultKind::Late:
    case FaultKind::Reorder:
      flight.late_by = std::max<uint64_t>(rule.delay, 1);
      flight.behind_next = rule.kind == FaultKind::Reorder;
      break;
    case FaultKind::KillQp:
      flight.kill_serial = active.serial;
      flight.execute_first = rule.executed;
      break;
    default:
      break;
  }
}

bool Injector::kill_by(uint32_t serial, const Qp& qp, const SendWr& wr) {
  ActiveRule rule;
  {
    std::lock_guard guard(mutex_);
    const auto known = std::find_if(rules_.begin(), rules_.end(),
                                    [&](const ActiveRule& a) { return a.serial == serial; });
    if (known == rules_.end()) return false;
    rule = *known;
  }
  return kill_victim(rule, hit_of(rule, about(qp, wr)));
}

// ---- queue pairs and completion queues ----------------------------------------------------------

uint64_t Injector::flush_time(const Qp& qp) {
  const FaultQuestion q = about(qp);
  std::lock_guard guard(mutex_);
  for (ActiveRule& active : rules_) {
    if (active.rule.kind == FaultKind::LateFlush && ask(active, q))
      return proc_.now() + active.rule.delay;
  }
  return 0;
}

bool Injector::hides_last_wqe(const Qp& qp) {
  const FaultQuestion q = about(qp);
  std::lock_guard guard(mutex_);
  return std::any_of(rules_.begin(), rules_.end(), [&](ActiveRule& active) {
    return active.rule.kind == FaultKind::NoLastWqe && ask(active, q);
  });
}

uint32_t Injector::reused_qpn(Context& ctx, uint32_t last_released) {
  if (last_released == 0) return 0;
  FaultQuestion q;
  q.ctx = &ctx;
  q.qpn = last_released;
  std::lock_guard guard(mutex_);
  for (ActiveRule& active : rules_) {
    if (active.rule.kind == FaultKind::ReuseQpn && ask(active, q)) return last_released;
  }
  return 0;
}

bool Injector::holds_back(Cq& cq) {
  const uint64_t now = proc_.now();
  if (now < cq.hidden_until) return true;
  const RecordHeader* record = published_at(cq, cq.head);
  if (record == nullptr || cq.asked_up_to > cq.head) return false;
  cq.asked_up_to = cq.head + 1;
  FaultQuestion q;
  q.ctx = cq.ctx;
  q.qpn = record->qpn();
  uint64_t delay = 0;
  {
    std::lock_guard guard(mutex_);
    for (ActiveRule& active : rules_) {
      if (active.rule.kind == FaultKind::LateRecv && ask(active, q)) delay = active.rule.delay;
    }
  }
  if (delay == 0) return false;
  cq.hidden_until = now + delay;
  late_.hide(cq, cq.hidden_until);
  return true;
}

}  // namespace softhca
