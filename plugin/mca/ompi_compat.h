// The only place that includes Open MPI's headers and that knows how its major versions differ
// (4.1: BTL 3.1.0, 5.0 and later: BTL 3.3.0). Everything else of plugin/mca is the same source for
// all.
//
// Thread contract: as Open MPI's own calls, from application threads only, but for the handler of
// watch_ends().
// A dozen OPAL headers have no extern "C" guard and are reached from btl.h, so all of them stand in
// one block, with the system headers they use included before it.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#ifndef _Static_assert
#define _Static_assert static_assert  // 6.0 uses the C keyword at file scope
#endif
#include "opal_config.h"
// Within one block, Open MPI's own opening and closing is not needed; 5.0's opal/util/event.h opens
// twice and closes once.
#pragma push_macro("BEGIN_C_DECLS")
#pragma push_macro("END_C_DECLS")
#undef BEGIN_C_DECLS
#undef END_C_DECLS
#define BEGIN_C_DECLS
#define END_C_DECLS
extern "C" {
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"
#include "opal/util/show_help.h"
#if BTL_VERSION >= 330
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
#endif
}
#pragma pop_macro("END_C_DECLS")
#pragma pop_macro("BEGIN_C_DECLS")
#if BTL_VERSION < 310
#error "mend needs the BTL interface 3.1.0 (Open MPI 4.1) or later"
#endif

namespace mend::mca::compat {

#if BTL_VERSION >= 330
constexpr bool kReceiveNamesEndpoint = true;
// osc/rdma of 5.0 takes only BTLs whose completion means remote visibility, which mend's does.
constexpr std::uint32_t kExtraFlags = MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION;
#else
constexpr bool kReceiveNamesEndpoint = false;
constexpr std::uint32_t kExtraFlags = 0;
#endif

// 6.0 has the help texts of its own parts compiled in and reads no files any more.
constexpr bool kReadsHelpFiles = OPAL_MAJOR_VERSION < 6;

// Hands a received message to whoever registered `tag`. endpoint may be null where
// kReceiveNamesEndpoint is false.
inline void receive_upcall(mca_btl_base_module_t* module, mca_btl_base_endpoint_t* endpoint,
                           std::uint8_t tag, std::span<const std::byte> payload) {
  const auto& trigger = mca_btl_base_active_message_trigger[tag];
  if (trigger.cbfunc == nullptr) return;  // nobody has that tag (any more)
  mca_btl_base_segment_t segment;
  segment.seg_addr.pval = const_cast<std::byte*>(payload.data());
  segment.seg_len = payload.size();
#if BTL_VERSION >= 330
  mca_btl_base_receive_descriptor_t descriptor{};
  descriptor.endpoint = endpoint;
  descriptor.des_segments = &segment;
  descriptor.des_segment_count = 1;
  descriptor.tag = tag;
  descriptor.cbdata = trigger.cbdata;
  trigger.cbfunc(module, &descriptor);
#else
  (void)endpoint;
  // Receivers read the segments and nothing else, so nothing else is set up for each message.
  alignas(mca_btl_base_descriptor_t) std::byte raw[sizeof(mca_btl_base_descriptor_t)];
  auto* descriptor = reinterpret_cast<mca_btl_base_descriptor_t*>(raw);
  descriptor->des_segments = &segment;
  descriptor->des_segment_count = 1;
  trigger.cbfunc(module, tag, descriptor, trigger.cbdata);
#endif
}

// `kTake` as the receive callback of this Open MPI. For tests, which play the upper layer.
template <void (*kTake)(mca_btl_base_module_t*, std::uint8_t tag,
                        std::span<const mca_btl_base_segment_t>, void* context)>
mca_btl_base_module_recv_cb_fn_t receive_callback() {
#if BTL_VERSION >= 330
  return [](mca_btl_base_module_t* btl, const mca_btl_base_receive_descriptor_t* d) {
    kTake(btl, d->tag, {d->des_segments, d->des_segment_count}, d->cbdata);
  };
#else
  return [](mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* d,
            void* context) {
    kTake(btl, tag, {d->des_segments, d->des_segment_count}, context);
  };
#endif
}

inline int publish_modex(const mca_base_component_t& component, std::span<const std::byte> data) {
  int rc = OPAL_ERROR;
  auto* bytes = const_cast<std::byte*>(data.data());
#if BTL_VERSION >= 330
  OPAL_MODEX_SEND(rc, PMIX_GLOBAL, &component, bytes, data.size());
#else
  OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &component, bytes, static_cast<std::int32_t>(data.size()));
#endif
  return rc;
}

