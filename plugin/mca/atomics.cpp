// Atomics: sequenced messages that the target executes, so that each runs exactly once even across
// a recovery. What the interface can ask and mend cannot do is refused with NOT_SUPPORTED, on which
// osc/rdma locks instead.
#include <optional>

#include "plugin/mca/module.h"
#include "plugin/mca/op_pool.h"
#include "plugin/mca/registration.h"
#include "plugin/mca/self_path.h"

namespace mend::mca {
namespace {

struct AtomicCall : ops::AmoCall {
  mca_btl_base_rdma_completion_fn_t callback;
  mca_btl_base_endpoint_t* endpoint;
  void* local_address;  // where the value before the execution goes; null: nowhere
  mca_btl_base_registration_handle_t* local_handle;
  void* context;
  void* data;
};

// Where the answer goes and whom to tell.
struct Completion {
  mca_btl_base_endpoint_t* endpoint;
  void* local_address;
  mca_btl_base_registration_handle_t* local_handle;
  mca_btl_base_rdma_completion_fn_t callback;
  void* context;
  void* data;
};

OpPool<AtomicCall>& pool() {
  static OpPool<AtomicCall> the_pool;
  return the_pool;
}

void on_done(ops::AmoCall& op) {
  auto* call = static_cast<AtomicCall*>(&op);
  const AtomicCall done = *call;
  pool().give(call);
  if (done.local_address != nullptr && !done.failed)
    std::memcpy(done.local_address, &done.result, done.width);
  done.endpoint->rdma_pending.fetch_sub(1, std::memory_order_relaxed);
  if (done.callback != nullptr && !done.endpoint->module->upper_closed) {
    done.callback(&done.endpoint->module->super, done.endpoint, done.local_address,
                  done.local_handle, done.context, done.data, status_of(done.failed));
  }
}

std::optional<ops::AmoOp> translate(mca_btl_base_atomic_op_t op) {
  switch (op) {
    case MCA_BTL_ATOMIC_ADD:
      return ops::AmoOp::Add;
    case MCA_BTL_ATOMIC_AND:
      return ops::AmoOp::And;
    case MCA_BTL_ATOMIC_OR:
      return ops::AmoOp::Or;
    case MCA_BTL_ATOMIC_XOR:
      return ops::AmoOp::Xor;
    case MCA_BTL_ATOMIC_SWAP:
      return ops::AmoOp::Swap;
    default:
      return std::nullopt;
  }
}

int submit(ops::AmoOp op, std::uint64_t remote_address,
           const mca_btl_base_registration_handle_t* remote_handle, std::uint64_t operand,
           std::uint64_t compare, int flags, const Completion& completion) {
  if ((flags & MCA_BTL_ATOMIC_FLAG_FLOAT) != 0) return OPAL_ERR_NOT_SUPPORTED;
  const std::uint8_t width = (flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0 ? 4 : 8;
  if (remote_address % width != 0) return OPAL_ERR_NOT_AVAILABLE;
  AtomicCall* call = pool().take();
  if (call == nullptr) return OPAL_ERR_OUT_OF_RESOURCE;  // no memory at all
  call->op = op;
  call->width = width;
  call->remote = remote_address;
  call->rkey = remote_handle == nullptr ? Rkey{} : first_remote_key(*remote_handle);
  call->operand = operand;
  call->compare = compare;
  call->result = 0;
  call->failed = false;
  call->done = &on_done;
  call->callback = completion.callback;
  call->endpoint = completion.endpoint;
  call->local_address = completion.local_address;
  call->local_handle = completion.local_handle;
  call->context = completion.context;
  call->data = completion.data;
  mca_btl_base_endpoint_t* endpoint = completion.endpoint;
  endpoint->rdma_pending.fetch_add(1, std::memory_order_relaxed);
  if (endpoint->channel != nullptr) {
    endpoint->channel->atomic(*call);
  } else {
    endpoint->module->self->atomic(*call);
  }
  return OPAL_SUCCESS;
}

}  // namespace

int atomic_op(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint,
              std::uint64_t remote_address, mca_btl_base_registration_handle_t* remote_handle,
              mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int /*order*/,
              mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const auto translated = translate(op);
  if (!translated) return OPAL_ERR_NOT_SUPPORTED;
  return submit(*translated, remote_address, remote_handle, operand, 0, flags,
                Completion{endpoint, nullptr, nullptr, callback, context, data});
}

int atomic_fop(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint,
               void* local_address, std::uint64_t remote_address,
               mca_btl_base_registration_handle_t* local_handle,
               mca_btl_base_registration_handle_t* remote_handle, mca_btl_base_atomic_op_t op,
               std::uint64_t operand, int flags, int /*order*/,
               mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const auto translated = translate(op);
  if (!translated) return OPAL_ERR_NOT_SUPPORTED;
  return submit(*translated, remote_address, remote_handle, operand, 0, flags,
                Completion{endpoint, local_address, local_handle, callback, context, data});
}

int atomic_cswap(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint,
                 void* local_address, std::uint64_t remote_address,
                 mca_btl_base_registration_handle_t* local_handle,
                 mca_btl_base_registration_handle_t* remote_handle, std::uint64_t compare,
                 std::uint64_t value, int flags, int /*order*/,
                 mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return submit(ops::AmoOp::Cswap, remote_address, remote_handle, value, compare, flags,
                Completion{endpoint, local_address, local_handle, callback, context, data});
}

}  // namespace mend::mca
