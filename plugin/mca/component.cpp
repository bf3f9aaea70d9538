#include "plugin/mca/component.h"

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <new>
#include <string>

#include "ops/ucs_version.h"
#include "plugin/conn/peer.h"
#include "plugin/mca/descriptors.h"
#include "plugin/mca/give_up.h"
#include "plugin/mca/params.h"
#include "plugin/mca/pvars.h"
#include "plugin/mca/stats.h"
#include "plugin/mca/tell_user.h"
#include "topo/split.h"

#include <fmt/format.h>

namespace mend::mca {
namespace {

Runtime* g_runtime = nullptr;

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// The first of these environment variables that is set, or `otherwise`.
std::string environment(std::initializer_list<const char*> names, const std::string& otherwise) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return otherwise;
}

// The embedded device joins the processes of one host only. A job whose size is not known is a
// singleton's.
bool everybody_is_here() { return compat::job_size() <= compat::local_peers() + 1; }

conn::Identity identity() {
  conn::Identity self;
  const std::string job = "job " + std::to_string(OPAL_PROC_MY_NAME.jobid);
  // Tells the jobs of a cluster apart.
  self.job_key = fnv1a(environment({"PMIX_NAMESPACE"}, job));
  self.jobid = OPAL_PROC_MY_NAME.jobid;
  self.rank = OPAL_PROC_MY_NAME.vpid;
  self.host = opal_process_info.nodename;
  // All processes below one runtime daemon, spawned jobs included, and nobody else's.
  const std::string daemon = environment(
      {"PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2", "PMIX_SERVER_TMPDIR"},
      "family " + std::to_string(OPAL_PROC_MY_NAME.jobid >> 16));
  self.fabric = fmt::format("mend-{:016x}", fnv1a(daemon));
  self.expected_peers = std::max<std::uint32_t>(compat::job_size(), 2) - 1;
  self.local_rank = static_cast<std::uint32_t>(opal_process_info.my_local_rank);
  const std::string& test_bindings = settings().conn.test_bindings;
  self.local_bindings =
      test_bindings.empty() ? compat::local_bindings() : topo::split(test_bindings, '/');
  return self;
}

// Only Open MPI 5.0 and later ask which endpoint a message came from. Null until this process has
// one: it need not have sent anything to who sent this.
mca_btl_base_endpoint_t* sender(const Module& module, const conn::Peer* peer) {
  if constexpr (!compat::kReceiveNamesEndpoint) return nullptr;
  if (peer == nullptr) return module.own_endpoint.load(std::memory_order_acquire);
  return static_cast<mca_btl_base_endpoint_t*>(
      peer->upper[module.rail.value].load(std::memory_order_acquire));
}

void on_receive(void* from, std::uint8_t tag, std::span<const std::byte> payload) {
  const auto& origin = *static_cast<const conn::Origin*>(from);
  auto& rt = *static_cast<Runtime*>(origin.context);
  Module& module = *rt.by_rail[origin.rail.value];
  if (module.upper_closed) [[unlikely]] {
    return;
  }
  compat::receive_upcall(&module.super, sender(module, origin.peer), tag, payload);
}

void on_self_receive(void* context, RailId rail, std::uint8_t tag, ops::Frag& frag) {
  conn::Origin origin{context, rail, nullptr};
  on_receive(&origin, tag, std::span<const std::byte>(frag.payload(), frag.length));
}

void release_frag(void* context, ops::Frag& frag) {
  static_cast<Runtime*>(context)->transport->release_user(frag);
}

void on_gave_up(void* /*context*/, conn::Peer* peer, const std::string& text) {
  if (peer == nullptr) return give_up_myself(text);
  give_up(peer, text);
}

void on_unknown_peer(void* context, std::uint32_t rank) {
  meet_peer(*static_cast<Runtime*>(context), rank);
}

void on_warning(void* /*context*/, const std::string& text) {
  tell_user("slow", opal_process_info.nodename, OPAL_NAME_PRINT(OPAL_PROC_MY_NAME), text.c_str());
}

// The same in all processes of a host.
void refuse(const std::string& why) {
  if (speaks_for_host()) tell_in_a_line("not used: " + why);
}

bool versions_match() {
  const std::string built = compat::built_series();
  const std::string running = compat::running_series();
  if (built != running) {
    refuse(
        fmt::format("built for Open MPI {}, but this is Open MPI {}; build mend with this one's "
                    "mpicc first in the PATH, into a component directory of its own",
                    built, running));
    return false;
  }
  const std::string ucs = ops::ucs_mismatch(ops::find_ucs());
  if (ucs.empty()) return true;
  refuse(
      fmt::format("built for the libucs of UCX {}, but this is that of UCX {}; build mend with the "
                  "UCX that jobs load (see LD_LIBRARY_PATH)",
                  ops::built_ucs(), ucs));
  return false;
}

void report_parameter(const BadParam& wrong) {
  if (!speaks_for_host()) return;  // the parameters of a job are the same everywhere
  tell_user("bad parameter", opal_process_info.nodename, wrong.name.c_str(), wrong.value.c_str(),
            wrong.legal.c_str());
}

bool params_are_good() {
  const auto wrong = check_params();
  if (!wrong) return true;
  report_parameter(*wrong);
  return false;
}

void report_setup(const Error& error) {
  if (error.code == ENODEV) {
    say(1, ("not used: " + error.message).c_str());
    return;
  }
  const bool parameter = error.object.starts_with("btl_mend_") || error.object == "verbs library";
  if (parameter && !speaks_for_host()) return;
  tell_user("setup failed", opal_process_info.nodename, error.object.c_str(),
            error.message.c_str());
}

void make_modules(Runtime& rt) {
  const auto rails = rt.transport->rails();
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto module = std::make_unique<Module>();
    module->super = settings().module;
    module->rail = RailId{static_cast<std::uint8_t>(i)};
    module->transport = rt.transport.get();
    module->self = &rt.self;
    module->held_limit = settings().conn.held_bytes_per_peer;
    fit_to_rail(*module, rails[i]);
    if (ops::FragPool* small = rt.transport->small_frags(); small != nullptr) {
      module->small = small;
      module->small_bytes =
          std::min<std::size_t>(small->capacity(), module->super.btl_max_send_size);
    }
    rt.by_rail[i] = module.get();
    rt.modules.push_back(std::move(module));
  }
  rt.modules_live = rt.modules.size();
}