struct Lent {
  opal_process_name_t name;
  std::vector<std::byte> bytes;
};
inline std::vector<Lent> g_lent;  // what lend_modex() was given

// From now on fetch_modex() finds these bytes for the process `name`. For tests, after be_alone().
inline void lend_modex(const opal_process_name_t& name, std::span<const std::byte> data) {
  g_lent.push_back({name, {data.begin(), data.end()}});
}

// A copy of them; null if there are none. The caller frees it with free().
inline std::byte* fetch_lent(const opal_process_name_t& name, std::size_t& size) {
  for (const Lent& lent : g_lent) {
    if (lent.name.jobid != name.jobid || lent.name.vpid != name.vpid) continue;
    size = lent.bytes.size();
    auto* copy = static_cast<std::byte*>(std::malloc(size));
    std::memcpy(copy, lent.bytes.data(), size);
    return copy;
  }
  return nullptr;
}

// The bytes that `proc` published for this component; null if none. The caller frees them with
// free().
inline std::byte* fetch_modex(const mca_base_component_t& component, opal_proc_t& proc,
                              std::size_t& size) {
  int rc = OPAL_ERROR;
  std::uint8_t* bytes = nullptr;
  size = 0;
  if (std::byte* lent = fetch_lent(proc.proc_name, size)) return lent;
  OPAL_MODEX_RECV(rc, &component, &proc.proc_name, &bytes, &size);
  if (rc == OPAL_SUCCESS && bytes != nullptr) return reinterpret_cast<std::byte*>(bytes);
  std::free(bytes);
  return nullptr;
}

// A runtime for a process without mpirun: what it publishes goes nowhere, nobody else is known but
// by lend_modex(). For tests.
inline bool be_alone() {
#if BTL_VERSION >= 330
  opal_pmix_setup_nspace_tracker();
  static pmix_proc_t me;
  const pmix_status_t joined = PMIx_Init(&me, nullptr, 0);
  return joined == PMIX_SUCCESS || joined == PMIX_ERR_UNREACH;  // no server: a singleton
#else
  opal_pmix.put = [](opal_pmix_scope_t, opal_value_t*) -> int { return OPAL_SUCCESS; };
  opal_pmix.get = [](const opal_process_name_t*, const char*, opal_list_t*, opal_value_t**) -> int {
    return OPAL_ERR_NOT_FOUND;
  };
  return true;
#endif
}

// Number of processes of this job; 0 where the runtime does not say.
inline std::uint32_t job_size() {
  int rc = OPAL_ERROR;
  std::uint32_t size = 0;
  std::uint32_t* out = &size;
  opal_process_name_t job{OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
#if BTL_VERSION >= 330
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_JOB_SIZE, &job, &out, PMIX_UINT32);
#else
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_JOB_SIZE, &job, &out, OPAL_UINT32);
#endif
  return rc == OPAL_SUCCESS ? size : 0;
}

// One value that the runtime's local daemon keeps about `proc`; empty if it keeps none.
inline std::string daemon_says(const char* key, opal_process_name_t proc) {
  int rc = OPAL_ERROR;
  char* value = nullptr;
#if BTL_VERSION >= 330
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, key, &proc, &value, PMIX_STRING);
#else
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, key, &proc, &value, OPAL_STRING);
#endif
  std::string text = rc == OPAL_SUCCESS && value != nullptr ? value : "";
  std::free(value);
  return text;
}

// The CPUs that mpirun has bound the ranks of this node to, "0-3,8", by local rank; empty texts
// where it bound nobody, an empty list where the runtime does not know.
inline std::vector<std::string> local_bindings() {
#if BTL_VERSION >= 330
  const char* peers_key = PMIX_LOCAL_PEERS;
  const char* cpus_key = PMIX_CPUSET;
#else
  const char* peers_key = OPAL_PMIX_LOCAL_PEERS;
  const char* cpus_key = OPAL_PMIX_CPUSET;
#endif
  const opal_jobid_t job = OPAL_PROC_MY_NAME.jobid;
  const std::string ranks = daemon_says(peers_key, opal_process_name_t{job, OPAL_VPID_WILDCARD});
  std::vector<std::string> bindings;
  for (const char* at = ranks.c_str(); *at != '\0';) {
    char* end = nullptr;
    const auto rank = static_cast<opal_vpid_t>(std::strtoul(at, &end, 10));
    if (end == at) break;
    bindings.push_back(daemon_says(cpus_key, opal_process_name_t{job, rank}));
    at = *end == ',' ? end + 1 : end;
  }
  return bindings;
}

