// Puts and gets: accepted always, completed from progress() with success, never with 1 and never
// with an error (ob1 and osc/rdma stand neither), but for those to a process that was given up.
#include <array>

#include "plugin/mca/component.h"
#include "plugin/mca/module.h"
#include "plugin/mca/op_pool.h"
#include "plugin/mca/registration.h"
#include "plugin/mca/self_path.h"

namespace mend::mca {
namespace {

struct RdmaCall : ops::RdmaOp {
  mca_btl_base_rdma_completion_fn_t callback;
  mca_btl_base_endpoint_t* endpoint;
  mca_btl_base_registration_handle_t* local_handle;
  void* context;
  void* data;
};

OpPool<RdmaCall>& pool() {
  static OpPool<RdmaCall> the_pool;
  return the_pool;
}

void on_done(ops::RdmaOp& op) {
  auto* call = static_cast<RdmaCall*>(&op);
  const RdmaCall done = *call;
  pool().give(call);
  // Before the callback: it may flush.
  done.endpoint->rdma_pending.fetch_sub(1, std::memory_order_relaxed);
  if (done.callback != nullptr && !done.endpoint->module->upper_closed) {
    done.callback(&done.endpoint->module->super, done.endpoint, done.local, done.local_handle,
                  done.context, done.data, status_of(done.failed));
  }
}

}  // namespace

static int transfer(ops::RdmaOp::Dir dir, mca_btl_base_endpoint_t* endpoint, void* local_address,
                    std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
                    const mca_btl_base_registration_handle_t* remote_handle, std::size_t size,
                    mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) {
  RdmaCall* call = pool().take();
  if (call == nullptr) return OPAL_ERR_OUT_OF_RESOURCE;  // no memory at all
  call->dir = dir;
  call->local = local_address;
  call->local_keys = local_handle == nullptr ? nullptr : &local_keys_of(*local_handle);
  call->remote = remote_address;
  if (remote_handle != nullptr) copy_remote_keys(*remote_handle, call->remote_keys);
  call->length = size;
  call->failed = false;
  call->done = &on_done;
  call->callback = callback;
  call->endpoint = endpoint;
  call->local_handle = local_handle;
  call->context = context;
  call->data = data;
  endpoint->rdma_pending.fetch_add(1, std::memory_order_relaxed);
  if (endpoint->channel != nullptr && size > 0) [[likely]] {
    endpoint->channel->rdma(*call);
  } else {
    endpoint->module->self->rdma(*call);  // nothing to transfer completes there as well
  }
  return OPAL_SUCCESS;
}

int put(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, std::size_t size, int /*flags*/,
        int /*order*/, mca_btl_base_rdma_completion_fn_t callback, void* context,
        void* data) noexcept {
  return transfer(ops::RdmaOp::Dir::Put, endpoint, local_address, remote_address, local_handle,
                  remote_handle, size, callback, context, data);
}

int get(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, std::size_t size, int /*flags*/,
        int /*order*/, mca_btl_base_rdma_completion_fn_t callback, void* context,
        void* data) noexcept {
  return transfer(ops::RdmaOp::Dir::Get, endpoint, local_address, remote_address, local_handle,
                  remote_handle, size, callback, context, data);
}

// Waits until every put, get and atomic submitted before is complete; a null endpoint means all of
// this module. What is pending to a peer that was given up never completes and is not waited for.
int flush(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint) noexcept {
  const auto settled = [](const mca_btl_base_endpoint_t& e) {
    return e.rdma_pending.load(std::memory_order_acquire) == 0 || e.lost.load();
  };
  if (endpoint != nullptr) {
    while (!settled(*endpoint)) progress();
    return OPAL_SUCCESS;
  }
  const std::uint8_t rail = module_of(btl).rail.value;
  PeerTable& peers = runtime()->peers;
  for (bool all = false; !all;) {
    all = true;
    {
      const std::lock_guard lock(peers.mutex());
      peers.each([&](PeerEntry& entry) {
        const auto& e = entry.endpoints[rail];
        if (e && !settled(*e)) all = false;
      });
    }
    if (!all) progress();
  }
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
