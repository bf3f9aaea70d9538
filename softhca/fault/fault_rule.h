// One fault of a schedule as data: what happens (kind and its arguments), to whom (selectors) and
// when (occurrences of a matching question, a probability, or times). Trivially copyable, no
// pointers: rules live in the fabric segment where softhcactl adds and reads them, and every
// process works on its own copy. Made by parse_faults() (fault_list.h), whose header has the
// grammar.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace softhca {

// The verbs calls that a rule can fail or slow down.
enum class FaultCall : uint8_t {
  AllocPd,
  RegMr,
  CreateCompChannel,
  CreateCq,
  CreateSrq,
  ModifySrq,
  CreateQp,
  ModifyQp,
  QueryQp,
  CreateAh,
  PostSend,
  kCount,
};

enum class FaultKind : uint8_t {
  None,
  FailCall,     // fail: a verbs call returns an errno
  DelayCall,    // delay: a verbs call takes long
  Drop,         // drop: the request is lost before it is executed
  DropAck,      // drop-ack: executed, but the acknowledgement is lost
  Status,       // status: completes with this ibv_wc_status
  NoCqe,        // no-cqe: never completes
  LateCqe,      // late-cqe: executed at once, completes later
  LateFetch,    // late-fetch: payload is read, and the request executed, later
  LatePlace,    // late-place: RDMA write completes first, its bytes arrive later
  LateRecv,     // late-recv: completions of receives are seen later
  Rnr,          // rnr: the responder says that it is not ready
  Ghost,        // ghost: the request is lost, and delivered long afterwards
  Duplicate,    // dup: a datagram arrives twice
  Late,         // late: a datagram arrives later
  Reorder,      // reorder: a datagram arrives behind the next one
  KillQp,       // kill-qp: a queue pair goes to ERR
  PortDown,     // port-down
  PortUp,       // port-up
  Event,        // event: an asynchronous event
  DeviceFatal,  // device-fatal: the device is dead for this process
  NoLastWqe,    // no-last-wqe: IBV_EVENT_QP_LAST_WQE_REACHED is not raised
  LateFlush,    // late-flush: flush completions come after the event, and later
  ReuseQpn,     // reuse-qpn: a queue pair gets the number that was given back last
  kCount,
};

enum class FaultSide : uint8_t { Local, Peer, Both, Random };

inline constexpr int32_t kAnyRank = -1;
inline constexpr uint32_t kForever = UINT32_MAX;  // times=all
inline constexpr uint32_t kMaxFaultRules = 64;
inline constexpr std::size_t kMaxFaultText = 192;

// Bits of FaultRule::qp_types.
constexpr uint8_t qp_type_bit(uint32_t type) noexcept {
  switch (type) {
    case IBV_QPT_RC:
      return 1;
    case IBV_QPT_UC:
      return 2;
    case IBV_QPT_UD:
      return 4;
    default:
      return 0;
  }
}
inline constexpr uint8_t kEveryQpType = 7;

struct FaultRule {
  FaultKind kind = FaultKind::None;
  FaultCall call = FaultCall::kCount;

  // ---- whom: what is left alone here matches everything
  uint8_t qp_types = kEveryQpType;
  uint8_t port = 0;
  int32_t rank = kAnyRank;  // PMIX_RANK / OMPI_COMM_WORLD_RANK of the process, or simulated node
  int32_t peer = kAnyRank;  // of the other side
  uint32_t qpn = 0;
  uint32_t opcodes = UINT32_MAX;  // 1 << ibv_wr_opcode
  int32_t to_state = -1;          // calls of modify_qp to this state
  std::array<char, 32> device{};  // name, zero-terminated

  // ---- when
  uint64_t first = 0;        // the first occurrence that is hit, counted from 1; 0: see below
  uint64_t every = 0;        // 0: only that one; n: that and every n-th after it
  double probability = 0.0;  // with first == 0: 0 = every occurrence
  bool timed = false;        // at or period is set: times decide, not occurrences
  uint64_t at = 0;           // ns after the rule came into force
  uint64_t period = 0;       // ns, 0: once
  double jitter = 0.0;       // each period is stretched by a random factor in 1 +- jitter
  uint64_t from = 0;         // not before, ns after the rule came into force
  uint64_t until = UINT64_MAX;
  uint64_t limit = UINT64_MAX;  // hits in the whole fabric

  // ---- what
  int32_t error = 0;      // errno that a call returns
  uint32_t times = 1;     // attempts that are lost, not-ready answers, or events per hit
  uint32_t window = 0;    // drop-ack: so many later requests are executed without an answer too
  uint64_t delay = 0;     // ns
  uint64_t duration = 0;  // port-down: ns until the port is up again, 0 = stays down
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_event_type event_type = IBV_EVENT_DEVICE_FATAL;
  FaultSide side = FaultSide::Local;
  bool executed = false;  // status, no-cqe, kill-qp: the request is executed first
  bool event = true;      // kill-qp: with IBV_EVENT_QP_FATAL
  bool flush = true;      // no-cqe: a flush completes it after all

  uint64_t seed = 1;
  std::array<char, kMaxFaultText> text{};  // as written

  constexpr bool hits(uint64_t occurrence) const noexcept {
    if (occurrence < first) return false;
    return every == 0 ? occurrence == first : (occurrence - first) % every == 0;
  }
  bool on_device(std::string_view name) const noexcept {
    return device[0] == '\0' || name == device.data();
  }
  std::string_view written() const noexcept { return text.data(); }
};
static_assert(std::is_trivially_copyable_v<FaultRule>);

// Whether the clock alone makes it happen; other kinds with a period wait for the next question.
constexpr bool acts_alone(const FaultRule& rule) noexcept {
  switch (rule.kind) {
    case FaultKind::KillQp:
    case FaultKind::PortDown:
    case FaultKind::PortUp:
    case FaultKind::Event:
    case FaultKind::DeviceFatal:
      return rule.timed;
    default:
      return false;
  }
}

}  // namespace softhca
