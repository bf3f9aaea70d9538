// The C calls of FakeDevice and the table made of them.
#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/verbs/fake_parts.h"

namespace mend::test {

// The C side of the table. Every call locks, counts itself and may fail.
struct FakeCalls {
  using Lock = std::scoped_lock<std::mutex>;
  using Cq = FakeDevice::Cq;
  using Qp = FakeDevice::Qp;
  using Srq = FakeDevice::Srq;
  using Channel = FakeDevice::Channel;

  static ibv_device** get_device_list(int* count) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("get_device_list")) return nullptr;
    current_fake->list_[0] = &current_fake->device_;
    *count = 1;
    ++current_fake->live["list"];
    return current_fake->list_;
  }
  static void free_device_list(ibv_device**) {
    const Lock lock(current_fake->mutex_);
    --current_fake->live["list"];
  }
  static const char* get_device_name(ibv_device* device) { return device->name; }
  static ibv_context* open_device(ibv_device* device) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("open_device")) return nullptr;
    auto* context = new ibv_context{};
    context->device = device;
    context->async_fd = current_fake->async_pipe_[0];
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.post_srq_recv = post_srq_recv;
    ++current_fake->live["context"];
    return context;
  }
  static int close_device(ibv_context* context) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->live["pd"] + current_fake->live["cq"] > 0) return EBUSY;
    --current_fake->live["context"];
    delete context;
    return 0;
  }
  static int query_device(ibv_context*, ibv_device_attr* attr) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_device")) return code;
    *attr = current_fake->limits;
    return 0;
  }
  static int query_port(ibv_context*, std::uint8_t port, _compat_ibv_port_attr* attr) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_port")) return code;
    if (port < 1 || port > current_fake->limits.phys_port_cnt) return EINVAL;
    std::memcpy(static_cast<void*>(attr), &current_fake->port, sizeof(ibv_port_attr));
    return 0;
  }
  static int query_gid(ibv_context*, std::uint8_t, int index, ibv_gid* gid) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_gid")) return code;
    std::memset(gid, 0, sizeof(*gid));
    for (const auto& entry : current_fake->gids) {
      if (static_cast<int>(entry.index) == index) std::memcpy(gid->raw, entry.gid.data(), 16);
    }
    return 0;
  }
  static int query_gid_ex(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out,
                          std::uint32_t, std::size_t) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_gid_ex")) return code;
    for (const auto& entry : current_fake->gids) {
      if (entry.index != index) continue;
      std::memcpy(out->gid.raw, entry.gid.data(), 16);
      out->gid_index = index;
      out->port_num = port;
      out->gid_type = static_cast<std::uint32_t>(entry.type);
      return 0;
    }
    return ENODATA;
  }
  static int query_pkey(ibv_context*, std::uint8_t, int index, __be16* pkey) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_pkey")) return code;
    *pkey = htons(current_fake->pkeys.at(static_cast<std::size_t>(index)));
    return 0;
  }
  static int get_async_event(ibv_context*, ibv_async_event* event) {
    const Lock lock(current_fake->mutex_);
    if (!take(current_fake->async_pipe_[0]) || current_fake->events_.empty()) return -1;
    *event = current_fake->events_.front();
    current_fake->events_.pop_front();
    ++current_fake->events_unacked;
    return 0;
  }
  static void ack_async_event(ibv_async_event*) {
    const Lock lock(current_fake->mutex_);
    --current_fake->events_unacked;
  }

  static ibv_pd* alloc_pd(ibv_context* context) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("alloc_pd")) return nullptr;
    ++current_fake->live["pd"];
    return new ibv_pd{context, 0};
  }
  static int dealloc_pd(ibv_pd* pd) {
    const Lock lock(current_fake->mutex_);
    auto& live = current_fake->live;
    if (live["qp"] + live["srq"] + live["mr"] + live["ah"] > 0) return EBUSY;
    --live["pd"];
    delete pd;
    return 0;
  }
  static ibv_mr* reg_mr(ibv_pd* pd, void* base, std::size_t bytes, int) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("reg_mr")) return nullptr;
    static std::uint32_t key = 0;
    auto* mr = new ibv_mr{};
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = base;
    mr->length = bytes;
    mr->lkey = mr->rkey = ++key;
    ++current_fake->live["mr"];
    return mr;
  }
  static int dereg_mr(ibv_mr* mr) {
    const Lock lock(current_fake->mutex_);
    --current_fake->live["mr"];
    delete mr;
    return 0;
  }

  static ibv_comp_channel* create_comp_channel(ibv_context* context) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("create_comp_channel")) return nullptr;
    auto* made = new Channel;
    int fds[2];
    set_nonblocking_pipe(fds);
    fcntl(fds[0], F_SETFL, 0);
    made->channel.context = context;
    made->channel.fd = fds[0];
    made->write_fd = fds[1];
    ++current_fake->live["channel"];
    return &made->channel;
  }
  static int destroy_comp_channel(ibv_comp_channel* channel) {
    const Lock lock(current_fake->mutex_);
    if (channel->refcnt > 0) return EBUSY;
    auto* made = reinterpret_cast<Channel*>(channel);
    close(made->channel.fd);
    close(made->write_fd);
    --current_fake->live["channel"];
    delete made;
    return 0;
  }
  static ibv_cq* create_cq(ibv_context* context, int cqe, void*, ibv_comp_channel* channel, int) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("create_cq")) return nullptr;
    if (cqe < 1 || cqe > current_fake->limits.max_cqe) {
      errno = EINVAL;
      return nullptr;
    }
    auto* made = new Cq;
    made->cq.context = context;
    made->cq.channel = channel;
    made->cq.cqe = cqe;
    if (channel != nullptr) ++channel->refcnt;
    ++current_fake->live["cq"];
    return &made->cq;
  }
  static int resize_cq(ibv_cq* cq, int cqe) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("resize_cq")) return code;
    if (!current_fake->can_resize) return ENOSYS;
    if (cqe > current_fake->limits.max_cqe) return EINVAL;
    cq->cqe = cqe;
    return 0;
  }
  static int destroy_cq(ibv_cq* cq) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Cq*>(cq);
    if (made->users > 0) return EBUSY;
    if (cq->channel != nullptr) --cq->channel->refcnt;
    --current_fake->live["cq"];
    delete made;
    return 0;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Channel*>(channel);
    if (!take(channel->fd) || made->ready.empty()) return -1;
    *cq = made->ready.front();
    *context = nullptr;
    made->ready.pop_front();
    ++current_fake->events_unacked;
    return 0;
  }
  static void ack_cq_events(ibv_cq*, unsigned count) {
    const Lock lock(current_fake->mutex_);
    current_fake->events_unacked -= static_cast<int>(count);
  }
  static int req_notify_cq(ibv_cq* cq, int) {
    const Lock lock(current_fake->mutex_);
    reinterpret_cast<Cq*>(cq)->armed = true;
    return 0;
  }
  static int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
    const Lock lock(current_fake->mutex_);
    auto& entries = reinterpret_cast<Cq*>(cq)->entries;
    int taken = 0;
    for (; taken < count && !entries.empty(); ++taken) {
      out[taken] = entries.front();
      entries.pop_front();
      Qp* qp = current_fake->find(out[taken].qp_num);
      if (qp != nullptr && out[taken].opcode == IBV_WC_SEND && qp->sends_unpolled > 0) {
        --qp->sends_unpolled;
      }
    }
    return taken;
  }

  static ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("create_srq")) return nullptr;
    if (init->attr.max_wr > static_cast<std::uint32_t>(current_fake->limits.max_srq_wr)) {
      errno = EINVAL;
      return nullptr;
    }
    auto* made = new Srq;
    made->srq.context = pd->context;
    made->srq.pd = pd;
    made->max_wr = init->attr.max_wr;
    ++current_fake->live["srq"];
    return &made->srq;
  }
  static int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("modify_srq")) return code;
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
      if (!current_fake->can_resize) return EINVAL;
      reinterpret_cast<Srq*>(srq)->max_wr = attr->max_wr;
    }
    return 0;
  }
  static int destroy_srq(ibv_srq* srq) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Srq*>(srq);
    if (made->users > 0) return EBUSY;
    --current_fake->live["srq"];
    delete made;
    return 0;
  }

  static ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("create_qp")) return nullptr;
    const auto max_wr = static_cast<std::uint32_t>(current_fake->limits.max_qp_wr);
    if (init->cap.max_inline_data > current_fake->inline_limit || init->cap.max_send_wr > max_wr) {
      errno = EINVAL;
      return nullptr;
    }
    if (init->cap.max_send_wr > current_fake->wr_limit ||
        current_fake->live["qp"] >= current_fake->limits.max_qp) {
      errno = ENOMEM;
      return nullptr;
    }
    auto* made = new Qp;
    made->cap = init->cap;
    made->qp.context = pd->context;
    made->qp.pd = pd;
    made->qp.send_cq = init->send_cq;
    made->qp.recv_cq = init->recv_cq;
    made->qp.srq = init->srq;
    made->qp.qp_type = init->qp_type;
    if (current_fake->qpns_to_reuse.empty()) {
      made->qp.qp_num = current_fake->next_qpn++;
    } else {
      made->qp.qp_num = current_fake->qpns_to_reuse.back();
      current_fake->qpns_to_reuse.pop_back();
    }
    ++reinterpret_cast<Cq*>(init->send_cq)->users;
    ++reinterpret_cast<Cq*>(init->recv_cq)->users;
    if (init->srq != nullptr) ++reinterpret_cast<Srq*>(init->srq)->users;
    current_fake->qps_[made->qp.qp_num] = made;
    ++current_fake->live["qp"];
    return &made->qp;
  }
  static int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Qp*>(qp);
    current_fake->modifies.push_back({qp->qp_num, made->state, attr->qp_state, mask, *attr});
    if (const int code = current_fake->failure("modify_qp")) return code;
    made->state = attr->qp_state;
    if ((mask & IBV_QP_DEST_QPN) != 0) made->dest = attr->dest_qp_num;
    if (attr->qp_state == IBV_QPS_ERR) current_fake->flush(*made);
    if (attr->qp_state == IBV_QPS_RESET) reset(*made);
    return 0;
  }
  static void reset(Qp& qp) {
    qp.posted.clear();
    qp.stuck_sends.clear();
    qp.sends_unpolled = 0;
    if (current_fake->reset_keeps_completions) return;
    for (ibv_cq* cq : {qp.qp.send_cq, qp.qp.recv_cq}) {
      auto& entries = reinterpret_cast<Cq*>(cq)->entries;
      entries.erase(std::remove_if(entries.begin(), entries.end(),
                                   [&](const ibv_wc& wc) { return wc.qp_num == qp.qp.qp_num; }),
                    entries.end());
    }
  }
  static int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("query_qp")) return code;
    attr->qp_state = current_fake->stuck_state ? IBV_QPS_INIT : reinterpret_cast<Qp*>(qp)->state;
    return 0;
  }
  static int destroy_qp(ibv_qp* qp) {
    const Lock lock(current_fake->mutex_);
    if (const int code = current_fake->failure("destroy_qp")) return code;
    auto* made = reinterpret_cast<Qp*>(qp);
    --reinterpret_cast<Cq*>(qp->send_cq)->users;
    --reinterpret_cast<Cq*>(qp->recv_cq)->users;
    if (qp->srq != nullptr) --reinterpret_cast<Srq*>(qp->srq)->users;
    current_fake->qps_.erase(qp->qp_num);
    --current_fake->live["qp"];
    delete made;
    return 0;
  }
  static ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr*) {
    const Lock lock(current_fake->mutex_);
    if (current_fake->should_fail("create_ah")) return nullptr;
    ++current_fake->live["ah"];
    return new ibv_ah{pd->context, pd, 0};
  }
  static int destroy_ah(ibv_ah* ah) {
    const Lock lock(current_fake->mutex_);
    --current_fake->live["ah"];
    delete ah;
    return 0;
  }
  static int fork_init() {
    const Lock lock(current_fake->mutex_);
    return current_fake->failure("fork_init");
  }

  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Qp*>(qp);
    *bad = wr;
    if (const int code = current_fake->failure("post_send")) return code;
    if (made->state != IBV_QPS_RTS && made->state != IBV_QPS_ERR) return EINVAL;
    if (made->sends_unpolled >= made->cap.max_send_wr) return ENOMEM;
    ibv_wc wc{};
    wc.wr_id = wr->wr_id;
    wc.qp_num = qp->qp_num;
    wc.opcode = IBV_WC_SEND;
    if (made->state == IBV_QPS_ERR) {
      wc.status = IBV_WC_WR_FLUSH_ERR;
      if (current_fake->loses_beacons) return 0;
    } else {
      const bool datagram = qp->qp_type == IBV_QPT_UD;
      Qp* to = current_fake->find(datagram ? wr->wr.ud.remote_qpn : made->dest);
      const bool reachable = to != nullptr && to->state != IBV_QPS_RESET &&
                             to->state != IBV_QPS_ERR && to->state != IBV_QPS_INIT;
      const void* data = wr->num_sge > 0 ? reinterpret_cast<void*>(wr->sg_list[0].addr) : nullptr;
      const std::uint32_t bytes = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
      if (reachable && !(datagram && current_fake->datagrams_lost)) {
        current_fake->deliver(*to, data, bytes, qp->qp_num, datagram);
      } else if (!datagram) {
        made->stuck_sends.push_back(wr->wr_id);
        ++made->sends_unpolled;
        return 0;
      }
      wc.status = IBV_WC_SUCCESS;
    }
    ++made->sends_unpolled;
    current_fake->complete(reinterpret_cast<Cq*>(qp->send_cq), wc);
    return 0;
  }
  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Qp*>(qp);
    *bad = wr;
    if (const int code = current_fake->failure("post_recv")) return code;
    if (made->state == IBV_QPS_RESET) return EINVAL;
    if (made->posted.size() >= made->cap.max_recv_wr) return ENOMEM;
    made->posted.emplace_back(wr->wr_id, *wr->sg_list);
    if (made->state == IBV_QPS_ERR) current_fake->flush(*made);
    return 0;
  }
  static int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    const Lock lock(current_fake->mutex_);
    auto* made = reinterpret_cast<Srq*>(srq);
    for (; wr != nullptr; wr = wr->next) {
      *bad = wr;
      if (const int code = current_fake->failure("post_srq_recv")) return code;
      if (made->posted.size() >= made->max_wr) return ENOMEM;
      made->posted.emplace_back(wr->wr_id, *wr->sg_list);
    }
    return 0;
  }
};

