#include "softhca/engine/late_work.h"

#include <algorithm>
#include <utility>

#include "softhca/engine/busy.h"
#include "softhca/engine/cq.h"
#include "softhca/engine/dma.h"
#include "softhca/engine/execute.h"
#include "softhca/engine/wr_log.h"

namespace softhca {

namespace {

std::vector<char> bytes_of(const LocalData& data, uint32_t length) {
  std::vector<char> all;
  all.reserve(std::max(length, 1U));
  for (unsigned i = 0; i < data.count; ++i) {
    const auto* from = static_cast<const char*>(data.pieces[i].iov_base);
    all.insert(all.end(), from, from + data.pieces[i].iov_len);
  }
  return all;
}

// The queue pair as the packet remembers it: what execute() looks at.
std::unique_ptr<Qp> remembered(const Qp& qp) {
  auto copy = std::make_unique<Qp>();
  copy->proc = qp.proc;
  copy->ctx = qp.ctx;
  copy->type = qp.type;
  copy->attr = qp.attr;
  copy->sq_psn = qp.sq_psn;
  copy->mtu = qp.mtu;
  copy->ex.qp_base.qp_num = qp.ex.qp_base.qp_num;
  return copy;
}

// Moves what `which` chooses out of `from`.
template <typename T, typename Which>
std::vector<T> take(std::vector<T>& from, Which which) {
  std::vector<T> taken;
  const auto kept = std::stable_partition(from.begin(), from.end(),
                                          [&](const T& entry) { return !which(entry); });
  taken.assign(std::make_move_iterator(kept), std::make_move_iterator(from.end()));
  from.erase(kept, from.end());
  return taken;
}

}  // namespace

LateWork::~LateWork() = default;

void LateWork::deliver_later(Qp& qp, const SendWr& wr, uint64_t due, FaultKind why,
                             bool behind_next) {
  LocalData data;
  if (!collect_local(qp, wr, 0, &data)) return;
  auto packet = std::make_unique<Packet>();
  packet->due = due;
  packet->why = why;
  packet->behind = behind_next ? qp.ex.qp_base.qp_num : 0;
  packet->qp = remembered(qp);
  packet->payload = bytes_of(data, wr.length);
  packet->wr = wr;
  packet->sge = {reinterpret_cast<uint64_t>(packet->payload.data()), wr.length, 0};
  packet->wr.sge = &packet->sge;
  packet->wr.num_sge = 1;
  packet->wr.flags |= IBV_SEND_INLINE;  // its bytes are its own: no keys
  if (wr.av != nullptr) {
    packet->av = *wr.av;
    packet->wr.av = &packet->av;
  }
  {
    std::lock_guard guard(mutex_);
    packets_.push_back(std::move(packet));
  }
  proc_.schedule(due);
}

void LateWork::datagram_sent(const Qp& qp) {
  std::vector<std::unique_ptr<Packet>> ready;
  {
    std::lock_guard guard(mutex_);
    if (packets_.empty()) return;
    const uint32_t qpn = qp.ex.qp_base.qp_num;
    ready = take(packets_, [&](const auto& p) { return p->behind == qpn; });
  }
  run(ready);
}

void LateWork::run(const std::vector<std::unique_ptr<Packet>>& packets) {
  for (const auto& packet : packets) {
    const ExecResult result = execute(*packet->qp, packet->wr);
    log_attempt(*packet->qp, packet->wr, result,
                {.executed = result.outcome == Outcome::Done, .ghost = true, .fault = packet->why});
  }
}

ExecResult LateWork::place_later(Qp& qp, const SendWr& wr, uint64_t due) {
  Placement placement;
  LocalData data;
  if (!collect_local(qp, wr, 0, &data)) return local_error(IBV_WC_LOC_PROT_ERR);
  const ExecResult result = begin_write(qp, wr, &placement.target, &placement.host);
  if (result.outcome != Outcome::Done) return result;
  placement.due = due;
  placement.qp = &qp;
  placement.peer = qp.peer;
  placement.payload = bytes_of(data, wr.length);
  {
    std::lock_guard guard(mutex_);
    placements_.push_back(std::move(placement));
  }
  proc_.schedule(due);
  return result;
}

void LateWork::place(const Placement& p) {
  if (!still_busy(proc_, *p.target)) return;
  const iovec piece{const_cast<char*>(p.payload.data()), p.payload.size()};
  (void)dma_write(*p.peer, p.host, &piece, 1, p.payload.size());
  (void)release_busy(proc_, *p.target);
}

template <typename Which>
void LateWork::place_if(Which which) {
  // Under the mutex, so that whoever finds nothing knows that nothing is on its way.
  std::lock_guard guard(mutex_);
  if (placements_.empty()) return;
  for (const Placement& placement : take(placements_, which)) place(placement);
}

void LateWork::place_of(const Qp& qp) {
  place_if([&](const Placement& p) { return p.qp == &qp; });
}

void LateWork::place_to(const QpShared& target) {
  place_if([&](const Placement& p) { return p.target == &target; });
}

void LateWork::place_everything() {
  place_if([](const Placement&) { return true; });
}

void LateWork::hide(Cq& cq, uint64_t due) {
  {
    std::lock_guard guard(mutex_);
    hidden_.push_back({due, &cq});
  }
  proc_.schedule(due);
}

void LateWork::forget(const Context& ctx) {
  std::lock_guard guard(mutex_);
  std::erase_if(packets_, [&](const auto& p) { return p->qp->ctx == &ctx; });
}

void LateWork::forget(const Cq& cq) {
  std::lock_guard guard(mutex_);
  std::erase_if(hidden_, [&](const Hidden& h) { return h.cq == &cq; });
}

bool LateWork::empty() {
  std::lock_guard guard(mutex_);
  return packets_.empty() && placements_.empty() && hidden_.empty();
}

uint64_t LateWork::next_due() {
  std::lock_guard guard(mutex_);
  uint64_t first = UINT64_MAX;
  for (const auto& p : packets_) first = std::min(first, p->due);
  for (const Placement& p : placements_) first = std::min(first, p.due);
  for (const Hidden& h : hidden_) first = std::min(first, h.due);
  return first;
}

void LateWork::run_due(uint64_t now) {
  place_if([&](const Placement& p) { return p.due <= now; });
  std::vector<std::unique_ptr<Packet>> ready;
  std::vector<Hidden> shown;
  {
    std::lock_guard guard(mutex_);
    ready = take(packets_, [&](const auto& p) { return p->due <= now; });
    shown = take(hidden_, [&](const Hidden& h) { return h.due <= now; });
  }
  run(ready);
  // The caller holds the registry: no completion queue goes away meanwhile.
  for (const Hidden& h : shown) notify_private(*h.cq, true);
}

}  // namespace softhca