// The number of this job among those of one mpirun if MPI_Comm_spawn started it: its processes are
// told where their parents listen.
inline std::optional<std::uint32_t> spawned_job() {
  if (std::getenv("OMPI_PARENT_PORT") == nullptr) return std::nullopt;
  return OPAL_PROC_MY_NAME.jobid & 0xffffU;
}

// Whether the application may go on when a process is lost (mpirun --with-ft ulfm, 5.0): it learns
// of it by MPI_ERR_PROC_FAILED. Else a loss ends the job.
inline bool job_survives_losses() {
#if BTL_VERSION >= 330
  const int index = mca_base_var_find("ompi", "mpi", "ft", "enable");
  const bool* enabled = nullptr;
  return index >= 0 && mca_base_var_get_value(index, &enabled, nullptr, nullptr) == OPAL_SUCCESS &&
         enabled != nullptr && *enabled;
#else
  return false;
#endif
}

#if BTL_VERSION >= 330
inline pmix_status_t g_ends_watched = PMIX_ERROR;  // the handler's number, or none

template <void (*kEnded)(const opal_process_name_t&) noexcept>
void on_process_end(std::size_t /*handler*/, pmix_status_t /*status*/,
                    const pmix_proc_t* /*source*/, pmix_info_t* info, std::size_t count,
                    pmix_info_t* /*results*/, std::size_t /*result_count*/,
                    pmix_event_notification_cbfunc_fn_t next, void* chain) noexcept {
  for (const pmix_info_t& one : std::span(info, count)) {
    if (one.value.type != PMIX_PROC || !PMIX_CHECK_KEY(&one, PMIX_EVENT_AFFECTED_PROC)) continue;
    int rc = OPAL_ERROR;
    opal_process_name_t name{};
    OPAL_PMIX_CONVERT_PROCT(rc, &name, one.value.data.proc);
    if (rc == OPAL_SUCCESS) kEnded(name);
  }
  // Open MPI's own handler is the next.
  if (next != nullptr) next(PMIX_SUCCESS, nullptr, 0, nullptr, nullptr, chain);
}
#endif

// From now on kEnded is told, on a thread of the runtime's, which processes have ended before
// their time. Only of use where the job survives that.
template <void (*kEnded)(const opal_process_name_t&) noexcept>
void watch_ends() {
#if BTL_VERSION >= 330
  pmix_status_t codes[] = {PMIX_ERR_PROC_TERM_WO_SYNC, PMIX_ERR_PROC_ABORTED_BY_SIG,
                           PMIX_ERR_PROC_ABORTED};
  pmix_info_t first;  // Open MPI's handler lets nobody after it know
  PMIX_INFO_LOAD(&first, PMIX_EVENT_HDLR_PREPEND, nullptr, PMIX_BOOL);
  g_ends_watched = PMIx_Register_event_handler(codes, std::size(codes), &first, 1,
                                               &on_process_end<kEnded>, nullptr, nullptr);
  PMIX_INFO_DESTRUCT(&first);
#endif
}

inline void stop_watching_ends() {
#if BTL_VERSION >= 330
  if (g_ends_watched < 0) return;
  PMIx_Deregister_event_handler(static_cast<std::size_t>(g_ends_watched), nullptr, nullptr);
  g_ends_watched = PMIX_ERROR;
#endif
}

// Other processes of this job on this host.
inline std::uint32_t local_peers() {
  const auto peers = static_cast<std::int64_t>(opal_process_info.num_local_peers);  // 4.1: signed
  return static_cast<std::uint32_t>(std::max<std::int64_t>(peers, 0));
}

inline bool on_this_host(const opal_proc_t& proc) {
  return OPAL_PROC_ON_LOCAL_NODE(proc.proc_flags);
}

// The host of a process, for messages and for telling hosts apart.
inline std::string host_of(const opal_proc_t& proc) {
  if (on_this_host(proc)) return opal_process_info.nodename;
  const char* name = opal_get_proc_hostname(&proc);
  return name == nullptr ? "unknown" : name;
}

// "4.1": the interface of components is stable within such a series and only there.
inline std::string series(const std::string& version) {
  const std::size_t first = version.find('.');
  if (first == std::string::npos) return version;
  return version.substr(0, version.find('.', first + 1));
}
inline std::string built_series() {
  return std::to_string(OPAL_MAJOR_VERSION) + "." + std::to_string(OPAL_MINOR_VERSION);
}
inline std::string running_series() {
  std::string version = opal_version_string;
  version.erase(0, version.find_first_of("0123456789"));
  return series(version);
}

}  // namespace mend::mca::compat
