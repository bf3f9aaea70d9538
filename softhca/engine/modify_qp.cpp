// ibv_modify_qp: the rules decide whether a call is legal; here it takes effect.
#include <cerrno>
#include <mutex>

#include "softhca/engine/busy.h"
#include "softhca/engine/events.h"
#include "softhca/engine/gid_table.h"
#include "softhca/engine/qp.h"
#include "softhca/rules/modify_rules.h"
#include "softhca/rules/timers.h"

namespace softhca {

namespace {

ModifyCaps caps_of(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  const DeviceConf& dev = *qp.ctx->conf;
  const unsigned port = (mask & IBV_QP_PORT) != 0 ? attr.port_num : qp.attr.port_num;
  ModifyCaps caps;
  caps.port_count = static_cast<uint8_t>(dev.ports.size());
  caps.max_init_rd_atomic = static_cast<uint8_t>(std::min(dev.limits.max_rd_atomic, 255U));
  caps.max_resp_rd_atomic = caps.max_init_rd_atomic;
  if (port >= 1 && port <= dev.ports.size()) {
    const PortConf& conf = dev.ports[port - 1];
    caps.active_mtu = conf.active_mtu;
    caps.pkey_table_len = static_cast<uint16_t>(conf.pkeys.size());
    const GidTable gids(*qp.ctx, port);
    const bool hole = (mask & IBV_QP_AV) != 0 && gids.at(attr.ah_attr.grh.sgid_index) == nullptr;
    caps.gid_table_len = static_cast<uint16_t>(hole ? 0 : gids.size());
    caps.require_grh = conf.require_grh;
  }
  return caps;
}

uint32_t mtu_bytes(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

// Keeps what was set, for query_qp and for the data path.
void take_attributes(Qp& qp, const ibv_qp_attr& in, int mask) {
  ibv_qp_attr& a = qp.attr;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) a.pkey_index = in.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) a.port_num = in.port_num;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) a.qp_access_flags = in.qp_access_flags;
  if ((mask & IBV_QP_QKEY) != 0) a.qkey = in.qkey;
  if ((mask & IBV_QP_AV) != 0) {
    a.ah_attr = in.ah_attr;
    const GidTable gids(*qp.ctx, a.ah_attr.port_num);
    const GidConf* source = gids.at(a.ah_attr.grh.sgid_index);
    qp.source = source != nullptr ? source->raw : decltype(qp.source){};
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) a.path_mtu = in.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) a.dest_qp_num = in.dest_qp_num & kPsnMask;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) a.max_dest_rd_atomic = in.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) a.min_rnr_timer = in.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) a.timeout = in.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) a.retry_cnt = in.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) a.rnr_retry = in.rnr_retry;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) a.max_rd_atomic = in.max_rd_atomic;
  if ((mask & IBV_QP_ALT_PATH) != 0) {
    a.alt_ah_attr = in.alt_ah_attr;
    a.alt_pkey_index = in.alt_pkey_index;
    a.alt_port_num = in.alt_port_num;
    a.alt_timeout = in.alt_timeout;
  }
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0) a.path_mig_state = in.path_mig_state;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) {
    a.en_sqd_async_notify = in.en_sqd_async_notify;
    qp.drained_wanted = in.en_sqd_async_notify != 0;
  }
}

void publish_attributes(Qp& qp) {
  QpShared& sh = *qp.sh;
  const ibv_qp_attr& a = qp.attr;
  sh.port = a.port_num;
  sh.access = static_cast<uint32_t>(a.qp_access_flags);
  sh.qkey = a.qkey;
  sh.min_rnr_timer = a.min_rnr_timer;
  sh.max_dest_rd_atomic = a.max_dest_rd_atomic;
  sh.pkey_index = a.pkey_index;
  if (qp.type != IBV_QPT_UD) {
    sh.dest_qpn = a.dest_qp_num;
    if (a.path_mtu != 0) qp.mtu = mtu_bytes(a.path_mtu);
  } else if (a.port_num >= 1 && a.port_num <= qp.ctx->conf->ports.size()) {
    qp.mtu = mtu_bytes(qp.ctx->conf->ports[a.port_num - 1].active_mtu);
  }
  sh.mtu_bytes = qp.mtu;
}