void before_threads(void* context) {
  auto& rt = *static_cast<Runtime*>(context);
  if (rt.registrations == nullptr) rt.registrations = RegistrationCache::create();
}

std::unique_ptr<Runtime> start_runtime() {
  auto rt = std::make_unique<Runtime>();
  conn::Params params = settings().conn;
  params.embedded_allowed = everybody_is_here() || params.test_one_machine;
  params.survives_losses = compat::job_survives_losses();
  conn::Upcalls upcalls;
  upcalls.receive = &on_receive;
  upcalls.gave_up = &on_gave_up;
  upcalls.unknown_peer = &on_unknown_peer;
  upcalls.warn = &on_warning;
  upcalls.before_threads = &before_threads;
  upcalls.context = rt.get();
  auto transport = conn::Transport::create(params, identity(), upcalls);
  if (!transport) {
    report_setup(transport.error());
    return nullptr;
  }
  rt->transport = std::move(*transport);
  if (rt->registrations == nullptr) {
    report_setup(Error{0, "rcache", "Open MPI's registration cache \"grdma\" is not available"});
    return nullptr;
  }
  rt->registrations->serve(*rt->transport);
  rt->self.start(&on_self_receive, &release_frag, rt.get());
  make_modules(*rt);
  const std::vector<std::byte> modex = rt->transport->modex();
  if (compat::publish_modex(mca_btl_mend_component.btl_version, modex) != OPAL_SUCCESS) {
    say(1, "not used: the address cannot be published to the other processes");
    return nullptr;
  }
  return rt;
}

