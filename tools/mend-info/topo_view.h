// mend-info topo: the machine, its NICs and what each rank would use, as text, JSON or a picture.
#pragma once

#include <string>
#include <vector>

#include "tools/mend-info/machine.h"
#include "tools/mend-info/ranks.h"

namespace mend::info {

struct TopoView {
  const Machine& machine;
  const std::string& policy;
  const std::vector<RankRow>& ranks;  // of a preview; without one, this process alone
  bool is_preview = false;
};

std::string as_text(const TopoView& view);

// {"devices": [{"name", "port", "numa", "package", "pci", "speed_gbps", "state"}],
//  "ranks": [{"rank", "numa", "rail", "distance", "rails", "cpus"}]}; what is not known is null.
std::string as_json(const TopoView& view);

std::string as_svg(const TopoView& view);

}  // namespace mend::info
