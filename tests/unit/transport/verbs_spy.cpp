#include "tests/unit/transport/verbs_spy.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "ops/wr_id.h"
#include "plugin/verbs/api.h"

namespace mend::test {
namespace {

struct Keys {
  std::uint32_t lkey, rkey;
};

struct Spy {
  verbs::Api real;                // the device's own calls
  verbs::Api* patched = nullptr;  // the table that everybody uses
  std::mutex mutex;               // guards what follows
  LiveObjects live;
  std::uint64_t created = 0;
  std::set<ibv_qp*> qps;
  std::map<ibv_mr*, Keys> true_keys;  // of spoiled registrations
  const void* spoil_base = nullptr;
  int spoil_left = 0, spoiled = 0;
  int (*poll_cq)(ibv_cq*, int, ibv_wc*) = nullptr;
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  std::atomic<int> swallow_left{0}, swallowed{0};
  std::atomic<std::uint64_t> datagrams{0};
  std::map<ibv_context*, std::vector<ibv_async_event>> injected;
  std::set<std::pair<ibv_context*, std::uint32_t>> hidden_gids;
  int hidden = 0;
  int unacked = 0;  // injected events that were handed out
};
Spy* spy = nullptr;

template <typename T>
T* count(std::int64_t LiveObjects::*what, T* made) {
  if (made != nullptr) {
    const std::lock_guard guard(spy->mutex);
    ++(spy->live.*what);
  }
  return made;
}
int uncount(std::int64_t LiveObjects::*what, int rc) {
  if (rc == 0) {
    const std::lock_guard guard(spy->mutex);
    --(spy->live.*what);
  }
  return rc;
}

bool is_rdma_success(const ibv_wc& wc) {
  return wc.status == IBV_WC_SUCCESS && ops::wr_kind(wc.wr_id) == ops::WrKind::Log &&
         (wc.opcode == IBV_WC_RDMA_WRITE || wc.opcode == IBV_WC_RDMA_READ);
}

int poll_and_swallow(ibv_cq* cq, int entries, ibv_wc* wc) {
  const int got = spy->poll_cq(cq, entries, wc);
  if (got <= 0 || spy->swallow_left.load() == 0) return got;
  const auto end = std::remove_if(wc, wc + got, [](const ibv_wc& one) {
    if (spy->swallow_left.load() == 0 || !is_rdma_success(one)) return false;
    --spy->swallow_left;
    ++spy->swallowed;
    return true;
  });
  return static_cast<int>(end - wc);
}

int post_and_count(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  if (qp->qp_type == IBV_QPT_UD) ++spy->datagrams;
  return spy->post_send(qp, wr, bad);
}

// Kinds that the device itself does not raise in these tests.
bool is_injected(ibv_event_type type) {
  return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_GID_CHANGE ||
         type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
}

int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                 ibv_gid_entry* entry, std::uint32_t flags, std::size_t size) {
  const int rc = spy->real.query_gid_ex(context, port, index, entry, flags, size);
  const std::lock_guard guard(spy->mutex);
  if (rc != 0 || spy->hidden_gids.count({context, index}) == 0) return rc;
  ++spy->hidden;
  entry->gid = ibv_gid{};
  return 0;
}

// Injected events come first; they concern port 1, the device or a queue.
int get_async_event(ibv_context* context, ibv_async_event* event) {
  {
    const std::lock_guard guard(spy->mutex);
    auto& waiting = spy->injected[context];
    if (!waiting.empty()) {
      *event = waiting.front();
      waiting.erase(waiting.begin());
      ++spy->unacked;
      return 0;
    }
  }
  return spy->real.get_async_event(context, event);
}

void ack_async_event(ibv_async_event* event) {
  {
    const std::lock_guard guard(spy->mutex);
    if (is_injected(event->event_type) && spy->unacked > 0) {
      --spy->unacked;
      return;
    }
  }
  spy->real.ack_async_event(event);
}

ibv_context* open_device(ibv_device* device) {
  ibv_context* context = count(&LiveObjects::devices, spy->real.open_device(device));
  if (context == nullptr) return nullptr;
  const std::lock_guard guard(spy->mutex);
  spy->poll_cq = context->ops.poll_cq;
  context->ops.poll_cq = poll_and_swallow;
  spy->post_send = context->ops.post_send;
  context->ops.post_send = post_and_count;
  return context;
}

ibv_mr* reg_mr(ibv_pd* pd, void* base, std::size_t bytes, int access) {
  ibv_mr* mr = count(&LiveObjects::mrs, spy->real.reg_mr(pd, base, bytes, access));
  const std::lock_guard guard(spy->mutex);
  if (mr == nullptr || base != spy->spoil_base || spy->spoil_left == 0) return mr;
  --spy->spoil_left;
  ++spy->spoiled;
  spy->true_keys[mr] = Keys{mr->lkey, mr->rkey};
  mr->lkey ^= 0x00abcd00u;
  mr->rkey ^= 0x00abcd00u;
  return mr;
}

int dereg_mr(ibv_mr* mr) {
  {
    const std::lock_guard guard(spy->mutex);
    if (const auto it = spy->true_keys.find(mr); it != spy->true_keys.end()) {
      mr->lkey = it->second.lkey;
      mr->rkey = it->second.rkey;
      spy->true_keys.erase(it);
    }
  }
  return uncount(&LiveObjects::mrs, spy->real.dereg_mr(mr));
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp* qp = count(&LiveObjects::qps, spy->real.create_qp(pd, attr));
  const std::lock_guard guard(spy->mutex);
  if (qp == nullptr) return nullptr;
  spy->qps.insert(qp);
  if (qp->qp_type == IBV_QPT_RC) ++spy->created;
  return qp;
}

int destroy_qp(ibv_qp* qp) {
  {
    const std::lock_guard guard(spy->mutex);
    spy->qps.erase(qp);
  }
  return uncount(&LiveObjects::qps, spy->real.destroy_qp(qp));
}

void patch(verbs::Api& api) {
  api.open_device = open_device;
  api.close_device = [](ibv_context* c) {
    return uncount(&LiveObjects::devices, spy->real.close_device(c));
  };
  api.get_async_event = get_async_event;
  api.ack_async_event = ack_async_event;
  api.query_gid_ex = query_gid_ex;
  api.alloc_pd = [](ibv_context* c) { return count(&LiveObjects::pds, spy->real.alloc_pd(c)); };
  api.dealloc_pd = [](ibv_pd* pd) { return uncount(&LiveObjects::pds, spy->real.dealloc_pd(pd)); };
  api.reg_mr = reg_mr;
  api.dereg_mr = dereg_mr;
  api.create_comp_channel = [](ibv_context* c) {
    return count(&LiveObjects::channels, spy->real.create_comp_channel(c));
  };
  api.destroy_comp_channel = [](ibv_comp_channel* c) {
    return uncount(&LiveObjects::channels, spy->real.destroy_comp_channel(c));
  };
  api.create_cq = [](ibv_context* c, int depth, void* arg, ibv_comp_channel* channel, int vector) {
    return count(&LiveObjects::cqs, spy->real.create_cq(c, depth, arg, channel, vector));
  };
  api.destroy_cq = [](ibv_cq* cq) { return uncount(&LiveObjects::cqs, spy->real.destroy_cq(cq)); };
  api.create_srq = [](ibv_pd* pd, ibv_srq_init_attr* attr) {
    return count(&LiveObjects::srqs, spy->real.create_srq(pd, attr));
  };
  api.destroy_srq = [](ibv_srq* srq) {
    return uncount(&LiveObjects::srqs, spy->real.destroy_srq(srq));
  };
  api.create_qp = create_qp;
  api.destroy_qp = destroy_qp;
  api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
    return count(&LiveObjects::ahs, spy->real.create_ah(pd, attr));
  };
  api.destroy_ah = [](ibv_ah* ah) { return uncount(&LiveObjects::ahs, spy->real.destroy_ah(ah)); };
}

}  // namespace

