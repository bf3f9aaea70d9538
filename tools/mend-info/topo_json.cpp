#include <nlohmann/json.hpp>

#include "tools/mend-info/topo_view.h"

namespace mend::info {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(int value) { return value < 0 ? Json(nullptr) : Json(value); }

Json device_json(const PortRow& port) {
  return {{"name", port.device},
          {"port", port.port},
          {"numa", number_or_null(port.numa)},
          {"package", number_or_null(port.package)},
          {"pci", port.pci.empty() ? Json(nullptr) : Json(port.pci)},
          {"speed_gbps", port.speed_gbps ? Json(*port.speed_gbps) : Json(nullptr)},
          {"state", port.state}};
}

Json rank_json(const Machine& machine, const std::vector<const PortRow*>& usable,
               const RankRow& row) {
  Json rails = Json::array();
  for (const topo::RankedNic& nic : row.plan.rails)
    rails.push_back({{"rail", usable[nic.index]->name()}, {"distance", nic.distance}});
  const bool one = row.binding.size() == 1;
  return {{"rank", row.rank},
          {"numa", one ? Json(machine.snapshot.nodes[row.binding[0]].os_index) : Json(nullptr)},
          {"rail", rails.empty() ? Json(nullptr) : rails[0]["rail"]},
          {"distance", rails.empty() ? Json(nullptr) : rails[0]["distance"]},
          {"rails", rails},
          {"cpus", row.cpus}};
}

}  // namespace

std::string as_json(const TopoView& view) {
  Json all{{"devices", Json::array()}, {"ranks", Json::array()}};
  for (const PortRow& port : view.machine.ports) all["devices"].push_back(device_json(port));
  const auto usable = view.machine.usable();
  for (const RankRow& row : view.ranks)
    all["ranks"].push_back(rank_json(view.machine, usable, row));
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mend::info
