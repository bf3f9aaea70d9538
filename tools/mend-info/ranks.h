// A preview of a node: where mpirun would bind the ranks and which rails they would then use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/mend-info/machine.h"
#include "topo/rank_nics.h"

namespace mend::info {

struct RankRow {
  unsigned rank = 0;
  std::string cpus;  // an hwloc list; empty: not bound
  topo::Binding binding;
  topo::RankPlan plan;
};

// A process uses no more rails than the transport takes.
void cut_to_most_rails(topo::RankPlan& plan);

// Ranks as `mpirun --map-by UNIT --bind-to UNIT` places them: one per unit in the machine's order,
// round robin. unit: core, numa, socket (or package), none. EINVAL: another word.
Result<std::vector<RankRow>> preview(const Machine& machine, unsigned ranks,
                                     const std::string& unit, topo::Policy policy);

// The CPUs of each rank, as btl_mend_test_bindings has them: lists separated by slashes.
Result<std::vector<RankRow>> preview_bindings(const Machine& machine, const std::string& lists,
                                              topo::Policy policy);

}  // namespace mend::info