std::string LiveObjects::text() const {
  return "devices " + std::to_string(devices) + ", pds " + std::to_string(pds) + ", mrs " +
         std::to_string(mrs) + ", channels " + std::to_string(channels) + ", cqs " +
         std::to_string(cqs) + ", srqs " + std::to_string(srqs) + ", qps " + std::to_string(qps) +
         ", ahs " + std::to_string(ahs);
}

VerbsSpy::VerbsSpy() {
  auto api = verbs::load(MEND_SOFTHCA_PATH);
  if (!api) throw std::runtime_error(api.error().message);
  spy = new Spy;
  // The registry of loaded tables owns a table that is not const; only mend sees it as such.
  spy->patched = const_cast<verbs::Api*>(*api);
  spy->real = *spy->patched;
  patch(*spy->patched);
}

VerbsSpy::~VerbsSpy() {
  *spy->patched = spy->real;
  delete spy;
  spy = nullptr;
}

LiveObjects VerbsSpy::live() const {
  const std::lock_guard guard(spy->mutex);
  return spy->live;
}

std::uint64_t VerbsSpy::created_qps() const {
  const std::lock_guard guard(spy->mutex);
  return spy->created;
}

void VerbsSpy::spoil(const void* base, int times) {
  const std::lock_guard guard(spy->mutex);
  spy->spoil_base = base;
  spy->spoil_left = times;
}

