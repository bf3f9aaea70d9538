// The deterministic device for tests: one fabric inside this process, any number of nodes on it
// (what would be processes), a virtual clock, no threads. Contexts are real ibv_context objects:
// link softhca_engine and call the ibv_* functions on them, or hand them to code that takes a
// context. Timers (RNR, time-outs) fire only while the clock is advanced. Single threaded. Contexts
// must be closed, and their objects destroyed, before the Fabric goes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "softhca/conf/conf.h"
#include "softhca/engine/clock.h"
#include "softhca/engine/context.h"
#include "softhca/engine/process.h"
#include "softhca/engine/wr_log.h"
#include "softhca/fault/fault_list.h"

namespace softhca::sim {

class Fabric {
 public:
  // without log(): the engine then takes the paths of a device in real use, which keeps none.
  explicit Fabric(FabricConf conf = default_conf(), bool with_log = true);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // Opens a device in a new node; nullptr with errno set.
  ibv_context* open(unsigned device = 0);
  // Opens a device in the node that `sibling` belongs to.
  ibv_context* open_beside(ibv_context* sibling, unsigned device = 0);

  // The node dies as if by SIGKILL. Its contexts may then only be abandoned: calls on them fail and
  // nothing is cleaned up.
  void kill(ibv_context* context);

  uint64_t now() const noexcept { return clock_.now(); }
  // Lets `ns` pass; everything that becomes due in between happens at its time.
  void advance(uint64_t ns);
  // Advances until no timer is armed, at most `limit` ns; false if some still are.
  bool run_until_idle(uint64_t limit = 60'000'000'000);
  // Lets every node look at what was done to it, without passing time.
  void settle();

  bool set_port(unsigned device, unsigned port, bool up);
  bool swap_gids(unsigned device, unsigned port, unsigned a, unsigned b);

  // Fault schedules (grammar: softhca/fault/fault_list.h, docs/softhca.md). rank=N is the N-th node
  // in the order of open(), from 0; times count from the call. Deterministic: random choices come
  // from the seed of the rules alone. Rules act on nodes that are opened later, too.
  // Adds rules; false: more than kMaxFaultRules. A mistake in the text throws invalid_argument.
  bool add_faults(std::string_view text);
  void clear_faults();
  // Hits of all rules of a kind that are in force ("" = of every kind).
  uint64_t fault_hits(std::string_view kind = {}) const;
  // Every hit since the fabric was made or this was cleared.
  std::vector<FaultHit>& fault_log() noexcept { return fault_log_; }

  // Every attempt to execute a work request since the fabric was made or the log cleared.
  WrLog& log() noexcept { return log_; }

 private:
  uint64_t earliest() const noexcept;
  void tell_faults();

  VirtualClock clock_;
  WrLog log_;
  std::vector<FaultHit> fault_log_;
  softhca::Fabric fabric_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Process>> nodes_;
};

}  // namespace softhca::sim
