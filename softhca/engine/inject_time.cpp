// Faults that the clock brings about, and what they do: queue pairs that die, ports that flap,
// events, dead devices.
#include <algorithm>

#include "softhca/engine/cq.h"
#include "softhca/engine/deliver.h"
#include "softhca/engine/events.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/ports.h"
#include "softhca/engine/recv_queue.h"

namespace softhca {

namespace {

// Each process has its own times for what happens inside it; the others happen once per fabric.
bool has_own_time(FaultKind kind) noexcept {
  return kind == FaultKind::Event || kind == FaultKind::DeviceFatal;
}

bool is_up(const QpShared& qp) noexcept {
  const uint32_t state = qp.state.load();
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

// Sets the ports that a rule names, of these those that `which(device, port)` accepts.
template <typename Which>
void set_ports_down(Process& proc, const FaultRule& rule, bool down, Which which) {
  const auto& devices = proc.fabric().conf.devices;
  for (unsigned d = 0; d < devices.size(); ++d) {
    if (!rule.on_device(devices[d].name)) continue;
    for (unsigned p = 1; p <= devices[d].ports.size(); ++p) {
      const bool named = rule.port == 0 || rule.port == p;
      if (named && which(d, p)) (void)set_port_down(proc, d, p, down);
    }
  }
}

template <typename T, typename Fits>
T* first_of(const std::vector<T*>& all, Fits fits) {
  const auto found = std::find_if(all.begin(), all.end(), fits);
  return found == all.end() ? nullptr : *found;
}

void raise_on_qp(Qp& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = base_of(&qp);
  raise_event(*qp.ctx, event);
}

}  // namespace

bool Injector::fire_if_due(ActiveRule& active, uint64_t now) {
  FaultSlot& slot = slot_of(active);
  const bool own = has_own_time(active.rule.kind);
  uint64_t due = own ? active.next_at : slot.next_at.load();
  if (due > now) return false;
  const uint64_t firing = own ? ++active.firings : slot.firings.load() + 1;
  uint64_t next = kNoTime;
  if (active.rule.period != 0) {
    const uint64_t gap = fault_gap(active.rule, active.serial, firing);
    // Who comes late, or was stopped for long, does not make up for it.
    next = due + gap > now ? due + gap : now + gap;
  }
  if (own) {
    active.next_at = next;
    return true;
  }
  // One of all the processes acts.
  if (!slot.next_at.compare_exchange_strong(due, next)) return false;
  slot.firings.fetch_add(1);
  return true;
}

// Whether this process has to see to it that a rule acts when its time comes. The rank of kill-qp
// names the victim.
bool Injector::acts_here(const FaultRule& rule) const {
  const bool elsewhere = rule.rank != kAnyRank && rule.rank != proc_.rank();
  return acts_alone(rule) && (rule.kind == FaultKind::KillQp || !elsewhere);
}

void Injector::run_due(uint64_t now) {
  std::vector<ActiveRule> due;
  std::vector<ActiveRule> over;
  {
    std::lock_guard guard(mutex_);
    for (ActiveRule& active : rules_) {
      if (slot_of(active).serial.load() != active.serial) continue;
      if (active.rule.kind == FaultKind::PortDown && takes_back(active, now))
        over.push_back(active);
      if (!acts_here(active.rule) || !fire_if_due(active, now)) continue;
      const uint64_t age = now - active.added;
      if (age >= active.rule.from && age < active.rule.until) due.push_back(active);
    }
  }
  for (const ActiveRule& active : over) restore_ports(proc_, active.rule);
  for (const ActiveRule& active : due) act_alone(active);
  finish_fatal();
  late_.run_due(now);
}

bool Injector::takes_back(const ActiveRule& active, uint64_t now) {
  FaultSlot& slot = slot_of(active);
  uint64_t undo = slot.undo_at.load();
  return undo <= now && slot.undo_at.compare_exchange_strong(undo, kNoTime);
}

uint64_t Injector::next_due() {
  uint64_t first = late_.next_due();
  std::lock_guard guard(mutex_);
  for (const ActiveRule& active : rules_) {
    const FaultSlot& slot = slot_of(active);
    if (slot.serial.load() != active.serial) continue;
    // Consumers ask about every completion only while there is a deadline.
    if (active.rule.kind == FaultKind::LateRecv) first = std::min(first, kDistantDeadline);
    if (active.rule.kind == FaultKind::PortDown) first = std::min(first, slot.undo_at.load());
    if (!acts_here(active.rule)) continue;
    first = std::min(first, has_own_time(active.rule.kind) ? active.next_at : slot.next_at.load());
  }
  return first;
}

// ---- what happens -------------------------------------------------------------------------------

void Injector::act_alone(const ActiveRule& active) {
  if (active.rule.kind == FaultKind::KillQp) {
    kill_some_qp(active);
    return;
  }
  if (!count_hit(active)) return;
  log_hit(active, hit_of(active, {}));
  act(active, nullptr);
}

void Injector::act(const ActiveRule& active, Qp* qp) {
  switch (active.rule.kind) {
    case FaultKind::PortDown:
    case FaultKind::PortUp:
      change_ports(active, qp);
      break;
    case FaultKind::Event:
      raise_events(active, qp);
      break;
    case FaultKind::DeviceFatal:
      break_devices(active, qp);
      break;
    default:
      break;
  }
}

bool Injector::is_victim(const FaultRule& rule, const DirEntry& entry, const QpShared& qp) const {
  const auto& slots = proc_.global()->slots;
  const auto& devices = proc_.fabric().conf.devices;
  if ((rule.qp_types & qp_type_bit(qp.type)) == 0 || !is_up(qp)) return false;
  if (rule.qpn != 0 && rule.qpn != qp.qpn.load()) return false;
  if (rule.rank != kAnyRank && slots[entry.slot.load()].rank != rule.rank) return false;
  if (qp.device >= devices.size() || !rule.on_device(devices[qp.device].name)) return false;
  if (rule.port != 0 && rule.port != qp.port) return false;
  if (rule.peer == kAnyRank) return true;
  Peer* peer = nullptr;
  return proc_.find_qp(qp.dest_qpn.load(), &peer) != nullptr && slots[peer->slot].rank == rule.peer;
}

void Injector::kill_some_qp(const ActiveRule& active) {
  std::vector<uint32_t> candidates;
  for (const DirEntry& entry : proc_.global()->dir) {
    const uint32_t qpn = entry.qpn.load(std::memory_order_acquire);
    Peer* peer = nullptr;
    const QpShared* qp = qpn == 0 ? nullptr : proc_.find_qp(qpn, &peer);
    if (qp != nullptr && is_victim(active.rule, entry, *qp)) candidates.push_back(qpn);
  }
  if (candidates.empty()) return;
  const uint64_t random =
      fault_random(active.rule.seed, active.serial, slot_of(active).firings.load());
  FaultQuestion q;
  q.qpn = candidates[random % candidates.size()];
  kill_victim(active, hit_of(active, q));
}

bool Injector::kill_one(const FaultRule& rule, uint32_t qpn, FaultHit* hit) {
  Peer* peer = nullptr;
  QpShared* qp = proc_.find_qp(qpn, &peer);
  if (qp == nullptr) return false;
  hit->victim_qpn = qpn;
  hit->victim_rank = proc_.global()->slots[peer->slot].rank;
  hit->dest_qpn = qp->dest_qpn.load();
  return nak_target(proc_, *peer, *qp, qpn, rule.event ? uint32_t{kQpFatal} : 0U);
}

// `hit` names the local side. True: that one died.
bool Injector::kill_victim(const ActiveRule& active, FaultHit hit) {
  if (!count_hit(active)) return false;
  Peer* peer = nullptr;
  const QpShared* qp = proc_.find_qp(hit.qpn, &peer);
  const uint32_t other = qp == nullptr ? 0 : qp->dest_qpn.load();
  FaultSide side = active.rule.side;
  if (side == FaultSide::Random) {
    // Another stream than the one that chose the queue pair.
    const uint64_t stream = uint64_t{1} << 63 | active.serial;
    const uint64_t random = fault_random(active.rule.seed, stream, slot_of(active).hits.load());
    side = (random & 1U) != 0 ? FaultSide::Peer : FaultSide::Local;
  }
  bool died = false;
  bool own = false;
  if (side != FaultSide::Local) died = kill_one(active.rule, other, &hit);
  if (side != FaultSide::Peer) own = kill_one(active.rule, hit.qpn, &hit);
  if (!died && !own) {
    slot_of(active).hits.fetch_sub(1);  // neither was up
    return false;
  }
  log_hit(active, hit);
  return own;
}

void Injector::change_ports(const ActiveRule& active, const Qp* qp) {
  const bool down = active.rule.kind == FaultKind::PortDown;
  if (down && active.rule.duration != 0) {
    const uint64_t undo = proc_.now() + active.rule.duration;
    slot_of(active).undo_at.store(undo);
    proc_.schedule(undo);
  }
  set_ports_down(proc_, active.rule, down, [&](unsigned device, unsigned port) {
    return qp == nullptr || (qp->ctx->device->index == device && qp->attr.port_num == port);
  });
}

void Injector::raise_one(Context& ctx, const FaultRule& rule, Qp* chosen) {
  ibv_async_event event{};
  event.event_type = rule.event_type;
  switch (rule.event_type) {
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (!name_queue(ctx, chosen, &event)) return;
      break;
    case IBV_EVENT_DEVICE_FATAL:
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      event.element.port_num = rule.port != 0 ? rule.port : 1;
      break;
    default:
      if (chosen != nullptr) raise_on_qp(*chosen, rule.event_type);
      return;
  }
  raise_event(ctx, event);
}

// The queue of the chosen QP, else the first of the context (the registry is held then).
bool Injector::name_queue(Context& ctx, const Qp* chosen, ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    Cq* const cq = chosen != nullptr
                       ? chosen->recv_cq
                       : first_of(proc_.cqs(), [&](const Cq* c) { return c->ctx == &ctx; });
    if (cq != nullptr) event->element.cq = base_of(cq);
    return cq != nullptr;
  }
  Srq* const srq = chosen != nullptr ? chosen->srq : first_of(proc_.srqs(), [&](const Srq* q) {
    return q->owner->ctx == &ctx;
  });
  if (srq != nullptr) event->element.srq = &srq->srq;
  return srq != nullptr;
}

void Injector::raise_events(const ActiveRule& active, Qp* qp) {
  const uint32_t times = active.rule.times == kForever ? 1 : active.rule.times;
  if (qp != nullptr) {
    for (uint32_t i = 0; i < times; ++i) raise_one(*qp->ctx, active.rule, qp);
    return;
  }
  for (Context* ctx : proc_.contexts()) {
    if (!active.rule.on_device(ctx->conf->name)) continue;
    std::vector<Qp*> mine;
    for (Qp* other : proc_.qps()) {
      const bool fits = other->ctx == ctx && is_up(*other->sh) &&
                        (active.rule.qp_types & qp_type_bit(other->type)) != 0 &&
                        (active.rule.qpn == 0 || active.rule.qpn == other->ex.qp_base.qp_num);
      if (fits) mine.push_back(other);
    }
    const uint64_t random = fault_random(active.rule.seed, active.serial, active.firings);
    Qp* chosen = mine.empty() ? nullptr : mine[random % mine.size()];
    for (uint32_t i = 0; i < times; ++i) raise_one(*ctx, active.rule, chosen);
  }
}

void Injector::break_devices(const ActiveRule& active, Qp* qp) {
  if (qp != nullptr) {
    qp->ctx->fatal = true;
    proc_.schedule(proc_.now());  // the rest needs the registry
    return;
  }
  for (Context* ctx : proc_.contexts()) {
    if (active.rule.on_device(ctx->conf->name)) ctx->fatal = true;
  }
}

void Injector::finish_fatal() {
  for (Context* ctx : proc_.contexts()) {
    if (!ctx->fatal.load() || ctx->fatal_done) continue;
    ctx->fatal_done = true;
    for (Qp* qp : proc_.qps()) {
      if (qp->ctx == ctx) (void)nak_target(proc_, proc_.self(), *qp->sh, qp->sh->qpn.load(), 0);
    }
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    raise_event(*ctx, event);
  }
}

void restore_ports(Process& proc, const FaultRule& rule) {
  set_ports_down(proc, rule, false, [](unsigned, unsigned) { return true; });
}

}  // namespace softhca
