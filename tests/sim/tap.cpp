#include "tests/sim/tap.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ops/wr_id.h"

// The calls themselves, not what verbs.h wraps around them.
#undef ibv_query_port
#undef ibv_reg_mr

namespace mend::sim {
namespace {

Tap* active = nullptr;

std::vector<std::byte> gather(const ibv_send_wr& wr) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < wr.num_sge; ++i) {
    const auto* from = reinterpret_cast<const std::byte*>(wr.sg_list[i].addr);
    bytes.insert(bytes.end(), from, from + wr.sg_list[i].length);
  }
  return bytes;
}

Call call_of(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return Call::ToReset;
    case IBV_QPS_INIT:
      return Call::ToInit;
    case IBV_QPS_RTR:
      return Call::ToRtr;
    case IBV_QPS_RTS:
      return Call::ToRts;
    default:
      return Call::ToErr;
  }
}

void fill_plain_calls(verbs::Api& api) {
  api.library = "simulation";
  api.get_device_list = &::ibv_get_device_list;
  api.free_device_list = &::ibv_free_device_list;
  api.get_device_name = &::ibv_get_device_name;
  api.close_device = &::ibv_close_device;
  api.query_device = &::ibv_query_device;
  api.query_port = &::ibv_query_port;
  api.query_gid = &::ibv_query_gid;
  api.query_pkey = &::ibv_query_pkey;
  api.alloc_pd = &::ibv_alloc_pd;
  api.dealloc_pd = &::ibv_dealloc_pd;
  api.reg_mr = &::ibv_reg_mr;
  api.dereg_mr = &::ibv_dereg_mr;
  api.create_comp_channel = &::ibv_create_comp_channel;
  api.destroy_comp_channel = &::ibv_destroy_comp_channel;
  api.create_cq = &::ibv_create_cq;
  api.resize_cq = &::ibv_resize_cq;
  api.destroy_cq = &::ibv_destroy_cq;
  api.get_cq_event = &::ibv_get_cq_event;
  api.ack_cq_events = &::ibv_ack_cq_events;
  api.create_srq = &::ibv_create_srq;
  api.modify_srq = &::ibv_modify_srq;
  api.destroy_srq = &::ibv_destroy_srq;
  api.query_qp = &::ibv_query_qp;
  api.destroy_ah = &::ibv_destroy_ah;
  api.query_gid_ex = &::_ibv_query_gid_ex;
}

}  // namespace

Tap::Tap(softhca::sim::Fabric& fabric) : fabric_(fabric) {
  fill_plain_calls(api_);
  api_.open_device = &Tap::open_device;
  api_.create_qp = &Tap::create_qp;
  api_.modify_qp = &Tap::modify_qp;
  api_.destroy_qp = &Tap::destroy_qp;
  api_.create_ah = &Tap::create_ah;
  api_.get_async_event = &Tap::get_async_event;
  api_.ack_async_event = &Tap::ack_async_event;
  active = this;
}

Tap::~Tap() { active = nullptr; }

// --- calls ---

ibv_context* Tap::open_device(ibv_device*) {
  Tap& tap = *active;
  ibv_context* context = tap.fabric_.open();
  if (context == nullptr) return nullptr;
  tap.real_post_ = context->ops.post_send;
  tap.real_poll_ = context->ops.poll_cq;
  context->ops.post_send = &Tap::post_send;
  context->ops.poll_cq = &Tap::poll_cq;
  tap.node_of_[context] = tap.contexts_.size();
  tap.contexts_.push_back(context);
  tap.held_until_.push_back(0);
  return context;
}

ibv_qp* Tap::create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  Tap& tap = *active;
  const std::size_t node = tap.node_of(pd->context);
  const int refused = tap.on_call ? tap.on_call(node, Call::CreateQp) : 0;
  if (refused != 0) {
    errno = refused;
    return nullptr;
  }
  ibv_qp* qp = ::ibv_create_qp(pd, attr);
  if (qp == nullptr) return nullptr;
  if (attr->qp_type == IBV_QPT_RC) {
    QpInfo& info = tap.qps_[qp->qp_num];
    info.qp = qp;
    info.node = node;
    tap.data_cqs_.insert(attr->send_cq);
  } else {
    tap.datagram_qps_.insert(qp->qp_num);
  }
  return qp;
}

