#include "plugin/mca/params.h"

#include <fmt/format.h>

#include <algorithm>

namespace mend::mca {
namespace {

using conn::Params;

// A whole number with a legal range and, where `special_meaning` is set, one more legal value
// outside of it.
struct IntParam {
  const char* name;
  int Params::*field;
  int low, high;
  const char* unit;
  const char* help;
  mca_base_var_info_lvl_t level;
  int special = 0;
  const char* special_meaning = nullptr;

  bool legal(int value) const {
    return (special_meaning != nullptr && value == special) || (value >= low && value <= high);
  }
  std::string range() const {
    std::string numbers = fmt::format("{} to {} {}", low, high, unit);
    if (special_meaning == nullptr) return numbers;
    return fmt::format("{}, or {} ({})", numbers, special, special_meaning);
  }
};

constexpr IntParam kInts[] = {
    {"gid_index", &Params::gid_index, 0, 255, "(index)", "Entry of the port's GID table to use",
     OPAL_INFO_LVL_4, -1, "choose the best by kind and address"},
    {"pkey", &Params::pkey, 1, 0xffff, "(key)",
     "Partition key to use; it must be in the port's table", OPAL_INFO_LVL_4, 0,
     "the first usable one"},
    {"mtu", &Params::mtu, 256, 4096, "bytes, a power of two",
     "Largest path MTU to use; both ends take the smaller", OPAL_INFO_LVL_5, 0,
     "the port's active MTU"},
    {"service_level", &Params::service_level, 0, 15, "(level)", "InfiniBand service level",
     OPAL_INFO_LVL_5},
    {"traffic_class", &Params::traffic_class, 0, 255, "(class)",
     "Traffic class of the GRH; on RoCE the IP type-of-service byte", OPAL_INFO_LVL_5},
    {"ib_timeout", &Params::ib_timeout, 0, 31, "(code)",
     "Time until a packet is sent again, 4.096 microseconds x 2^code; 0 waits for ever",
     OPAL_INFO_LVL_5},
    {"ib_retry_count", &Params::ib_retry_count, 0, 7, "times",
     "How often the device sends a packet again before the link counts as lost", OPAL_INFO_LVL_5},
    {"ib_rnr_retry", &Params::ib_rnr_retry, 0, 7, "times",
     "How often the device tries again when the receiver has no buffer; 7 tries for ever",
     OPAL_INFO_LVL_5},
    {"ib_min_rnr_timer", &Params::ib_min_rnr_timer, 0, 31, "(code)",
     "Pause a peer is asked to make when this side has no buffer; code 12 is 0.64 milliseconds",
     OPAL_INFO_LVL_5},
    {"max_inline", &Params::max_inline, 0, 256, "bytes",
     "Largest request, mend's header of 16 bytes included, that is handed to the device inline",
     OPAL_INFO_LVL_5, -1, "what the device supports"},
    {"send_queue_depth", &Params::send_queue_depth, 8, 32768, "work requests",
     "Depth of each send queue", OPAL_INFO_LVL_5, 0, "from link rate x latency x 1.5"},
    {"srq_depth", &Params::srq_depth, 2, 1 << 20, "buffers",
     "Receive buffers of each rail; never fewer than twice the live queue pairs are used",
     OPAL_INFO_LVL_5, 0, "automatic"},
    {"srq_low_watermark", &Params::srq_low_watermark, 1, 1 << 20, "buffers",
     "Posted receive buffers below which the shared receive queue is grown", OPAL_INFO_LVL_6, 0,
     "a quarter of the depth"},
    {"window", &Params::window, 2, 4096, "messages",
     "Messages each side may have under way to a peer before it waits for an acknowledgement",
     OPAL_INFO_LVL_5},
    {"qp_pool_size", &Params::qp_pool_size, 0, 1024, "queue pairs",
     "Queue pairs kept ready on each rail, so that recovery need not create them", OPAL_INFO_LVL_6},
    {"qp_linger_ms", &Params::qp_linger_ms, 0, 600000, "milliseconds",
     "Time a retired queue pair is kept, so that its number is not used again too soon",
     OPAL_INFO_LVL_6},
    {"heartbeat_interval_ms", &Params::heartbeat_interval_ms, 10, 3600000, "milliseconds",
     "Time between heartbeats to a peer in use", OPAL_INFO_LVL_4},
    {"heartbeat_misses", &Params::heartbeat_misses, 1, 1000, "heartbeats",
     "Unanswered heartbeats after which a peer is probed", OPAL_INFO_LVL_4},
    {"heartbeat_idle_s", &Params::heartbeat_idle_s, 0, 86400, "seconds",
     "Heartbeats stop when a connection has been idle so long", OPAL_INFO_LVL_5},
    {"max_outage_s", &Params::max_outage_s, 1, 31536000, "seconds",
     "Longest outage that is waited for; when it has passed, the job is aborted with a message",
     OPAL_INFO_LVL_3, 0, "wait for ever"},
    {"reconnect_backoff_min_ms", &Params::reconnect_backoff_min_ms, 1, 60000, "milliseconds",
     "Pause before the second attempt to reconnect; it doubles with each attempt", OPAL_INFO_LVL_5},
    {"reconnect_backoff_max_ms", &Params::reconnect_backoff_max_ms, 1, 600000, "milliseconds",
     "Longest pause between attempts to reconnect", OPAL_INFO_LVL_5},
};

// What Open MPI stores for the text parameters; it owns the strings.
struct TextStorage {
  char* verbs_library;
  char* softhca_path;
  char* if_include;
  char* if_exclude;
  char* numa_policy;
  char* standby;
  char* stats;
  unsigned long long held_bytes;
};
TextStorage g_text;

struct TextParam {
  const char* name;
  char* TextStorage::*field;
  const char* initial;
  const char* help;
  mca_base_var_info_lvl_t level;
};

constexpr TextParam kTexts[] = {
    {"if_include", &TextStorage::if_include, nullptr,
     "Comma-separated list of devices that may be used, each DEVICE or DEVICE:PORT; empty: all. "
     "Those are used that are active and that numa_policy chooses. Not together with if_exclude",
     OPAL_INFO_LVL_2},
    {"if_exclude", &TextStorage::if_exclude, nullptr,
     "Comma-separated list of devices not to use, each DEVICE or DEVICE:PORT", OPAL_INFO_LVL_2},
    {"verbs_library", &TextStorage::verbs_library, "auto",
     "Where RDMA comes from: auto (libibverbs.so.1 and, without an active device, the embedded "
     "software device if the whole job runs on one host), softhca (the embedded device), or the "
     "path of a library with the libibverbs ABI",
     OPAL_INFO_LVL_3},
    {"softhca_path", &TextStorage::softhca_path, nullptr,
     "Path of libsofthca.so, the embedded device; empty: beside the component, in ../lib, or in "
     "the installation",
     OPAL_INFO_LVL_4},
    {"numa_policy", &TextStorage::numa_policy, "near",
     "Which of the devices a process uses: near (those nearest to its NUMA node, no others), "
     "spread (all, nearest first, the processes of a node beginning at different ones of equals), "
     "none (all, by name)",
     OPAL_INFO_LVL_4},
    {"standby", &TextStorage::standby, "on",
     "Without effect yet: whether further rails are held in reserve for a failed one, on | off",
     OPAL_INFO_LVL_4},
    {"stats", &TextStorage::stats, nullptr,
     "Where the statistics of each process go at the end, as one line of JSON: PREFIX (to the file "
     "PREFIX.<rank>, of a spawned job PREFIX.<job>.<rank>) or stderr; empty: nowhere",
     OPAL_INFO_LVL_3},
};

int register_int(const mca_base_component_t& component, const IntParam& p) {
  const std::string help = fmt::format("{} ({})", p.help, p.range());
  return mca_base_component_var_register(&component, p.name, help.c_str(), MCA_BASE_VAR_TYPE_INT,
                                         nullptr, 0, static_cast<mca_base_var_flag_t>(0), p.level,
                                         MCA_BASE_VAR_SCOPE_READONLY, &(settings().conn.*p.field));
}

int register_text(const mca_base_component_t& component, const TextParam& p) {
  g_text.*p.field = const_cast<char*>(p.initial);  // Open MPI copies it
  return mca_base_component_var_register(&component, p.name, p.help, MCA_BASE_VAR_TYPE_STRING,
                                         nullptr, 0, static_cast<mca_base_var_flag_t>(0), p.level,
                                         MCA_BASE_VAR_SCOPE_READONLY, &(g_text.*p.field));
}

std::string text(const char* value) { return value == nullptr ? "" : value; }

BadParam bad(const std::string& name, std::string value, std::string legal) {
  return BadParam{"btl_mend_" + name, std::move(value), std::move(legal)};
}

std::optional<BadParam> check_ints(const Params& conn) {
  for (const IntParam& p : kInts) {
    const int value = conn.*p.field;
    if (!p.legal(value)) return bad(p.name, std::to_string(value), p.range());
  }
  if (conn.mtu != 0 && (conn.mtu & (conn.mtu - 1)) != 0) {
    return bad("mtu", std::to_string(conn.mtu), "256, 512, 1024, 2048, 4096 bytes, or 0");
  }
  if (conn.reconnect_backoff_max_ms < conn.reconnect_backoff_min_ms) {
    return bad("reconnect_backoff_max_ms", std::to_string(conn.reconnect_backoff_max_ms),
               fmt::format("at least btl_mend_reconnect_backoff_min_ms, which is {} milliseconds",
                           conn.reconnect_backoff_min_ms));
  }
  return std::nullopt;
}

std::optional<BadParam> take_texts(Params& conn) {
  conn.verbs_library = text(g_text.verbs_library);
  conn.softhca_path = text(g_text.softhca_path);
  conn.if_include = text(g_text.if_include);
  conn.if_exclude = text(g_text.if_exclude);
  conn.numa_policy = text(g_text.numa_policy);
  settings().stats = text(g_text.stats);
  if (conn.verbs_library.empty()) conn.verbs_library = "auto";
  if (!conn.if_include.empty() && !conn.if_exclude.empty()) {
    return bad(
        "if_exclude", conn.if_exclude,
        fmt::format("empty while btl_mend_if_include is set (it is \"{}\")", conn.if_include));
  }
  if (conn.numa_policy != "near" && conn.numa_policy != "spread" && conn.numa_policy != "none") {
    return bad("numa_policy", conn.numa_policy, "near, spread or none");
  }
  const std::string standby = text(g_text.standby);
  if (standby != "on" && standby != "off") return bad("standby", standby, "on or off");
  conn.standby = standby == "on";
  return std::nullopt;
}

// The standard BTL parameters, as far as a wrong value would break more than speed.
std::optional<BadParam> check_standard(const mca_btl_base_module_t& module) {
  struct Size {
    const char* name;
    std::size_t value, low, high;
  };
  constexpr std::size_t kHeader = 256;  // room for the largest header of the layers above
  const std::size_t max_send = module.btl_max_send_size;
  const Size sizes[] = {
      {"max_send_size", max_send, 1024, 1u << 22},
      {"eager_limit", module.btl_eager_limit, kHeader, max_send},
      {"rndv_eager_limit", module.btl_rndv_eager_limit, kHeader, max_send},
      {"rdma_pipeline_frag_size", module.btl_rdma_pipeline_frag_size, 4096, std::size_t{1} << 40},
      {"get_limit", module.btl_get_limit, 1, SIZE_MAX},
      {"put_limit", module.btl_put_limit, 1, SIZE_MAX},
  };
  for (const Size& s : sizes) {
    if (s.value < s.low || s.value > s.high) {
      return bad(s.name, std::to_string(s.value), fmt::format("{} to {} bytes", s.low, s.high));
    }
  }
  return std::nullopt;
}

}  // namespace

Settings& settings() {
  static Settings the_settings;
  return the_settings;
}

int register_params(mca_base_component_t& component) {
  for (const IntParam& p : kInts) {
    if (register_int(component, p) < 0) return OPAL_ERROR;
  }
  for (const TextParam& p : kTexts) {
    if (register_text(component, p) < 0) return OPAL_ERROR;
  }
  Settings& s = settings();
  g_text.held_bytes = s.conn.held_bytes_per_peer;
  int rc = mca_base_component_var_register(
      &component, "held_bytes",
      "Bulk data that is held for one peer before more is refused for a while (bytes)",
      MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, 0, static_cast<mca_base_var_flag_t>(0),
      OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_READONLY, &g_text.held_bytes);
  if (rc < 0) return rc;
  rc = mca_base_component_var_register(
      &component, "prewarm", "Connect to every peer at start, not at the first message",
      MCA_BASE_VAR_TYPE_BOOL, nullptr, 0, static_cast<mca_base_var_flag_t>(0), OPAL_INFO_LVL_4,
      MCA_BASE_VAR_SCOPE_READONLY, &s.conn.prewarm);
  if (rc < 0) return rc;
  return mca_btl_base_param_register(&component, &s.module);
}

std::optional<BadParam> check_params() {
  Settings& s = settings();
  if (auto wrong = check_ints(s.conn)) return wrong;
  if (auto wrong = take_texts(s.conn)) return wrong;
  if (auto wrong = check_standard(s.module)) return wrong;
  s.conn.held_bytes_per_peer = g_text.held_bytes;
  s.conn.max_send_size = static_cast<std::uint32_t>(s.module.btl_max_send_size);
  s.conn.small_frag_size = std::min(s.conn.small_frag_size, s.conn.max_send_size);
  return std::nullopt;
}

}  // namespace mend::mca
