#include "tests/sim/chaos.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace mend::sim {
namespace {

constexpr std::array<const char*, kKinds> kNames = {
    "lose-request", "lose-ack",     "refuse-post",    "kill-one",
    "kill-both",    "qp-fatal",     "false-alarm",    "ctl-lost",
    "ctl-doubled",  "ctl-late",     "ctl-epoch-late", "late-cqe",
    "no-last-wqe",  "create-fails", "modify-fails",   "port-flap",
    "nap",          "psn-wrap",     "seq-wrap",       "ghost",
    "drop-ack",     "no-cqe",       "late-fetch",     "late-place",
    "late-flush",   "rnr",          "reuse-qpn"};

// What the device is told for each of its kinds, but for the seed; at most so many hits.
struct DeviceRule {
  Kind kind;
  const char* name;  // as the device counts it
  const char* text;
};
constexpr std::array<DeviceRule, 8> kDeviceRules = {{
    {Kind::Ghost, "ghost", "ghost:qp=rc:p=0.05:delay=3ms:limit=2"},
    {Kind::DropAck, "drop-ack", "drop-ack:qp=rc:p=0.05:window=3:limit=2"},
    {Kind::NoCqe, "no-cqe", "no-cqe:qp=rc:p=0.05:executed=yes:limit=1"},
    {Kind::LateFetch, "late-fetch", "late-fetch:qp=rc:p=0.1:delay=2ms:limit=4"},
    {Kind::LatePlace, "late-place", "late-place:qp=rc:p=0.2:delay=2ms:limit=4"},
    {Kind::LateFlush, "late-flush", "late-flush:qp=rc:p=0.5:delay=2ms:limit=4"},
    {Kind::Rnr, "rnr", "rnr:qp=rc:p=0.1:times=3:limit=4"},
    {Kind::ReuseQpn, "reuse-qpn", "reuse-qpn:limit=8"},
}};

// One schedule while it runs.
class Run {
 public:
  Run(std::uint64_t seed, const Plan& plan) : plan_(plan), random_(seed ^ 0x5bd1e995) {
    Options options;
    options.nodes = plan.nodes;
    options.seed = seed;
    options.params.window = 2 + static_cast<int>(random_() % 12);
    options.params.reconnect_backoff_max_ms = 200;
    world_ = std::make_unique<World>(options);
    left_ = plan.faults;
  }

  Outcome go();

 private:
  bool has(Kind kind) const { return (plan_.kinds & bit(kind)) != 0; }
  // Whether a fault of this kind happens now; counted.
  bool hit(Kind kind, unsigned per_mille);
  void set_rules();
  void wrap_sequence();
  void tell_device();
  void count_device();
  Fate fate_of(const Request& request);
  UdFate fate_of_datagram();
  int fate_of_call(Call call);
  void operation();
  void spontaneous();
  void break_qps(Kind kind);
  void flap();
  std::size_t any_node() { return random_() % plan_.nodes; }

