#include "tests/unit/ops/fake_verbs.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace mend::test {
namespace {

FakeFabric& fabric_of(ibv_context* context) {
  return *static_cast<FakeFabric*>(static_cast<void*>(context));
}

void push(FakeCq& cq, const ibv_wc& wc, FakeQp* retire, std::uint32_t position) {
  cq.entries.push_back(wc);
  cq.retire.push_back(retire);
  cq.retire_to.push_back(position);
}

ibv_wc make_wc(const FakeQp& qp, std::uint64_t wr_id, ibv_wc_status status) {
  ibv_wc wc;
  std::memset(&wc, 0xa5, sizeof(wc));  // only what is set below may be used
  wc.wr_id = wr_id;
  wc.status = status;
  wc.qp_num = qp.base.qp_num;
  wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 77;
  return wc;
}

void complete(FakeQp& qp, const FakeWr& wr, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && (wr.wr.send_flags & IBV_SEND_SIGNALED) == 0) {
    return;
  }
  ibv_wc wc = make_wc(qp, wr.wr.wr_id, status);
  push(*qp.cq, wc, &qp, wr.position);
}

const std::byte* source(const FakeWr& wr) {
  return wr.inline_data.empty() ? reinterpret_cast<const std::byte*>(wr.sge.addr)
                                : wr.inline_data.data();
}

std::uint32_t length_of(const FakeWr& wr) { return wr.wr.num_sge == 0 ? 0 : wr.sge.length; }

bool execute_at_peer(FakeQp& qp, const FakeWr& wr) {
  FakeQp& peer = *qp.peer;
  const std::uint32_t length = length_of(wr);
  if (wr.wr.opcode == IBV_WR_SEND) {
    if (peer.srq->posted.empty()) {
      peer.srq->refused.insert(&qp);
      return false;  // RNR: tried again when a receive is posted
    }
    const ibv_recv_wr recv = peer.srq->posted.front();
    const ibv_sge sge = peer.srq->sges.front();
    peer.srq->posted.pop_front();
    peer.srq->sges.pop_front();
    std::memcpy(reinterpret_cast<void*>(sge.addr), source(wr), length);
    ibv_wc wc = make_wc(peer, recv.wr_id, IBV_WC_SUCCESS);
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = length;
    push(*peer.cq, wc, nullptr, 0);
    return true;
  }
  void* remote = reinterpret_cast<void*>(wr.wr.wr.rdma.remote_addr);
  if (wr.wr.opcode == IBV_WR_RDMA_WRITE) {
    if (length == 8 && wr.wr.wr.rdma.remote_addr % 8 == 0) {  // as hardware: not torn
      std::uint64_t word = 0;
      std::memcpy(&word, source(wr), sizeof(word));
      __atomic_store_n(static_cast<std::uint64_t*>(remote), word, __ATOMIC_RELEASE);
    } else if (length != 0) {
      std::memcpy(remote, source(wr), length);
    }
  } else if (length != 0) {
    std::memcpy(reinterpret_cast<void*>(wr.sge.addr), remote, length);
  }
  return true;
}

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  auto& qp = *reinterpret_cast<FakeQp*>(base);
  FakeFabric& fabric = fabric_of(base->context);
  const std::lock_guard guard(fabric.lock);
  *bad = wr;
  if (fabric.on_post) {
    fabric.on_post();
  }
  if (qp.refuse_post != 0) {
    return qp.refuse_post;
  }
  if (qp.reset) {
    return EINVAL;
  }
  if (qp.posted - qp.retired >= qp.sq_capacity) {
    return ENOMEM;
  }
  FakeWr copy;
  copy.wr = *wr;
  copy.position = qp.posted;
  if (wr->num_sge > 0) {
    copy.sge = *wr->sg_list;
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
      if (copy.sge.length > qp.max_inline) {
        return EINVAL;
      }
      const auto* from = reinterpret_cast<const std::byte*>(copy.sge.addr);
      copy.inline_data.assign(from, from + copy.sge.length);
    }
  }
  ++qp.posted;
  qp.peak = std::max<std::uint64_t>(qp.peak, qp.posted - qp.retired);
  if (qp.error) {
    complete(qp, copy, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  qp.waiting.push_back(std::move(copy));
  if (qp.automatic) {
    fabric.execute_all(qp);
  }
  return 0;
}

int post_receive(FakeFabric& fabric, FakeSrq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (srq.posted.size() >= srq.capacity) {
    *bad = wr;
    return ENOMEM;
  }
  srq.posted.push_back(*wr);
  srq.sges.push_back(*wr->sg_list);
  // As a device's RNR timer would: whoever met an empty queue tries again.
  for (FakeQp* refused : std::exchange(srq.refused, {})) {
    if (refused->automatic) fabric.execute_all(*refused);
  }
  return 0;
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  FakeFabric& fabric = fabric_of(base->context);
  const std::lock_guard guard(fabric.lock);
  return post_receive(fabric, *reinterpret_cast<FakeSrq*>(base), wr, bad);
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  FakeFabric& fabric = fabric_of(base->context);
  const std::lock_guard guard(fabric.lock);
  return post_receive(fabric, *reinterpret_cast<FakeQp*>(base)->srq, wr, bad);
}

int poll_cq(ibv_cq* base, int limit, ibv_wc* out) {
  const std::lock_guard guard(fabric_of(base->context).lock);
  auto& cq = *reinterpret_cast<FakeCq*>(base);
  int count = 0;
  while (count < limit && !cq.entries.empty()) {
    out[count++] = cq.entries.front();
    if (FakeQp* qp = cq.retire.front(); qp != nullptr) {
      qp->retired = cq.retire_to.front() + 1;
    }
    cq.entries.pop_front();
    cq.retire.pop_front();
    cq.retire_to.pop_front();
  }
  return count;
}

}  // namespace