// The array Open MPI takes over and frees.
mca_btl_base_module_t** hand_out(const Runtime& rt, int* count) {
  auto** list = static_cast<mca_btl_base_module_t**>(
      std::malloc(rt.modules.size() * sizeof(mca_btl_base_module_t*)));
  if (list == nullptr) throw std::bad_alloc();
  for (std::size_t i = 0; i < rt.modules.size(); ++i) list[i] = &rt.modules[i]->super;
  *count = static_cast<int>(rt.modules.size());
  return list;
}

mca_btl_base_module_t** init(int* count, bool /*progress_threads*/, bool /*mpi_threads*/) noexcept {
  *count = 0;
  try {
    if (!versions_match() || !params_are_good()) return nullptr;
    open_log_bridge();
    make_descriptor_prototype();
    auto rt = start_runtime();
    if (rt == nullptr) {
      close_log_bridge();
      return nullptr;
    }
    mca_btl_base_module_t** list = hand_out(*rt, count);
    g_runtime = rt.release();
    if (compat::job_survives_losses()) compat::watch_ends<&note_end>();
    return list;
  } catch (const std::bad_alloc&) {
    tell_user("setup failed", opal_process_info.nodename, "memory", "there is not enough memory");
    return nullptr;
  }
}

int open() noexcept {
  const std::string directory = help_directory();
  if (!directory.empty()) opal_show_help_add_dir(directory.c_str());
  return OPAL_SUCCESS;
}

int close() noexcept { return OPAL_SUCCESS; }

int register_component() noexcept {
  try {
    fill_module_template(settings().module);
    const int rc = register_params(mca_btl_mend_component.btl_version);
    return rc < 0 ? rc : register_pvars(mca_btl_mend_component.btl_version);
  } catch (const std::bad_alloc&) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
}

void end_runtime() {
  Runtime& rt = *g_runtime;
  rt.leaving = true;
  believe_ends(rt);
  for (auto& module : rt.modules) module->upper_closed = true;
  rt.transport->close();
  compat::stop_watching_ends();
  const std::string suffix = stats_suffix(OPAL_PROC_MY_NAME.vpid, compat::spawned_job());
  if (!write_stats(settings().conn.stats, suffix, rt.transport->stats_json())) {
    opal_output(0, "mend: the statistics cannot be written to %s.%s: %s",
                settings().conn.stats.c_str(), suffix.c_str(), std::strerror(errno));
  }
  rt.registrations.reset();
  g_runtime = nullptr;
  delete &rt;
  close_log_bridge();
}

// What progress() finds to do now and then.
[[gnu::noinline]] int rare_work(Runtime& rt) {
  int events = 0;
  if (rt.transport->wants_attention()) {
    events += rt.transport->attend();
    believe_ends(rt);
  }
  if (rt.self.pending()) events += rt.self.progress();
  flush_log();
  return events;
}

}  // namespace

Runtime* runtime() noexcept { return g_runtime; }

void finalize_module(Module& /*module*/) noexcept {
  if (g_runtime != nullptr && --g_runtime->modules_live == 0) end_runtime();
}

int progress() noexcept {
  Runtime* rt = g_runtime;
  if (rt == nullptr) [[unlikely]] {
    return 0;
  }
  const int events = rt->transport->poll();
  const int rare = static_cast<int>(rt->transport->wants_attention()) |
                   static_cast<int>(rt->self.pending()) | static_cast<int>(log_pending());
  if (rare != 0) [[unlikely]] {
    return events + rare_work(*rt);
  }
  return events;
}

}  // namespace mend::mca

// The versions of Open MPI have different further fields, all of which are to be zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
mca_btl_base_component_3_0_0_t mca_btl_mend_component = {
    .btl_version =
        {
            MCA_BTL_DEFAULT_VERSION("mend"),
            .mca_open_component = mend::mca::open,
            .mca_close_component = mend::mca::close,
            .mca_register_component_params = mend::mca::register_component,
        },
    .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .btl_init = mend::mca::init,
    .btl_progress = mend::mca::progress,
};