  const Plan plan_;
  Random random_;
  Outcome outcome_;
  unsigned left_ = 0;
  bool enabled_ = false;
  std::unique_ptr<World> world_;  // whose rules use the others
};

bool Run::hit(Kind kind, unsigned per_mille) {
  if (!enabled_ || left_ == 0 || !has(kind) || random_() % 1000 >= per_mille) return false;
  --left_;
  ++outcome_.faults;
  ++outcome_.hits[static_cast<unsigned>(kind)];
  return true;
}

void Run::set_rules() {
  Tap& tap = world_->tap();
  tap.on_request = [this](const Request& request) { return fate_of(request); };
  tap.on_datagram = [this](std::size_t, const conn::CtlMessage&) { return fate_of_datagram(); };
  tap.on_call = [this](std::size_t, Call call) { return fate_of_call(call); };
  tap.wrap_psn(has(Kind::PsnWrap));
  outcome_.hits[static_cast<unsigned>(Kind::PsnWrap)] += has(Kind::PsnWrap) ? 1 : 0;
  if (has(Kind::NoLastWqe))
    tap.drop_event = [this](std::size_t, ibv_event_type type) {
      if (type != IBV_EVENT_QP_LAST_WQE_REACHED) return false;
      ++outcome_.hits[static_cast<unsigned>(Kind::NoLastWqe)];
      return true;
    };
}

// Every connection is up and has almost used up its numbers.
void Run::wrap_sequence() {
  ++outcome_.hits[static_cast<unsigned>(Kind::SeqWrap)];
  for (std::size_t a = 0; a < plan_.nodes; ++a)
    for (std::size_t b = 0; b < plan_.nodes; ++b)
      if (a != b) world_->traffic().send(a, b, 8);
  if (!world_->finish_traffic()) return world_->traffic().complain("no connection to start with");
  world_->run_for(20 * conn::kMillisecond);
  world_->set_sequence((std::uint64_t{1} << 32) - 1 - random_() % 8);
}

void Run::tell_device() {
  for (const DeviceRule& rule : kDeviceRules)
    if (has(rule.kind))
      world_->fabric().add_faults(fmt::format("seed={}; {}", 1 + random_() % 1000000, rule.text));
}

void Run::count_device() {
  for (const DeviceRule& rule : kDeviceRules) {
    const std::uint64_t hits = has(rule.kind) ? world_->fabric().fault_hits(rule.name) : 0;
    outcome_.hits[static_cast<unsigned>(rule.kind)] += hits;
    outcome_.faults += hits;
  }
  world_->fabric().clear_faults();
}

Fate Run::fate_of(const Request&) {
  if (hit(Kind::LoseRequest, 60)) return Fate::LoseRequest;
  if (hit(Kind::LoseAck, 60)) return Fate::LoseAck;
  if (hit(Kind::RefusePost, 40)) return Fate::Refuse;
  return Fate::Pass;
}

UdFate Run::fate_of_datagram() {
  UdFate fate;
  if (hit(Kind::CtlLost, 250)) fate.copies = 0;
  if (hit(Kind::CtlDoubled, 250)) fate.copies = 2;
  if (hit(Kind::CtlLate, 250)) fate.delay_ns = 1000 + random_() % (20 * conn::kMillisecond);
  if (hit(Kind::CtlEpochLate, 250))
    fate.again_after = 1 * conn::kMillisecond + random_() % conn::kSecond;
  return fate;
}

int Run::fate_of_call(Call call) {
  switch (call) {
    case Call::CreateQp:
    case Call::CreateAh:
      return hit(Kind::CreateFails, 300) ? ENOMEM : 0;
    case Call::ToInit:
    case Call::ToRtr:
    case Call::ToRts:
      return hit(Kind::ModifyFails, 200) ? EINVAL : 0;
    default:
      return 0;
  }
}

void Run::operation() {
  Traffic& traffic = world_->traffic();
  const std::size_t from = any_node();
  const std::size_t to = (from + 1 + random_() % (plan_.nodes - 1)) % plan_.nodes;
  const auto bytes = static_cast<std::uint32_t>(8 + random_() % 440);
  switch (random_() % 8) {
    case 0:
    case 1:
      return traffic.put(from, to, bytes);
    case 2:
      return traffic.get(from, to, bytes);
    case 3:
      return traffic.add(from, to);
    default:
      return traffic.send(from, to, random_() % 3 == 0 ? bytes : bytes % 64);
  }
}

void Run::break_qps(Kind kind) {
  const std::size_t node = any_node();
  const auto mine = world_->tap().live_qps(node);
  if (mine.empty()) {  // nothing there to break: no hit
    --outcome_.faults;
    --outcome_.hits[static_cast<unsigned>(kind)];
    return;
  }
  ibv_qp* qp = mine[random_() % mine.size()];
  ibv_qp* other = world_->tap().partner(qp);
  if (kind != Kind::FalseAlarm) world_->tap().kill_qp(qp);
  if (kind == Kind::KillBoth && other != nullptr) world_->tap().kill_qp(other);
  if (kind == Kind::QpFatal || kind == Kind::FalseAlarm)
    world_->tap().raise(node, IBV_EVENT_QP_FATAL, qp);
}

void Run::flap() {
  world_->fabric().set_port(0, 1, false);
  const TimeNs length =
      random_() % 3 == 0 ? random_() % (3 * conn::kSecond) : random_() % (20 * conn::kMillisecond);
  world_->at(length, [this] { world_->fabric().set_port(0, 1, true); });
}

// Faults that come by themselves, between two operations.
void Run::spontaneous() {
  for (const Kind kind : {Kind::KillOne, Kind::KillBoth, Kind::QpFatal, Kind::FalseAlarm})
    if (hit(kind, 120)) break_qps(kind);
  if (hit(Kind::LateCqe, 120))
    world_->tap().hold_completions(any_node(),
                                   world_->now() + random_() % (5 * conn::kMillisecond));
  if (hit(Kind::PortFlap, 80)) flap();
  if (hit(Kind::Nap, 120)) world_->nap(any_node(), random_() % (4 * conn::kSecond));
}

Outcome Run::go() {
  if (!world_->error().empty()) {
    outcome_.complaints = world_->error();
    return outcome_;
  }
  set_rules();
  if (has(Kind::SeqWrap)) wrap_sequence();
  enabled_ = plan_.from_start;
  for (unsigned i = 0; i < plan_.operations; ++i) {
    operation();
    if (i == plan_.operations / 4) {
      enabled_ = true;
      tell_device();
    }
    spontaneous();
    const auto rounds = random_() % 6;
    for (unsigned round = 0; round < rounds; ++round) world_->round();
    if (plan_.pause != 0 && random_() % 4 == 0) world_->run_for(1 + random_() % plan_.pause);
  }
  // Faults go on while the rest is under way.
  for (unsigned i = 0; i < 40 && left_ != 0; ++i) {
    spontaneous();
    world_->run_for(1 + random_() % conn::kMillisecond);
  }
  enabled_ = false;
  count_device();
  outcome_.complaints = world_->verdict();
  outcome_.recoveries = world_->sum("recoveries");
  outcome_.replayed = world_->sum("replayed");
  outcome_.put_repeats = world_->judge().put_repeats();
  outcome_.executed = world_->judge().executed();
  outcome_.time = world_->now();
  return outcome_;
}

}  // namespace

