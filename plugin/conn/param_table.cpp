#include "plugin/conn/param_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace mend::conn {
namespace {

constexpr IntParam kInts[] = {
    {"gid_index", &Params::gid_index, 0, 255, "(index)", "Entry of the port's GID table to use", 4,
     -1, "choose the best by kind and address"},
    {"pkey", &Params::pkey, 1, 0xffff, "(key)",
     "Partition key to use; it must be in the port's table", 4, 0, "the first usable one"},
    {"mtu", &Params::mtu, 256, 4096, "bytes, a power of two",
     "Largest path MTU to use; both ends take the smaller", 5, 0, "the port's active MTU"},
    {"service_level", &Params::service_level, 0, 15, "(level)", "InfiniBand service level", 5},
    {"traffic_class", &Params::traffic_class, 0, 255, "(class)",
     "Traffic class of the GRH; on RoCE the IP type-of-service byte", 5},
    {"ib_timeout", &Params::ib_timeout, 0, 31, "(code)",
     "Time until a packet is sent again, 4.096 microseconds x 2^code; 0 waits for ever", 5},
    {"ib_retry_count", &Params::ib_retry_count, 0, 7, "times",
     "How often the device sends a packet again before the link counts as lost", 5},
    {"ib_rnr_retry", &Params::ib_rnr_retry, 0, 7, "times",
     "How often the device tries again when the receiver has no buffer; 7 tries for ever", 5},
    {"ib_min_rnr_timer", &Params::ib_min_rnr_timer, 0, 31, "(code)",
     "Pause a peer is asked to make when this side has no buffer; code 12 is 0.64 milliseconds", 5},
    {"max_inline", &Params::max_inline, 0, 256, "bytes",
     "Largest request, mend's header of 16 bytes included, that is handed to the device inline", 5,
     -1, "what the device supports"},
    {"send_queue_depth", &Params::send_queue_depth, 8, 32768, "work requests",
     "Depth of each send queue", 5, 0, "from link rate x latency x 1.5"},
    {"srq_depth", &Params::srq_depth, 2, 1 << 20, "buffers",
     "Receive buffers of each rail; never fewer than twice the live queue pairs are used", 5, 0,
     "automatic"},
    {"srq_low_watermark", &Params::srq_low_watermark, 1, 1 << 20, "buffers",
     "Posted receive buffers below which the shared receive queue is grown", 6, 0,
     "a quarter of the depth"},
    {"window", &Params::window, 2, 4096, "messages",
     "Messages each side may have under way to a peer before it waits for an acknowledgement", 5},
    {"qp_pool_size", &Params::qp_pool_size, 0, 1024, "queue pairs",
     "Queue pairs kept ready on each rail, so that recovery need not create them", 6},
    {"qp_linger_ms", &Params::qp_linger_ms, 0, 600000, "milliseconds",
     "Time a retired queue pair is kept, so that its number is not used again too soon", 6},
    {"heartbeat_interval_ms", &Params::heartbeat_interval_ms, 10, 3600000, "milliseconds",
     "Time between heartbeats to a peer in use", 4},
    {"heartbeat_misses", &Params::heartbeat_misses, 1, 1000, "heartbeats",
     "Unanswered heartbeats after which a peer is probed", 4},
    {"heartbeat_idle_s", &Params::heartbeat_idle_s, 0, 86400, "seconds",
     "Heartbeats stop when a connection has been idle so long", 5},
    {"max_outage_s", &Params::max_outage_s, 1, 31536000, "seconds",
     "Longest outage that is waited for; when it has passed, the job is aborted with a message", 3,
     0, "wait for ever"},
    {"reconnect_backoff_min_ms", &Params::reconnect_backoff_min_ms, 1, 60000, "milliseconds",
     "Pause before the second attempt to reconnect; it doubles with each attempt", 5},
    {"reconnect_backoff_max_ms", &Params::reconnect_backoff_max_ms, 1, 600000, "milliseconds",
     "Longest pause between attempts to reconnect", 5},
};

constexpr TextParam kTexts[] = {
    {"if_include", &Params::if_include,
     "Comma-separated list of devices that may be used, each DEVICE or DEVICE:PORT; empty: all. "
     "Those are used that are active and that numa_policy chooses. Not together with if_exclude",
     2},
    {"if_exclude", &Params::if_exclude,
     "Comma-separated list of devices not to use, each DEVICE or DEVICE:PORT", 2},
    {"verbs_library", &Params::verbs_library,
     "Where RDMA comes from: auto (libibverbs.so.1 and, without an active device, the embedded "
     "software device if the whole job runs on one host), softhca (the embedded device), or the "
     "path of a library with the libibverbs ABI",
     3},
    {"softhca_path", &Params::softhca_path,
     "Path of libsofthca.so, the embedded device; empty: beside the component, in ../lib, or in "
     "the installation",
     4},
    {"numa_policy", &Params::numa_policy,
     "Which of the devices a process uses: near (those nearest to its NUMA node, no others; "
     "processes that share them begin with different ones), spread (one: the processes of a node "
     "take all in turn, however far), none (all, by name)",
     4, "near, spread or none"},
    {"standby", &Params::standby,
     "Without effect yet: whether further rails are held in reserve for a failed one, on | off", 4,
     "on or off"},
    {"stats", &Params::stats,
     "Where the statistics of each process go at the end, as one line of JSON: PREFIX (to the file "
     "PREFIX.<rank>, of a spawned job PREFIX.<job>.<rank>) or stderr; empty: nowhere",
     3},
    {"test_bindings", &Params::test_bindings,
     "For tests of the choice of devices: the CPUs that each rank of this node counts as bound to, "
     "lists as in 0-3,8 separated by slashes, in the order of the local ranks; empty: the truth",
     9},
};

constexpr FlagParam kFlags[] = {
    {"prewarm", &Params::prewarm, "Connect to every peer at start, not at the first message", 4},
    {"test_one_machine", &Params::test_one_machine,
     "For tests of jobs on several hosts: those that this job sees are all this machine, so that "
     "the embedded device reaches them",
     9},
};

constexpr SizeParam kSizes[] = {
    {"held_bytes", &Params::held_bytes_per_peer,
     "Bulk data that is held for one peer before more is refused for a while (bytes)", 5},
};

}  // namespace

