#include "tools/softhcactl/render.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <array>

namespace softhcactl {
namespace {

using nlohmann::ordered_json;

std::string gid_text(const softhca::GidConf& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw.data(), text.data(), text.size());
  return text.data();
}

const char* gid_type_text(ibv_gid_type type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "ib";
    case IBV_GID_TYPE_ROCE_V1:
      return "rocev1";
    case IBV_GID_TYPE_ROCE_V2:
      return "rocev2";
  }
  return "?";
}

const char* qp_type_text(uint32_t type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    default:
      return "?";
  }
}

const char* qp_state_text(uint32_t state) {
  constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < kNames.size() ? kNames[state] : "?";
}

ordered_json describe_port(const PortView& view) {
  const softhca::PortConf& conf = *view.conf;
  ordered_json gids = ordered_json::array();
  for (unsigned place = 0; place < view.gids.size(); ++place) {
    if (const auto& gid = view.gids[place])
      gids.push_back(
          {{"gid", gid_text(*gid)}, {"type", gid_type_text(gid->type)}, {"index", place}});
  }
  const bool ethernet = conf.link_layer == IBV_LINK_LAYER_ETHERNET;
  return {{"device", view.device},
          {"port", view.port},
          {"state", view.up ? "up" : "down"},
          {"link_layer", ethernet ? "ethernet" : "infiniband"},
          {"lid", conf.lid},
          {"mtu", 128U << static_cast<unsigned>(conf.active_mtu)},
          {"gids", std::move(gids)}};
}

}  // namespace

ordered_json describe(FabricAdmin& admin) {
  ordered_json out{{"fabric", admin.name()},
                   {"ports", ordered_json::array()},
                   {"processes", ordered_json::array()}};
  for (const PortView& view : admin.ports()) out["ports"].push_back(describe_port(view));
  for (const ProcessView& p : admin.processes())
    out["processes"].push_back({{"slot", p.slot}, {"pid", p.pid}, {"qps", p.qps}});
  return out;
}

ordered_json describe_counters(FabricAdmin& admin) {
  ordered_json out{{"fabric", admin.name()}, {"qps", ordered_json::array()}};
  for (const QpView& q : admin.qps()) {
    out["qps"].push_back({{"qpn", q.qpn},
                          {"pid", q.pid},
                          {"type", qp_type_text(q.type)},
                          {"state", qp_state_text(q.state)},
                          {"dest_qpn", q.dest_qpn},
                          {"device", q.device},
                          {"port", q.port},
                          {"tx_messages", q.tx_messages},
                          {"tx_bytes", q.tx_bytes},
                          {"rnr_naks", q.rnr_naks},
                          {"retries", q.retries}});
  }
  return out;
}

ordered_json describe_faults(FabricAdmin& admin) {
  ordered_json out{{"fabric", admin.name()}, {"hits", 0}, {"rules", ordered_json::array()}};
  uint64_t hits = 0;
  for (const FabricAdmin::FaultView& f : admin.faults()) {
    hits += f.hits;
    out["rules"].push_back({{"rule", f.rule},
                            {"text", f.text},
                            {"seed", f.seed},
                            {"hits", f.hits},
                            {"everybody", f.everybody}});
  }
  out["hits"] = hits;
  return out;
}

std::string faults_as_text(const ordered_json& faults) {
  std::string out = fmt::format("{:>4} {:>10}  rule\n", "no", "hits");
  for (const auto& f : faults["rules"]) {
    out += fmt::format("{:>4} {:>10}  {}\n", f["rule"].get<uint32_t>(), f["hits"].get<uint64_t>(),
                       f["text"].get<std::string>());
  }
  return out;
}

std::string as_text(const ordered_json& fabric) {
  std::string out = fmt::format("fabric {}\n", fabric["fabric"].get<std::string>());
  for (const auto& p : fabric["ports"]) {
    out += fmt::format("  {}/{}  {:<4}  {}  mtu {}", p["device"].get<std::string>(),
                       p["port"].get<unsigned>(), p["state"].get<std::string>(),
                       p["link_layer"].get<std::string>(), p["mtu"].get<unsigned>());
    if (p["lid"].get<unsigned>() != 0) out += fmt::format("  lid {}", p["lid"].get<unsigned>());
    out += "\n";
    for (const auto& gid : p["gids"])
      out += fmt::format("    {:<6}  {}\n", gid["type"].get<std::string>(),
                         gid["gid"].get<std::string>());
  }
  for (const auto& p : fabric["processes"])
    out += fmt::format("  process {}  pid {}  queue pairs {}\n", p["slot"].get<unsigned>(),
                       p["pid"].get<int>(), p["qps"].get<unsigned>());
  return out;
}

std::string counters_as_text(const ordered_json& counters) {
  std::string out =
      fmt::format("{:>8} {:>8} {:<4} {:<5} {:>8} {:<14} {:>12} {:>14} {:>8} {:>8}\n", "qpn", "pid",
                  "type", "state", "dest", "port", "messages", "bytes", "rnr", "retries");
  for (const auto& q : counters["qps"]) {
    out +=
        fmt::format("{:>8} {:>8} {:<4} {:<5} {:>8} {:<14} {:>12} {:>14} {:>8} {:>8}\n",
                    q["qpn"].get<uint32_t>(), q["pid"].get<int>(), q["type"].get<std::string>(),
                    q["state"].get<std::string>(), q["dest_qpn"].get<uint32_t>(),
                    fmt::format("{}/{}", q["device"].get<std::string>(), q["port"].get<unsigned>()),
                    q["tx_messages"].get<uint64_t>(), q["tx_bytes"].get<uint64_t>(),
                    q["rnr_naks"].get<uint64_t>(), q["retries"].get<uint64_t>());
  }
  return out;
}

}  // namespace softhcactl