void fill_fake_table(verbs::Api& api) {
  api.library = "fake";
  api.get_device_list = FakeCalls::get_device_list;
  api.free_device_list = FakeCalls::free_device_list;
  api.get_device_name = FakeCalls::get_device_name;
  api.open_device = FakeCalls::open_device;
  api.close_device = FakeCalls::close_device;
  api.query_device = FakeCalls::query_device;
  api.query_port = FakeCalls::query_port;
  api.query_gid = FakeCalls::query_gid;
  api.query_gid_ex = FakeCalls::query_gid_ex;
  api.query_pkey = FakeCalls::query_pkey;
  api.get_async_event = FakeCalls::get_async_event;
  api.ack_async_event = FakeCalls::ack_async_event;
  api.alloc_pd = FakeCalls::alloc_pd;
  api.dealloc_pd = FakeCalls::dealloc_pd;
  api.reg_mr = FakeCalls::reg_mr;
  api.dereg_mr = FakeCalls::dereg_mr;
  api.create_comp_channel = FakeCalls::create_comp_channel;
  api.destroy_comp_channel = FakeCalls::destroy_comp_channel;
  api.create_cq = FakeCalls::create_cq;
  api.resize_cq = FakeCalls::resize_cq;
  api.destroy_cq = FakeCalls::destroy_cq;
  api.get_cq_event = FakeCalls::get_cq_event;
  api.ack_cq_events = FakeCalls::ack_cq_events;
  api.create_srq = FakeCalls::create_srq;
  api.modify_srq = FakeCalls::modify_srq;
  api.destroy_srq = FakeCalls::destroy_srq;
  api.create_qp = FakeCalls::create_qp;
  api.modify_qp = FakeCalls::modify_qp;
  api.query_qp = FakeCalls::query_qp;
  api.destroy_qp = FakeCalls::destroy_qp;
  api.create_ah = FakeCalls::create_ah;
  api.destroy_ah = FakeCalls::destroy_ah;
  api.fork_init = FakeCalls::fork_init;
}

}  // namespace mend::test