bool IntParam::legal(int value) const {
  return (special_meaning != nullptr && value == special) || (value >= low && value <= high);
}

std::string IntParam::range() const {
  std::string numbers = fmt::format("{} to {} {}", low, high, unit);
  if (special_meaning == nullptr) return numbers;
  return fmt::format("{}, or {} ({})", numbers, special, special_meaning);
}

// One of the words of "near, spread or none".
bool TextParam::legal(const std::string& value) const {
  if (words == nullptr) return true;
  if (value.empty() || value == "or") return false;
  std::string_view rest = words;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(", "), rest.size());
    if (rest.substr(0, end) == value) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::span<const IntParam> int_params() { return kInts; }
std::span<const TextParam> text_params() { return kTexts; }
std::span<const FlagParam> flag_params() { return kFlags; }
std::span<const SizeParam> size_params() { return kSizes; }

std::optional<IllegalParam> first_illegal(const Params& params) {
  for (const IntParam& p : kInts)
    if (const int value = params.*p.field; !p.legal(value))
      return IllegalParam{p.name, std::to_string(value), p.range()};
  for (const TextParam& p : kTexts)
    if (!p.legal(params.*p.field)) return IllegalParam{p.name, params.*p.field, p.words};
  if (params.mtu != 0 && (params.mtu & (params.mtu - 1)) != 0)
    return IllegalParam{"mtu", std::to_string(params.mtu),
                        "256, 512, 1024, 2048, 4096 bytes, or 0"};
  if (params.reconnect_backoff_max_ms < params.reconnect_backoff_min_ms)
    return IllegalParam{
        "reconnect_backoff_max_ms", std::to_string(params.reconnect_backoff_max_ms),
        fmt::format("at least btl_mend_reconnect_backoff_min_ms, which is {} milliseconds",
                    params.reconnect_backoff_min_ms)};
  if (!params.if_include.empty() && !params.if_exclude.empty())
    return IllegalParam{
        "if_exclude", params.if_exclude,
        fmt::format("empty while btl_mend_if_include is set (it is \"{}\")", params.if_include)};
  return std::nullopt;
}

}  // namespace mend::conn
