// The operation tables of a context: the entries that the inline functions of infiniband/verbs.h
// call directly.
#include "softhca/api/operations.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "softhca/api/extended.h"
#include "softhca/engine/cq.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/recv_queue.h"

namespace softhca {

namespace {

int op_poll_cq(ibv_cq* cq, int entries, ibv_wc* wc) { return poll_cq(cq_of(cq), entries, wc); }

int op_req_notify_cq(ibv_cq* cq, int solicited) { return req_notify_cq(cq_of(cq), solicited != 0); }

int op_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_send(*qp_of(qp), wr, bad);
}

int op_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_recv(*qp_of(qp), wr, bad);
}

int op_post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return srq_of(srq)->rq.post(wr, bad);
}

int op_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
  ibv_port_attr full{};
  const int rc = query_port(*context_of(context), port, &full);
  if (rc == 0) {
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof(full)));
  }
  return rc;
}

int op_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex full{};
  const int rc = query_device(*context_of(context), &full.orig_attr);
  if (rc == 0) {
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof(full)));
  }
  return rc;
}

int op_get_srq_num(ibv_srq* srq, uint32_t* number) {
  *number = srq_of(srq)->number;
  return 0;
}

ibv_mw* op_alloc_mw(ibv_pd*, ibv_mw_type) {
  errno = EOPNOTSUPP;
  return nullptr;
}

int op_bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EOPNOTSUPP; }
int op_dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }

}  // namespace

std::unique_ptr<Device> make_device(const DeviceConf& conf, unsigned index) {
  auto device = std::make_unique<Device>();
  device->index = index;
  device->conf = &conf;
  ibv_device& dev = device->dev;
  dev.node_type = IBV_NODE_CA;
  dev.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(dev.name, sizeof(dev.name), "%s", conf.name.c_str());
  std::snprintf(dev.dev_name, sizeof(dev.dev_name), "uverbs%u", index);
  std::snprintf(dev.dev_path, sizeof(dev.dev_path), "/sys/class/infiniband_verbs/uverbs%u", index);
  std::snprintf(dev.ibdev_path, sizeof(dev.ibdev_path), "/sys/class/infiniband/%s", dev.name);
  return device;
}

void fill_operations(Context& ctx) {
  verbs_context& v = ctx.vctx;
  v.sz = sizeof(verbs_context);
  v.query_port = op_query_port;
  v.query_device_ex = op_query_device_ex;
  v.get_srq_num = op_get_srq_num;
  v.create_cq_ex = ext_create_cq;
  v.create_qp_ex = ext_create_qp;
  v.create_srq_ex = ext_create_srq;
  ibv_context& c = v.context;
  c.device = &ctx.device->dev;
  c.ops.poll_cq = op_poll_cq;
  c.ops.req_notify_cq = op_req_notify_cq;
  c.ops.post_send = op_post_send;
  c.ops.post_recv = op_post_recv;
  c.ops.post_srq_recv = op_post_srq_recv;
  c.ops.alloc_mw = op_alloc_mw;
  c.ops.bind_mw = op_bind_mw;
  c.ops.dealloc_mw = op_dealloc_mw;
  c.cmd_fd = -1;
  c.async_fd = ctx.async.fd();
  c.num_comp_vectors = 1;
  pthread_mutex_init(&c.mutex, nullptr);
  c.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

}  // namespace softhca