int Tap::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  Tap& tap = *active;
  if ((mask & IBV_QP_STATE) != 0 && tap.on_call) {
    if (const int refused = tap.on_call(tap.node_of(qp->context), call_of(attr->qp_state));
        refused != 0)
      return refused;
  }
  ibv_qp_attr changed = *attr;
  if (tap.wrap_psn_) {
    // The same number becomes the same other one at both ends.
    changed.sq_psn |= 0xfffff8;
    changed.rq_psn |= 0xfffff8;
  }
  const bool ends = (mask & IBV_QP_STATE) != 0 &&
                    (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET);
  const auto it = tap.qps_.find(qp->qp_num);
  const bool is_data = it != tap.qps_.end();
  if (ends && is_data) tap.learn(it->second);
  const int rc = ::ibv_modify_qp(qp, &changed, mask);
  if (rc == 0 && is_data && (mask & IBV_QP_DEST_QPN) != 0) {
    it->second.dest_qpn = attr->dest_qp_num;
    it->second.life = ++tap.lives_;
    tap.connected_.insert({qp->qp_num, attr->dest_qp_num});
  }
  return rc;
}

int Tap::destroy_qp(ibv_qp* qp) {
  const std::uint32_t qpn = qp->qp_num;
  const int rc = ::ibv_destroy_qp(qp);
  if (rc == 0) {
    active->qps_.erase(qpn);
    active->datagram_qps_.erase(qpn);
  }
  return rc;
}

ibv_ah* Tap::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Tap& tap = *active;
  const int refused = tap.on_call ? tap.on_call(tap.node_of(pd->context), Call::CreateAh) : 0;
  if (refused != 0) {
    errno = refused;
    return nullptr;
  }
  return ::ibv_create_ah(pd, attr);
}

// --- events ---

int Tap::get_async_event(ibv_context* context, ibv_async_event* event) {
  Tap& tap = *active;
  const std::size_t node = tap.node_of(context);
  const auto mine = std::find_if(tap.raised_.begin(), tap.raised_.end(),
                                 [node](const auto& entry) { return entry.first == node; });
  if (mine != tap.raised_.end()) {
    *event = mine->second;
    tap.raised_.erase(mine);
    tap.raised_unacked_.push_back(*event);
    return 0;
  }
  while (::ibv_get_async_event(context, event) == 0) {
    if (!tap.drop_event || !tap.drop_event(node, event->event_type)) return 0;
    ::ibv_ack_async_event(event);
  }
  return -1;
}

void Tap::ack_async_event(ibv_async_event* event) {
  auto& ours = active->raised_unacked_;
  const auto it = std::find_if(ours.begin(), ours.end(), [event](const ibv_async_event& entry) {
    return entry.event_type == event->event_type && entry.element.qp == event->element.qp;
  });
  if (it != ours.end())
    ours.erase(it);
  else
    ::ibv_ack_async_event(event);
}

void Tap::raise(std::size_t node, ibv_event_type type, ibv_qp* qp) {
  ibv_async_event event{};
  event.event_type = type;
  if (qp != nullptr)
    event.element.qp = qp;
  else
    event.element.port_num = 1;
  raised_.emplace_back(node, event);
  wake(node, contexts_[node]->async_fd);
}

// --- posting ---

int Tap::post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Tap& tap = *active;
  for (; wr != nullptr; wr = wr->next) {
    ibv_send_wr one = *wr;
    one.next = nullptr;
    const int rc = tap.qps_.contains(qp->qp_num) ? tap.post_connected(qp, one, bad)
                                                 : tap.post_datagram(qp, one, bad);
    if (rc != 0) {
      *bad = wr;
      return rc;
    }
  }
  return 0;
}

Request Tap::describe(ibv_qp* qp, const ibv_send_wr& wr) const {
  const QpInfo& info = qps_.at(qp->qp_num);
  Request request;
  request.node = info.node;
  request.qpn = qp->qp_num;
  request.wr_id = wr.wr_id;
  request.opcode = wr.opcode;
  if (const auto dest = qps_.find(info.dest_qpn); dest != qps_.end())
    request.peer = dest->second.node;
  else
    request.peer = info.node;
  for (int i = 0; i < wr.num_sge; ++i) request.length += wr.sg_list[i].length;
  if (wr.opcode == IBV_WR_SEND) {
    if (wr.num_sge > 0 && wr.sg_list[0].length >= sizeof(request.header))
      std::memcpy(&request.header, reinterpret_cast<const void*>(wr.sg_list[0].addr),
                  sizeof(request.header));
  } else {
    request.remote_addr = wr.wr.rdma.remote_addr;
  }
  return request;
}