const char* to_string(Kind kind) { return kNames[static_cast<unsigned>(kind)]; }

Plan plan_of(std::uint64_t seed, std::uint32_t allowed) {
  Random random(seed * 0x9e3779b97f4a7c15u);
  Plan plan;
  plan.nodes = random() % 8 == 0 ? 3 : 2;
  // A few kinds at a time: too many at once hide each other.
  const auto kinds = 1 + random() % 4;
  std::vector<unsigned> choice;
  for (unsigned i = 0; i < kKinds; ++i)
    if ((allowed & 1u << i) != 0) choice.push_back(i);
  for (unsigned i = 0; i < kinds && !choice.empty(); ++i)
    plan.kinds |= 1u << choice[random() % choice.size()];
  plan.faults = 1 + static_cast<unsigned>(random() % 6);
  plan.operations = 8 + static_cast<unsigned>(random() % 24);
  constexpr std::array<TimeNs, 4> kPauses = {0, 100'000, 5 * conn::kMillisecond,
                                             400 * conn::kMillisecond};
  plan.pause = kPauses[random() % kPauses.size()];
  plan.from_start = random() % 3 == 0;
  return plan;
}

Outcome run_chaos(std::uint64_t seed, const Plan& plan) { return Run(seed, plan).go(); }

}  // namespace mend::sim
