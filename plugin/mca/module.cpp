#include "plugin/mca/module.h"

#include <algorithm>

#include "plugin/mca/component.h"
#include "plugin/mca/registration.h"

namespace mend::mca {

void fill_module_template(mca_btl_base_module_t& m) {
  m.btl_component = &mca_btl_mend_component;
  m.btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
  m.btl_eager_limit = 4 * 1024;
  m.btl_rndv_eager_limit = 4 * 1024;
  m.btl_max_send_size = conn::Params{}.max_send_size;
  m.btl_rdma_pipeline_send_length = 32 * 1024;
  m.btl_rdma_pipeline_frag_size = 4 * 1024 * 1024;
  m.btl_min_rdma_pipeline_size = 64 * 1024;
  m.btl_latency = 0;  // both are the rail's unless the user sets them
  m.btl_bandwidth = 0;
  m.btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET |
                MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_FLUSH |
                compat::kExtraFlags;
  // Minimum and maximum are left out: the interface does not say whether an operand is signed.
  m.btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND |
                       MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR |
                       MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_CSWAP |
                       MCA_BTL_ATOMIC_SUPPORTS_32BIT;
  m.btl_registration_handle_size = sizeof(mca_btl_base_registration_handle_t);
  m.btl_get_limit = SIZE_MAX;
  m.btl_put_limit = SIZE_MAX;
  m.btl_get_alignment = 0;
  m.btl_put_alignment = 0;
  m.btl_get_local_registration_threshold = 0;
  m.btl_put_local_registration_threshold = 0;
  m.btl_add_procs = add_procs;
  m.btl_del_procs = del_procs;
  m.btl_finalize = finalize;
  m.btl_alloc = alloc;
  m.btl_free = free_descriptor;
  m.btl_prepare_src = prepare_src;
  m.btl_send = send;
  m.btl_sendi = sendi;
  m.btl_put = put;
  m.btl_get = get;
  m.btl_dump = dump;
  m.btl_atomic_op = atomic_op;
  m.btl_atomic_fop = atomic_fop;
  m.btl_atomic_cswap = atomic_cswap;
  m.btl_register_mem = register_mem;
  m.btl_deregister_mem = deregister_mem;
  m.btl_register_error = register_error;
  m.btl_flush = flush;
}

void fit_to_rail(Module& module, const conn::RailInfo& rail) {
  mca_btl_base_module_t& m = module.super;
  if (m.btl_bandwidth == 0) m.btl_bandwidth = std::max<std::uint32_t>(rail.speed_mbps, 1);
  if (m.btl_latency == 0) m.btl_latency = std::max<std::uint32_t>(rail.latency_us, 1);
  // A put that is sent inline needs no local registration.
  m.btl_put_local_registration_threshold = rail.max_inline_payload;
}

int register_error(mca_btl_base_module_t* btl,
                   mca_btl_base_module_error_cb_fn_t callback) noexcept {
  module_of(btl).error_callback = callback;
  return OPAL_SUCCESS;
}

// Open MPI calls this for a debugger or a stuck job: say what is known about the peer.
void dump(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, int) noexcept {
  const Module& module = module_of(btl);
  const conn::RailInfo& rail = module.transport->rails()[module.rail.value];
  if (endpoint == nullptr) {
    opal_output(0, "mend: rail %s, %u Mb/s", rail.name.c_str(), rail.speed_mbps);
    return;
  }
  if (endpoint->channel == nullptr) {
    opal_output(0, "mend: rail %s, this process itself, %u RDMA operations pending",
                rail.name.c_str(), endpoint->rdma_pending.load());
    return;
  }
  const ops::TxRxProgress at = endpoint->channel->progress_now();
  opal_output(0,
              "mend: rail %s, peer %s, epoch %u, next to send %u, acknowledged %u, next expected "
              "%u, %llu bytes held, %u RDMA operations pending%s",
              rail.name.c_str(), OPAL_NAME_PRINT(endpoint->proc->proc_name),
              endpoint->channel->epoch().value, at.tx_next.value, at.tx_acked.value,
              at.rx_next.value, static_cast<unsigned long long>(endpoint->channel->held_bytes()),
              endpoint->rdma_pending.load(), endpoint->lost ? ", given up" : "");
}

int finalize(mca_btl_base_module_t* btl) noexcept {
  finalize_module(module_of(btl));
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