int VerbsSpy::spoiled() const {
  const std::lock_guard guard(spy->mutex);
  return spy->spoiled;
}

std::vector<ibv_qp*> VerbsSpy::in_rts(ibv_qp_type type) const {
  const std::lock_guard guard(spy->mutex);
  std::vector<ibv_qp*> found;
  for (ibv_qp* qp : spy->qps) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    if (qp->qp_type == type && spy->real.query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 &&
        attr.qp_state == IBV_QPS_RTS)
      found.push_back(qp);
  }
  return found;
}

// Under the lock that destroy_qp takes first: it cannot go meanwhile.
bool VerbsSpy::break_qp(ibv_qp* qp) {
  const std::lock_guard guard(spy->mutex);
  if (spy->qps.count(qp) == 0) return false;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return spy->real.modify_qp(qp, &attr, IBV_QP_STATE) == 0;
}

// The queue pair that wakes the reader is one in INIT: nobody misses it, its error is its owner's
// LAST_WQE_REACHED.
void VerbsSpy::inject(ibv_event_type type, ibv_context* context, const ibv_qp* about) {
  const std::lock_guard guard(spy->mutex);
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  if (type == IBV_EVENT_CQ_ERR) event.element.cq = about->recv_cq;
  if (type == IBV_EVENT_SRQ_ERR) event.element.srq = about->srq;
  spy->injected[context].push_back(event);
  ibv_qp_init_attr attr{};
  for (ibv_qp* qp : spy->qps) {
    ibv_qp_attr now{};
    if (qp->context != context || qp->srq == nullptr ||
        spy->real.query_qp(qp, &now, IBV_QP_STATE, &attr) != 0 || now.qp_state != IBV_QPS_INIT)
      continue;
    now.qp_state = IBV_QPS_ERR;
    spy->real.modify_qp(qp, &now, IBV_QP_STATE);
    return;
  }
}

int VerbsSpy::injected_left() const {
  const std::lock_guard guard(spy->mutex);
  std::size_t left = 0;
  for (const auto& [context, events] : spy->injected) left += events.size();
  return static_cast<int>(left);
}

int VerbsSpy::query(ibv_qp* qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) const {
  const std::lock_guard guard(spy->mutex);
  if (spy->qps.count(qp) == 0) return ENOENT;
  return spy->real.query_qp(qp, &attr, 0x1fffff, &init);
}

void VerbsSpy::hide_gid(ibv_context* context, std::uint32_t index) {
  const std::lock_guard guard(spy->mutex);
  spy->hidden_gids.insert({context, index});
}

int VerbsSpy::hidden() const {
  const std::lock_guard guard(spy->mutex);
  return spy->hidden;
}

std::uint64_t VerbsSpy::datagrams() const { return spy->datagrams; }

void VerbsSpy::swallow(int times) { spy->swallow_left = times; }
int VerbsSpy::swallowed() const { return spy->swallowed; }

}  // namespace mend::test
