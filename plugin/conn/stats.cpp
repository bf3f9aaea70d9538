#include "plugin/conn/stats.h"

#include <nlohmann/json.hpp>

namespace mend::conn {

const std::array<const char*, kStats> kStatNames = {"sends",
                                                    "recvs",
                                                    "puts",
                                                    "gets",
                                                    "atomics",
                                                    "bytes_sent",
                                                    "bytes_received",
                                                    "connections",
                                                    "qps_created",
                                                    "qps_destroyed",
                                                    "qps_live_max",
                                                    "recoveries",
                                                    "replayed",
                                                    "replayed_bytes",
                                                    "in_doubt",
                                                    "dup_rx",
                                                    "failovers",
                                                    "failbacks",
                                                    "heartbeat_misses",
                                                    "hb_false_alarm",
                                                    "rnr",
                                                    "srq_depth",
                                                    "srq_min_free",
                                                    "srq_lost",
                                                    "mrs_live_max",
                                                    "mr_bytes_max",
                                                    "max_outage_us",
                                                    "repairs",
                                                    "ctl_dropped",
                                                    "ctl_stale",
                                                    "slowed"};

std::string Stats::to_json() const {
  nlohmann::ordered_json line;
  line["rank"] = rank;
  line["host"] = host;
  line["device"] = device;
  for (std::size_t i = 0; i < kStats; ++i) line[kStatNames[i]] = values[i];
  line["rails"] = nlohmann::ordered_json::array();
  for (const RailStats& rail : rails)
    line["rails"].push_back({{"name", rail.name},
                             {"numa", rail.numa_node},
                             {"distance", rail.distance},
                             {"bytes_sent", rail.bytes_sent},
                             {"bytes_received", rail.bytes_received},
                             {"gid", rail.gid},
                             {"gid_index", rail.gid_index},
                             {"path_mtu", rail.path_mtu}});
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace mend::conn