// The fence: after this nothing of the old life is accepted, completed or written.
void reset_qp(Qp& qp) {
  Process& proc = *qp.proc;
  wait_for_busy(proc, *qp.sh);
  forget_flights(qp);
  qp.pending.clear();
  qp.next_try = UINT64_MAX;
  qp.target = nullptr;
  qp.peer = nullptr;
  qp.freed.store(qp.posted);
  qp.last_wqe_reported = false;
  qp.established_reported = false;
  if (proc.lock(proc.self())) {
    qp.sh->reserved = 0;
    qp.sh->events = 0;
    if (qp.srq == nullptr) {
      std::lock_guard guard(qp.rq.lock);
      qp.rq.sh->head.store(qp.rq.tail);
      qp.rq.head_seen = qp.rq.tail;
      qp.rq.polled.store(qp.rq.tail);
    }
    proc.unlock(proc.self());
  }
  // Completions that nobody has polled belong to the old life too.
  clean_cq(*qp.send_cq, qp.ex.qp_base.qp_num);
  if (qp.recv_cq != qp.send_cq) clean_cq(*qp.recv_cq, qp.ex.qp_base.qp_num);
  const ibv_qp_cap cap = qp.attr.cap;
  qp.attr = {};
  qp.attr.cap = cap;
}

// Publishes the new state together with what belongs to it, under the lock that deliveries hold.
int store_state(Qp& qp, ibv_qp_state to, const ibv_qp_attr& attr, int mask) {
  Process& proc = *qp.proc;
  if (!proc.lock(proc.self())) return EIO;
  // A peer may have moved the QP to ERR since the rules were asked.
  const auto now = static_cast<ibv_qp_state>(qp.sh->state.load());
  if (now == IBV_QPS_ERR && qp.state != IBV_QPS_ERR && to != IBV_QPS_ERR && to != IBV_QPS_RESET) {
    proc.unlock(proc.self());
    return EINVAL;
  }
  // To ERR nothing else changes, and other threads may be posting.
  if (to != IBV_QPS_ERR) publish_attributes(qp);
  if (to == IBV_QPS_INIT) qp.sh->talking = 0;
  if ((mask & IBV_QP_RQ_PSN) != 0) qp.sh->rx_psn = attr.rq_psn & kPsnMask;
  qp.sh->state.store(to, std::memory_order_seq_cst);
  kill_point(KillPoint::qp_state_changed);
  proc.unlock(proc.self());
  kill_point(KillPoint::qp_state_unlocked);
  return 0;
}

void after_transition(Qp& qp, ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET) reset_qp(qp);
  if (to == IBV_QPS_ERR && from != IBV_QPS_ERR) flush_qp(qp);
  if (to == IBV_QPS_RTS && (from == IBV_QPS_SQD || from == IBV_QPS_SQE)) {
    drive_pending(qp, qp.proc->now());
  }
  if (to == IBV_QPS_SQD && from == IBV_QPS_RTS && qp.drained_wanted && qp.pending.empty()) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_SQ_DRAINED;
    event.element.qp = base_of(&qp);
    raise_event(*qp.ctx, event);
  }
}

}  // namespace

int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Process& proc = *qp.proc;
  if (proc.inert()) return EIO;
  service_qp(qp);
  std::lock_guard guard(qp.sq_lock);
  const ibv_qp_state from = qp.state;
  const int rc = check_modify(qp.type, from, attr, mask, caps_of(qp, attr, mask));
  if (rc != 0) return rc;
  const ibv_qp_state to = modify_target(from, attr, mask);
  take_attributes(qp, attr, mask);
  if ((mask & IBV_QP_SQ_PSN) != 0) qp.sq_psn = attr.sq_psn & kPsnMask;
  if (const int stored = store_state(qp, to, attr, mask); stored != 0) return stored;
  qp.state = to;
  qp.ex.qp_base.state = to;
  // A peer that only sends to us must be watched too: it may die with our queue half written.
  Peer* peer = nullptr;
  if (to == IBV_QPS_RTR && qp.type != IBV_QPT_UD) {
    if (proc.find_qp(qp.attr.dest_qp_num, &peer) != nullptr) proc.watch(*peer);
  }
  after_transition(qp, from, to);
  return 0;
}

}  // namespace softhca