FakeFabric::FakeFabric() {
  context.ops.post_send = post_send;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.post_recv = post_recv;
  context.ops.poll_cq = poll_cq;
}

void FakeFabric::init(FakeCq& cq) { cq.base.context = &context; }

void FakeFabric::init(FakeSrq& srq) { srq.base.context = &context; }

void FakeFabric::init(FakeQp& qp, FakeCq& cq, FakeSrq& srq, std::uint32_t sq_capacity,
                      std::uint32_t max_inline) {
  qp.base.context = &context;
  qp.base.qp_num = next_qpn++;
  qp.cq = &cq;
  qp.srq = &srq;
  qp.sq_capacity = sq_capacity;
  qp.max_inline = max_inline;
}

void FakeFabric::connect(FakeQp& a, FakeQp& b) {
  a.peer = &b;
  b.peer = &a;
}

bool FakeFabric::execute_one(FakeQp& qp) {
  const std::lock_guard guard(lock);
  if (qp.waiting.empty() || qp.error || qp.reset || qp.peer->reset || qp.peer->error) {
    return false;
  }
  if (!execute_at_peer(qp, qp.waiting.front())) {
    return false;
  }
  FakeWr done = std::move(qp.waiting.front());
  qp.waiting.pop_front();
  if (qp.hold_completions || !qp.executed.empty()) {  // completions never overtake each other
    qp.executed.push_back(std::move(done));
  } else {
    complete(qp, done, IBV_WC_SUCCESS);
  }
  return true;
}

void FakeFabric::execute_all(FakeQp& qp) {
  while (execute_one(qp)) {
  }
}

void FakeFabric::complete_held(FakeQp& qp, std::size_t count) {
  const std::lock_guard guard(lock);
  for (; count > 0 && !qp.executed.empty(); --count) {
    complete(qp, qp.executed.front(), IBV_WC_SUCCESS);
    qp.executed.pop_front();
  }
}

void FakeFabric::fail(FakeQp& qp, ibv_wc_status status) {
  const std::lock_guard guard(lock);
  if (!qp.error) {
    if (!qp.executed.empty()) {
      complete(qp, qp.executed.front(), status);
      qp.executed.pop_front();
    } else if (!qp.waiting.empty()) {
      complete(qp, qp.waiting.front(), status);
      qp.waiting.pop_front();
    }
  }
  flush(qp);
  flush(*qp.peer);
}

void FakeFabric::flush(FakeQp& qp) {
  const std::lock_guard guard(lock);
  qp.error = true;
  for (std::deque<FakeWr>* queue : {&qp.executed, &qp.waiting}) {
    for (const FakeWr& wr : *queue) {
      complete(qp, wr, IBV_WC_WR_FLUSH_ERR);
    }
    queue->clear();
  }
}

void FakeFabric::reset(FakeQp& qp) {
  const std::lock_guard guard(lock);
  qp.reset = true;
  qp.error = true;
  qp.waiting.clear();
  qp.executed.clear();
}

}  // namespace mend::test
