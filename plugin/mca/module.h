// One BTL module per rail (device and port), and the endpoint: what Open MPI holds for a peer on a
// module.
//
// Thread contract: modules and endpoints are created and destroyed by the thread that adds and
// removes processes; their members are read-only in between, except for the counter. Invariant:
// `super` is the first member, so that Open MPI's pointer is ours.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/conn/transport.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

class SelfPath;

struct Module {
  mca_btl_base_module_t super{};
  RailId rail;
  conn::Transport* transport = nullptr;
  SelfPath* self = nullptr;
  // Fragments up to so many bytes come straight from this pool; 0: ask the transport.
  ops::FragPool* small = nullptr;
  std::size_t small_bytes = 0;
  std::uint64_t held_limit = 0;  // bytes held for a peer beyond which bulk data is refused
  mca_btl_base_module_error_cb_fn_t error_callback = nullptr;
  std::atomic<mca_btl_base_endpoint_t*> own_endpoint{nullptr};  // of this process itself
  // Set in finalize: the layers above may be unloaded by then, so nothing calls up any more.
  bool upper_closed = false;
};

inline Module& module_of(mca_btl_base_module_t* btl) { return *reinterpret_cast<Module*>(btl); }

// Fills in defaults and the function table; rail-dependent values follow in make_module().
void fill_module_template(mca_btl_base_module_t& module);

// Adapts a copy of the template to a rail: speed, latency, limits.
void fit_to_rail(Module& module, const conn::RailInfo& rail);

// The entry points, by source file; the signatures are Open MPI's (opal/mca/btl/btl.h).
// add_procs.cpp
int add_procs(mca_btl_base_module_t* btl, std::size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints, opal_bitmap_t* reachable) noexcept;
int del_procs(mca_btl_base_module_t* btl, std::size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints) noexcept;
// descriptors.cpp
mca_btl_base_descriptor_t* alloc(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
                                 std::uint8_t order, std::size_t size,
                                 std::uint32_t flags) noexcept;
int free_descriptor(mca_btl_base_module_t* btl, mca_btl_base_descriptor_t* descriptor) noexcept;
mca_btl_base_descriptor_t* prepare_src(mca_btl_base_module_t* btl,
                                       mca_btl_base_endpoint_t* endpoint,
                                       opal_convertor_t* convertor, std::uint8_t order,
                                       std::size_t reserve, std::size_t* size,
                                       std::uint32_t flags) noexcept;
// send.cpp
int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
         mca_btl_base_descriptor_t* descriptor, mca_btl_base_tag_t tag) noexcept;
int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
          opal_convertor_t* convertor, void* header, std::size_t header_size,
          std::size_t payload_size, std::uint8_t order, std::uint32_t flags, mca_btl_base_tag_t tag,
          mca_btl_base_descriptor_t** descriptor) noexcept;
// rdma.cpp
int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, std::size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept;
int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, std::size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept;
int flush(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint) noexcept;
// atomics.cpp
int atomic_op(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
              std::uint64_t remote_address, mca_btl_base_registration_handle_t* remote_handle,
              mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int order,
              mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept;
int atomic_fop(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
               std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
               mca_btl_base_registration_handle_t* remote_handle, mca_btl_base_atomic_op_t op,
               std::uint64_t operand, int flags, int order,
               mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept;
int atomic_cswap(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
                 mca_btl_base_registration_handle_t* remote_handle, std::uint64_t compare,
                 std::uint64_t value, int flags, int order,
                 mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept;
// registration.cpp
mca_btl_base_registration_handle_t* register_mem(mca_btl_base_module_t* btl,
                                                 mca_btl_base_endpoint_t* endpoint, void* base,
                                                 std::size_t size, std::uint32_t flags) noexcept;
int deregister_mem(mca_btl_base_module_t* btl, mca_btl_base_registration_handle_t* handle) noexcept;
// How a request ended. Open MPI 5.0 makes MPI_ERR_PROC_FAILED of UNREACH; with 4.1 the job has
// ended before anything fails.
inline int status_of(bool failed) { return failed ? OPAL_ERR_UNREACH : OPAL_SUCCESS; }
// module.cpp
int register_error(mca_btl_base_module_t* btl, mca_btl_base_module_error_cb_fn_t callback) noexcept;
void dump(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, int verbose) noexcept;
int finalize(mca_btl_base_module_t* btl) noexcept;

}  // namespace mend::mca

// The type is Open MPI's to name and ours to define: a peer as one module sees it. channel is null
// for this process itself.
struct mca_btl_base_endpoint_t {
  mend::mca::Module* module = nullptr;
  opal_proc_t* proc = nullptr;
  mend::conn::Peer* peer = nullptr;
  mend::ops::Channel* channel = nullptr;       // of this module's rail
  mend::ops::Channel* copied = nullptr;        // for what was copied from the user (descriptors.h)
  std::atomic<std::uint32_t> rdma_pending{0};  // puts, gets and atomics that are not complete
  std::atomic<bool> lost{false};               // given up: what is pending fails, now or later
};
