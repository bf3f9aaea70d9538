#include "softhca/engine/context.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/engine/events.h"
#include "softhca/engine/gid_table.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/qp.h"

namespace softhca {

namespace {

// Takes one of at most `limit`; false when all are taken.
bool take_one(std::atomic<uint32_t>& count, uint32_t limit) noexcept {
  if (count.fetch_add(1) < limit) return true;
  count.fetch_sub(1);
  return false;
}

bool has_contexts(Process& proc) {
  std::lock_guard guard(proc.registry());
  return !proc.contexts().empty();
}

bool same_gid(const GidConf& conf, const ibv_gid& gid) noexcept {
  return std::memcmp(conf.raw.data(), gid.raw, sizeof(gid.raw)) == 0;
}

}  // namespace

Context* open_context(Process& proc, Device& device) {
  auto ctx = std::unique_ptr<Context>(new (std::nothrow) Context);
  if (!ctx) {
    errno = ENOMEM;
    return nullptr;
  }
  ctx->device = &device;
  ctx->proc = &proc;
  ctx->conf = device.conf;
  ctx->wake = proc.take(Process::Pool::Wake);
  if (ctx->wake == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  const int rc = ctx->async.open(proc.segment().at<WakeAddr>(ctx->wake));
  if (rc != 0) {
    proc.give_back(Process::Pool::Wake, ctx->wake);
    errno = rc;
    return nullptr;
  }
  for (unsigned p = 0; p < ctx->conf->ports.size(); ++p) {
    const PortShared& port = proc.global()->ports[device.index][p];
    ctx->port_changes_seen[p] = port.changes.load();
    ctx->gid_changes_seen[p] = port.gid_changes.load();
  }
  {
    std::lock_guard guard(proc.registry());
    proc.contexts().push_back(ctx.get());
  }
  proc.start_device_thread();
  return ctx.release();
}

int close_context(Context* ctx) {
  Process& proc = *ctx->proc;
  if (!proc.inert()) {
    if (Injector* const faults = proc.injector(); faults != nullptr) faults->late().forget(*ctx);
    std::lock_guard guard(proc.registry());
    auto& all = proc.contexts();
    all.erase(std::remove(all.begin(), all.end(), ctx), all.end());
    ctx->async.withdraw();
    proc.give_back(Process::Pool::Wake, ctx->wake);
  }
  while (!proc.inert() && !has_contexts(proc)) {
    proc.rest_device_thread();
    if (!has_contexts(proc)) break;
    proc.start_device_thread();  // opened meanwhile, and perhaps closed again
  }
  delete ctx;
  return 0;
}

int query_device(Context& ctx, ibv_device_attr* attr) {
  const DeviceConf& conf = *ctx.conf;
  const Limits& lim = conf.limits;
  std::memset(attr, 0, sizeof(*attr));
  std::strncpy(attr->fw_ver, conf.fw_ver.c_str(), sizeof(attr->fw_ver) - 1);
  attr->node_guid = __builtin_bswap64(conf.node_guid);
  attr->sys_image_guid = attr->node_guid;
  attr->max_mr_size = lim.max_mr_size;
  attr->page_size_cap = 0xfffff000;
  attr->vendor_id = conf.vendor_id;
  attr->vendor_part_id = conf.vendor_part_id;
  attr->hw_ver = conf.hw_ver;
  attr->max_qp = static_cast<int>(lim.max_qp);
  attr->max_qp_wr = static_cast<int>(lim.max_qp_wr);
  attr->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                           IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD |
                           IBV_DEVICE_SHUTDOWN_PORT;
  attr->max_sge = static_cast<int>(lim.max_sge);
  attr->max_sge_rd = static_cast<int>(lim.max_sge_rd);
  attr->max_cq = static_cast<int>(lim.max_cq);
  attr->max_cqe = static_cast<int>(lim.max_cqe);
  attr->max_mr = static_cast<int>(lim.max_mr);
  attr->max_pd = static_cast<int>(lim.max_pd);
  attr->max_qp_rd_atom = static_cast<int>(lim.max_rd_atomic);
  attr->max_qp_init_rd_atom = static_cast<int>(lim.max_rd_atomic);
  attr->max_res_rd_atom = static_cast<int>(lim.max_rd_atomic * lim.max_qp);
  attr->atomic_cap = lim.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr->max_ah = static_cast<int>(lim.max_ah);
  attr->max_srq = static_cast<int>(lim.max_srq);
  attr->max_srq_wr = static_cast<int>(lim.max_srq == 0 ? 0 : lim.max_srq_wr);
  attr->max_srq_sge = static_cast<int>(lim.max_srq == 0 ? 0 : lim.max_srq_sge);
  attr->max_pkeys = static_cast<uint16_t>(lim.max_pkeys);
  attr->local_ca_ack_delay = 15;
  attr->phys_port_cnt = static_cast<uint8_t>(conf.ports.size());
  if (lim.max_srq != 0) attr->device_cap_flags |= IBV_DEVICE_SRQ_RESIZE;
  return 0;
}

bool port_is_down(const Process& proc, unsigned device, unsigned port) noexcept {
  return proc.global()->ports[device][port - 1].down.load(std::memory_order_relaxed) != 0;
}

bool port_works(const Process& proc, unsigned device, unsigned port) noexcept {
  const auto& devices = proc.fabric().conf.devices;
  return device < devices.size() && port >= 1 && port <= devices[device].ports.size() &&
         !port_is_down(proc, device, port);
}

int query_port(Context& ctx, unsigned port, ibv_port_attr* attr) {
  if (port == 0 || port > ctx.conf->ports.size()) return EINVAL;
  const PortConf& conf = ctx.conf->ports[port - 1];
  std::memset(attr, 0, sizeof(*attr));
  attr->state = IBV_PORT_ACTIVE;
  if (port_is_down(*ctx.proc, ctx.device->index, port)) {
    attr->state = conf.state == IBV_PORT_ACTIVE ? IBV_PORT_DOWN : conf.state;
  }
  attr->max_mtu = conf.max_mtu;
  attr->active_mtu = conf.active_mtu;
  attr->gid_tbl_len = static_cast<int>(GidTable(ctx, port).size());
  attr->port_cap_flags = IBV_PORT_CM_SUP;
  attr->max_msg_sz = ctx.limits().max_msg_size;
  attr->pkey_tbl_len = static_cast<uint16_t>(conf.pkeys.size());
  attr->lid = conf.lid;
  attr->sm_lid = conf.sm_lid;
  attr->lmc = conf.lmc;
  attr->max_vl_num = 1;
  attr->active_width = conf.active_width;
  attr->active_speed = conf.active_speed;
  attr->phys_state = attr->state == IBV_PORT_ACTIVE ? 5 : 3;  // LinkUp, Disabled
  attr->link_layer = conf.link_layer;
  if (conf.require_grh) attr->flags = IBV_QPF_GRH_REQUIRED;
  return 0;
}

Pd* alloc_pd(Context& ctx) {
  if (!take_one(ctx.pds, ctx.limits().max_pd)) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* pd = new (std::nothrow) Pd;
  if (pd == nullptr) {
    ctx.pds.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  pd->ctx = &ctx;
  pd->id = ctx.proc->next_id();
  pd->pd.context = &ctx.vctx.context;
  pd->pd.handle = pd->id;
  return pd;
}

int dealloc_pd(Pd* pd) {
  if (pd->users != 0) return EBUSY;
  pd->ctx->pds.fetch_sub(1);
  delete pd;
  return 0;
}

bool address_matches(const FabricConf& conf, const ibv_ah_attr& av, unsigned device,
                     unsigned port) {
  if (device >= conf.devices.size() || port == 0 || port > conf.devices[device].ports.size()) {
    return false;
  }
  const PortConf& target = conf.devices[device].ports[port - 1];
  if (av.is_global != 0) {
    return std::any_of(target.gids.begin(), target.gids.end(),
                       [&](const GidConf& gid) { return same_gid(gid, av.grh.dgid); });
  }
  // An Ethernet port that does not insist on GIDs takes what the QPN leads to it.
  if (target.link_layer == IBV_LINK_LAYER_ETHERNET) return !target.require_grh;
  const unsigned lids = 1U << target.lmc;
  return target.lid != 0 && av.dlid >= target.lid && av.dlid < target.lid + lids;
}

Ah* create_ah(Pd& pd, const ibv_ah_attr& attr) {
  Context& ctx = *pd.ctx;
  const auto& ports = ctx.conf->ports;
  const bool bad_port = attr.port_num == 0 || attr.port_num > ports.size();
  if (bad_port || (attr.is_global == 0 && ports[attr.port_num - 1].require_grh) ||
      (attr.is_global != 0 && GidTable(ctx, attr.port_num).at(attr.grh.sgid_index) == nullptr)) {
    errno = EINVAL;
    return nullptr;
  }
  if (!take_one(ctx.ahs, ctx.limits().max_ah)) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* ah = new (std::nothrow) Ah;
  if (ah == nullptr) {
    ctx.ahs.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  ah->owner = &pd;
  ah->attr = attr;
  ah->ah.context = &ctx.vctx.context;
  ah->ah.pd = &pd.pd;
  pd.users.fetch_add(1);
  return ah;
}

int destroy_ah(Ah* ah) {
  ah->owner->users.fetch_sub(1);
  ah->owner->ctx->ahs.fetch_sub(1);
  delete ah;
  return 0;
}

}  // namespace softhca