int Tap::post_connected(ibv_qp* qp, ibv_send_wr& wr, ibv_send_wr** bad) {
  const Request request = describe(qp, wr);
  if (saw_early && is_early(request)) saw_early(request);
  const Fate fate = on_request ? on_request(request) : Fate::Pass;
  if (fate == Fate::Refuse) return EIO;
  if (fate == Fate::Pass) {
    if (qps_.at(qp->qp_num).deaf) wr.send_flags |= IBV_SEND_SIGNALED;
    return real_post_(qp, &wr, bad);
  }
  remember_ghost(qp);
  wr.send_flags |= IBV_SEND_SIGNALED;
  QpInfo& info = qps_.at(qp->qp_num);
  if (fate == Fate::LoseAck) {
    make_deaf(info);
  } else if (!info.deaf) {
    doomed_.insert({qp->qp_num, wr.wr_id});
    kill_qp(qp);
  }
  return real_post_(qp, &wr, bad);
}

void Tap::make_deaf(QpInfo& info) {
  constexpr std::uint64_t kLongest = 2'000'000;
  if (info.deaf) return;
  info.deaf = true;
  const std::uint64_t patience = 1 + (info.qp->qp_num * 7919ull + info.life * 104729ull) % kLongest;
  later(patience, [this, qpn = info.qp->qp_num, life = info.life] {
    const auto it = qps_.find(qpn);
    if (it != qps_.end() && it->second.life == life) kill_qp(it->second.qp);
  });
}

// The first request without acknowledgement is the cause; the rest was flushed as far as anybody
// can tell.
void Tap::learn(QpInfo& info) {
  bool first = true;
  for (ibv_wc& entry : info.withheld) {
    entry.status = std::exchange(first, false) ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR;
    released_[info.cq].push_back(entry);
  }
  info.withheld.clear();
  info.deaf = false;
}

bool Tap::is_early(const Request& request) const {
  const std::uint32_t dest = qps_.at(request.qpn).dest_qpn;
  // The beacon of a fence goes nowhere.
  if (ops::wr_kind(request.wr_id) == ops::WrKind::Flag && request.opcode == IBV_WR_SEND)
    return false;
  return qps_.contains(dest) && !connected_.contains({dest, request.qpn});
}

void Tap::remember_ghost(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const auto dest = qps_.find(qps_.at(qp->qp_num).dest_qpn);
  if (dest == qps_.end()) return;
  if (::ibv_query_qp(qp, &attr, IBV_QP_SQ_PSN | IBV_QP_DEST_QPN, &init) == 0)
    ghosts_.push_back({qp->qp_num, attr.dest_qp_num, attr.sq_psn, dest->second.life});
}

bool Tap::ghost_hits() const {
  return std::any_of(ghosts_.begin(), ghosts_.end(),
                     [this](const Ghost& ghost) { return accepts(ghost); });
}

bool Tap::accepts(const Ghost& ghost) const {
  const auto it = qps_.find(ghost.dest_qpn);
  if (it == qps_.end() || it->second.life == ghost.dest_life) return false;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  constexpr int kWanted = IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_DEST_QPN;
  if (::ibv_query_qp(it->second.qp, &attr, kWanted, &init) != 0) return false;
  return (attr.qp_state == IBV_QPS_RTR || attr.qp_state == IBV_QPS_RTS) &&
         attr.dest_qp_num == ghost.src_qpn && attr.rq_psn == ghost.psn;
}

int Tap::post_datagram(ibv_qp* qp, ibv_send_wr& wr, ibv_send_wr** bad) {
  constexpr std::uint32_t kNowhere = 0xfffffe;  // a queue pair that nobody has
  const std::vector<std::byte> bytes = gather(wr);
  const auto message = conn::parse(bytes);
  if (message && saw_message) saw_message(node_of(qp->context), *message);
  const UdFate fate =
      message && on_datagram ? on_datagram(node_of(qp->context), *message) : UdFate{};
  for (unsigned copy = 0; copy < fate.copies && fate.delay_ns != 0; ++copy)
    repeat_datagram(qp, wr, fate.delay_ns);
  for (unsigned copy = 1; copy < fate.copies && fate.delay_ns == 0; ++copy)
    repeat_datagram(qp, wr, 1);
  if (fate.again_after != 0) repeat_datagram(qp, wr, fate.again_after);
  if (fate.copies == 0 || fate.delay_ns != 0) wr.wr.ud.remote_qpn = kNowhere;
  return real_post_(qp, &wr, bad);
}

