// Api: every non-inline libibverbs call that mend makes, as a table of function pointers loaded at
// run time. It is the seam at which tests replace single calls, and the reason why nothing links
// against libibverbs.
//
// Inline functions of verbs.h that go through context->ops (ibv_post_send, ibv_poll_cq,
// ibv_post_srq_recv, ibv_req_notify_cq, ...) are used directly. Inlines that fall back to exported
// symbols (ibv_query_port, ibv_query_gid_ex, ibv_query_gid_table, ibv_create_qp_ex, ibv_reg_mr,
// ...) are never called: plugin/verbs/device.h has what replaces them.
//
// Thread contract: a loaded table is read-only and lives, like the library behind it, as long as
// the process.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "plugin/verbs/error.h"

namespace mend::verbs {

struct Api {
  std::string library;  // what was loaded, for messages

  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // The exported symbol fills only the prefix of ibv_port_attr that it knows; see query_port() in
  // device.h.
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_query_pkey) query_pkey = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;

  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;

  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_resize_cq) resize_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;

  decltype(&::ibv_create_srq) create_srq = nullptr;
  decltype(&::ibv_modify_srq) modify_srq = nullptr;
  decltype(&::ibv_destroy_srq) destroy_srq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_query_qp) query_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_create_ah) create_ah = nullptr;
  decltype(&::ibv_destroy_ah) destroy_ah = nullptr;

  // Absent in old libraries; null then.
  decltype(&::ibv_fork_init) fork_init = nullptr;
  decltype(&::ibv_is_fork_initialized) is_fork_initialized = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
};

// Loads `path` ("libibverbs.so.1", or the path of any library with the libibverbs ABI). The same
// path gives the same table. Error codes: ENOENT the library cannot be loaded, ENOSYS it lacks a
// call mend needs (message names it).
Result<const Api*> load(const std::string& path);

// Makes registered memory survive fork() in this process where the kernel does not do it by itself.
// Call it before the first registration. EINVAL from the library (memory is already registered by
// someone else) is reported, not fatal.
Result<void> make_fork_safe(const Api& api);

}  // namespace mend::verbs
