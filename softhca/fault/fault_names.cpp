#include "softhca/fault/fault_names.h"

#include <array>
#include <utility>

namespace softhca {

namespace {

constexpr uint32_t kPlace = kKeyRank | kKeyDevice | kKeyPort;
constexpr uint32_t kTime = kKeyAt | kKeyPeriod | kKeyJitter;
constexpr uint32_t kBounds = kKeyFrom | kKeyUntil | kKeyLimit;
constexpr uint32_t kWho = kPlace | kKeyPeer | kKeyQp | kKeyQpn;
constexpr uint32_t kWork = kWho | kKeyOp | kKeyN | kKeyP | kTime | kBounds;
constexpr uint32_t kQueue = kWho | kKeyN | kKeyP | kTime | kBounds;
constexpr uint32_t kCalls = kKeyRank | kKeyDevice | kKeyTo | kBounds;

constexpr std::array<FaultKindInfo, static_cast<std::size_t>(FaultKind::kCount) - 1> kKinds{{
    {"fail", FaultKind::FailCall, "CALL:K:ERRNO", kCalls,
     "the K-th matching call of a process fails"},
    {"delay", FaultKind::DelayCall, "CALL:K:TIME", kCalls,
     "the K-th matching call of a process takes TIME longer"},
    {"drop", FaultKind::Drop, "", kWork | kKeyTimes,
     "a request or datagram is lost before it is executed, and its next times-1 repeats too; "
     "times=all ends in RETRY_EXC_ERR"},
    {"drop-ack", FaultKind::DropAck, "", kWork | kKeyTimes | kKeyWindow,
     "a request is executed, its acknowledgement is lost times times (default: all, which ends in "
     "RETRY_EXC_ERR), and so are those of the next window requests"},
    {"status", FaultKind::Status, "STATUS", kWork | kKeyExecuted,
     "a request completes with this status and its queue pair goes to ERR"},
    {"no-cqe", FaultKind::NoCqe, "", kWork | kKeyExecuted | kKeyFlush,
     "a request never completes, nor does what is behind it; flush=no: not even when the queue "
     "pair is flushed"},
    {"late-cqe", FaultKind::LateCqe, "", kWork | kKeyDelay,
     "a request is executed and acknowledged but completes after delay, also if its queue pair is "
     "in ERR by then"},
    {"late-fetch", FaultKind::LateFetch, "", kWork | kKeyDelay,
     "a request is executed after delay, with what its buffer holds by then"},
    {"late-place", FaultKind::LatePlace, "", kWork | kKeyDelay,
     "an RDMA write completes at once and its bytes arrive after delay, but before anything that "
     "follows on the queue pair and before the target queue pair is reset"},
    {"late-recv", FaultKind::LateRecv, "", kPlace | kKeyN | kKeyP | kBounds | kKeyDelay,
     "a completion of a receive, and those behind it in its queue, are seen after delay"},
    {"rnr", FaultKind::Rnr, "", kWork | kKeyTimes,
     "the responder answers times times that it is not ready"},
    {"ghost", FaultKind::Ghost, "", kWork | kKeyDelay,
     "a request is lost (RETRY_EXC_ERR) and delivered to the old queue pair number after delay, "
     "whatever has become of both queue pairs"},
    {"dup", FaultKind::Duplicate, "", kWork | kKeyDelay, "a datagram arrives again after delay"},
    {"late", FaultKind::Late, "", kWork | kKeyDelay, "a datagram arrives after delay"},
    {"reorder", FaultKind::Reorder, "", kWork | kKeyDelay,
     "a datagram arrives behind the next one of its queue pair, after delay at the latest"},
    {"kill-qp", FaultKind::KillQp, "", kWork | kKeySide | kKeyExecuted | kKeyEvent,
     "a queue pair goes to ERR, with IBV_EVENT_QP_FATAL unless event=no"},
    {"port-down", FaultKind::PortDown, "", kWork | kKeyFor,
     "a port goes down, for a while if for is given; with period it flaps"},
    {"port-up", FaultKind::PortUp, "", kWork, "a port comes up"},
    {"event", FaultKind::Event, "EVENT", kWork | kKeyTimes,
     "an asynchronous event is raised, times times at once; nothing else changes"},
    {"device-fatal", FaultKind::DeviceFatal, "", kWork,
     "a device is dead for a process: IBV_EVENT_DEVICE_FATAL, queue pairs in ERR, calls fail with "
     "EIO"},
    {"no-last-wqe", FaultKind::NoLastWqe, "", kQueue,
     "a queue pair goes to ERR without IBV_EVENT_QP_LAST_WQE_REACHED"},
    {"late-flush", FaultKind::LateFlush, "", kQueue | kKeyDelay,
     "a queue pair that goes to ERR raises IBV_EVENT_QP_LAST_WQE_REACHED at once and completes its "
     "requests after delay"},
    {"reuse-qpn", FaultKind::ReuseQpn, "", kPlace | kKeyN | kKeyP | kBounds,
     "a new queue pair gets the number that this process gave back last"},
}};

constexpr std::array<FaultKeyInfo, 24> kKeys{{
    {"rank", kKeyRank, "only in the process with this rank (simulation: the n-th node)"},
    {"peer", kKeyPeer, "only towards this rank"},
    {"device", kKeyDevice, "only on the device of this name"},
    {"port", kKeyPort, "only on the port of this number"},
    {"qp", kKeyQp, "rc, uc or ud: only on such queue pairs (kill-qp: rc unless given)"},
    {"qpn", kKeyQpn, "only on the queue pair of this number"},
    {"op", kKeyOp,
     "send, write, read, atomic, send_imm, write_imm, cmp_swap, fetch_add; several "
     "with ','"},
    {"to", kKeyTo, "modify_qp only: to this state (INIT, RTR, ...)"},
    {"n", kKeyN,
     "which of the matching ones of a process: 3, 3+ (and all later), 3/2 (and every "
     "second after it)"},
    {"p", kKeyP, "the probability of each, from the seed"},
    {"at", kKeyAt, "the time, counted from when the rule came into force"},
    {"period", kKeyPeriod, "again and again after this time, once per period in the whole fabric"},
    {"jitter", kKeyJitter, "0 to 1: how much periods vary, from the seed"},
    {"from", kKeyFrom, "not before this time"},
    {"until", kKeyUntil, "not from this time on"},
    {"limit", kKeyLimit, "so many hits in the whole fabric"},
    {"delay", kKeyDelay, "default 1ms"},
    {"for", kKeyFor, "how long a port is down"},
    {"times", kKeyTimes, "a number or all"},
    {"window", kKeyWindow, "a number or all; default 0"},
    {"side", kKeySide, "local (that posts), peer, both, random; default local"},
    {"executed", kKeyExecuted, "yes: the request is executed first; default no"},
    {"event", kKeyEvent, "no: without an asynchronous event; default yes"},
    {"flush", kKeyFlush, "default yes"},
}};

constexpr std::array<std::string_view, static_cast<std::size_t>(FaultCall::kCount)> kCallNames{
    "alloc_pd",   "reg_mr",    "create_comp_channel", "create_cq", "create_srq",
    "modify_srq", "create_qp", "modify_qp",           "query_qp",  "create_ah",
    "post_send"};

constexpr std::array<std::pair<std::string_view, ibv_wc_status>, 22> kStatuses{{
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR},
    {"REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"INV_EECN_ERR", IBV_WC_INV_EECN_ERR},
    {"INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
    {"TM_ERR", IBV_WC_TM_ERR},
}};

constexpr std::array<std::pair<std::string_view, ibv_event_type>, 19> kEvents{{
    {"CQ_ERR", IBV_EVENT_CQ_ERR},
    {"QP_FATAL", IBV_EVENT_QP_FATAL},
    {"QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR},
    {"QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR},
    {"COMM_EST", IBV_EVENT_COMM_EST},
    {"SQ_DRAINED", IBV_EVENT_SQ_DRAINED},
    {"PATH_MIG", IBV_EVENT_PATH_MIG},
    {"PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},
    {"DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL},
    {"PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},
    {"PORT_ERR", IBV_EVENT_PORT_ERR},
    {"LID_CHANGE", IBV_EVENT_LID_CHANGE},
    {"PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
    {"SM_CHANGE", IBV_EVENT_SM_CHANGE},
    {"SRQ_ERR", IBV_EVENT_SRQ_ERR},
    {"SRQ_LIMIT_REACHED", IBV_EVENT_SRQ_LIMIT_REACHED},
    {"QP_LAST_WQE_REACHED", IBV_EVENT_QP_LAST_WQE_REACHED},
    {"CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
    {"GID_CHANGE", IBV_EVENT_GID_CHANGE},
}};

constexpr std::array<std::string_view, 7> kStates{"RESET", "INIT", "RTR", "RTS",
                                                  "SQD",   "SQE",  "ERR"};

constexpr uint32_t bit(ibv_wr_opcode opcode) noexcept { return 1U << opcode; }

constexpr std::array<std::pair<std::string_view, uint32_t>, 8> kOpcodes{{
    {"send", bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM)},
    {"write", bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM)},
    {"read", bit(IBV_WR_RDMA_READ)},
    {"atomic", bit(IBV_WR_ATOMIC_CMP_AND_SWP) | bit(IBV_WR_ATOMIC_FETCH_AND_ADD)},
    {"send_imm", bit(IBV_WR_SEND_WITH_IMM)},
    {"write_imm", bit(IBV_WR_RDMA_WRITE_WITH_IMM)},
    {"cmp_swap", bit(IBV_WR_ATOMIC_CMP_AND_SWP)},
    {"fetch_add", bit(IBV_WR_ATOMIC_FETCH_AND_ADD)},
}};

template <typename Value, std::size_t N>
std::optional<Value> find(const std::array<std::pair<std::string_view, Value>, N>& table,
                          std::string_view name) noexcept {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  return std::nullopt;
}

std::string_view without(std::string_view name, std::string_view prefix) noexcept {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

void append(std::string& all, std::string_view name) {
  if (!all.empty()) all += ", ";
  all += name;
}

void append_line(std::string& out, std::string_view left, std::string_view help) {
  constexpr std::size_t kColumn = 22;
  out += "  ";
  out += left;
  out.append(left.size() < kColumn ? kColumn - left.size() : 1, ' ');
  out += help;
  out += '\n';
}

}  // namespace

std::span<const FaultKeyInfo> fault_keys() noexcept { return kKeys; }
std::span<const FaultKindInfo> fault_kinds() noexcept { return kKinds; }

std::string_view fault_kind_name(FaultKind kind) noexcept {
  for (const FaultKindInfo& info : kKinds)
    if (info.kind == kind) return info.name;
  return "?";
}

std::string_view fault_call_name(FaultCall call) noexcept {
  const auto i = static_cast<std::size_t>(call);
  return i < kCallNames.size() ? kCallNames[i] : "?";
}

std::optional<FaultCall> fault_call(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kCallNames.size(); ++i)
    if (kCallNames[i] == name) return static_cast<FaultCall>(i);
  return std::nullopt;
}

std::optional<ibv_wc_status> wc_status(std::string_view name) noexcept {
  return find(kStatuses, without(name, "IBV_WC_"));
}

std::optional<ibv_event_type> event_type(std::string_view name) noexcept {
  return find(kEvents, without(name, "IBV_EVENT_"));
}

std::optional<uint32_t> qp_state(std::string_view name) noexcept {
  for (uint32_t i = 0; i < kStates.size(); ++i)
    if (kStates[i] == name) return i;
  return std::nullopt;
}

std::optional<uint32_t> opcode_mask(std::string_view name) noexcept { return find(kOpcodes, name); }

std::string_view opcode_name(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_SEND:
      return "send";
    case IBV_WR_SEND_WITH_IMM:
      return "send_imm";
    case IBV_WR_RDMA_WRITE:
      return "write";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "write_imm";
    case IBV_WR_RDMA_READ:
      return "read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "cmp_swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "fetch_add";
    default:
      return "?";
  }
}

std::string names_of_calls() {
  std::string all;
  for (const std::string_view name : kCallNames) append(all, name);
  return all;
}

std::string names_of_kinds() {
  std::string all = "seed";
  for (const FaultKindInfo& info : kKinds) append(all, info.name);
  return all;
}

std::string fault_help() {
  std::string out =
      "A schedule is a list of rules KIND[=ARGUMENT][:KEY=VALUE]... separated by ';' or new "
      "lines;\n"
      "'#' starts a comment, seed=N seeds the rules behind it. Times need a unit: ns, us, ms, s.\n"
      "Without n, p, at or period a rule hits whenever it matches.\n\nkinds\n";
  for (const FaultKindInfo& info : kKinds) {
    std::string left{info.name};
    if (!info.argument.empty()) left += '=';
    left += info.argument;
    append_line(out, left, info.help);
  }
  out += "\nkeys\n";
  for (const FaultKeyInfo& key : kKeys) append_line(out, key.name, key.help);
  out += "\ncalls: " + names_of_calls() + "\n";
  return out;
}

}  // namespace softhca