void Tap::repeat_datagram(ibv_qp* qp, const ibv_send_wr& wr, std::uint64_t delay) {
  const ibv_ah_attr path = softhca::ah_of(wr.wr.ud.ah)->attr;
  later(delay,
        [this, qp, qpn = qp->qp_num, path, again = ibv_send_wr(wr), bytes = gather(wr)]() mutable {
          if (!datagram_qps_.contains(qpn)) return;
          ibv_ah_attr attr = path;
          ibv_mr* mr = ::ibv_reg_mr(qp->pd, bytes.data(), bytes.size(), 0);
          ibv_ah* ah = ::ibv_create_ah(qp->pd, &attr);
          if (mr != nullptr && ah != nullptr) {
            ibv_sge sge{reinterpret_cast<std::uint64_t>(bytes.data()),
                        static_cast<std::uint32_t>(bytes.size()), mr->lkey};
            again.sg_list = &sge;
            again.num_sge = 1;
            again.send_flags = 0;
            again.wr.ud.ah = ah;
            ibv_send_wr* bad = nullptr;
            (void)real_post_(qp, &again, &bad);
          }
          if (ah != nullptr) ::ibv_destroy_ah(ah);
          if (mr != nullptr) ::ibv_dereg_mr(mr);
        });
}

// --- completions ---

int Tap::poll_cq(ibv_cq* cq, int count, ibv_wc* entries) {
  Tap& tap = *active;
  if (!tap.data_cqs_.contains(cq)) return tap.real_poll_(cq, count, entries);
  if (tap.held_until_[tap.node_of(cq->context)] > tap.fabric_.now()) {
    ++tap.held_polls_;
    return 0;
  }
  std::deque<ibv_wc>& first = tap.released_[cq];
  int got = 0;
  for (; got < count && !first.empty(); ++got) {
    entries[got] = first.front();
    first.pop_front();
  }
  while (got == 0) {
    const int polled = tap.real_poll_(cq, count, entries);
    if (polled <= 0) return polled;
    got = tap.filter(cq, entries, polled);  // 0: nothing that anybody may know of yet
  }
  return got;
}

// Takes out what a deaf queue pair does not learn, and gives a lost request its error.
int Tap::filter(ibv_cq* cq, ibv_wc* entries, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    ibv_wc entry = entries[i];
    const auto info = qps_.find(entry.qp_num);
    const bool is_send = ops::wr_kind(entry.wr_id) != ops::WrKind::Recv;
    if (info != qps_.end() && info->second.deaf && is_send) {
      info->second.cq = cq;
      info->second.withheld.push_back(entry);
      continue;
    }
    if (doomed_.erase({entry.qp_num, entry.wr_id}) != 0) entry.status = IBV_WC_RETRY_EXC_ERR;
    entries[kept++] = entry;
  }
  return kept;
}

// --- by themselves ---

std::vector<ibv_qp*> Tap::live_qps(std::size_t node) const {
  std::vector<std::pair<std::uint32_t, ibv_qp*>> found;
  for (const auto& [qpn, info] : qps_)
    if (info.node == node && info.dest_qpn != 0 &&
        (info.qp->state == IBV_QPS_RTR || info.qp->state == IBV_QPS_RTS))
      found.emplace_back(qpn, info.qp);
  std::sort(found.begin(), found.end());
  std::vector<ibv_qp*> out;
  for (const auto& [qpn, qp] : found) out.push_back(qp);
  return out;
}

ibv_qp* Tap::any_qp(std::size_t node) const {
  ibv_qp* found = nullptr;
  for (const auto& [qpn, info] : qps_)
    if (info.node == node && info.dest_qpn != 0 && (found == nullptr || qpn < found->qp_num))
      found = info.qp;
  return found;
}

ibv_qp* Tap::partner(const ibv_qp* qp) const {
  const auto mine = qps_.find(qp->qp_num);
  if (mine == qps_.end()) return nullptr;
  const auto theirs = qps_.find(mine->second.dest_qpn);
  if (theirs == qps_.end() || theirs->second.dest_qpn != qp->qp_num) return nullptr;
  return theirs->second.qp;
}

void Tap::kill_qp(ibv_qp* qp) {
  if (const auto it = qps_.find(qp->qp_num); it != qps_.end()) learn(it->second);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  (void)::ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

}  // namespace mend::sim
