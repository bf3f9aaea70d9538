#include "softhca/conf/conf_keys.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace softhca::conf_detail {
namespace {

std::optional<uint64_t> parse_u64(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

template <typename T>
std::string set_number(T& out, std::string_view value, uint64_t lo, uint64_t hi) {
  const auto n = parse_u64(value);
  if (!n || *n < lo || *n > hi) {
    return "'" + std::string(value) + "' is not a number from " + std::to_string(lo) + " to " +
           std::to_string(hi);
  }
  out = static_cast<T>(*n);
  return {};
}

template <typename T, size_t N>
std::string set_choice(T& out, std::string_view value,
                       const std::array<std::pair<std::string_view, T>, N>& choices) {
  std::string legal;
  for (const auto& [name, v] : choices) {
    if (name == value) {
      out = v;
      return {};
    }
    legal += legal.empty() ? "" : ", ";
    legal += name;
  }
  return "'" + std::string(value) + "' is not one of: " + legal;
}

std::string set_bool(bool& out, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, bool>, 8> kChoices{{{"yes", true},
                                                                       {"no", false},
                                                                       {"true", true},
                                                                       {"false", false},
                                                                       {"on", true},
                                                                       {"off", false},
                                                                       {"1", true},
                                                                       {"0", false}}};
  return set_choice(out, value, kChoices);
}

std::string set_mtu(ibv_mtu& out, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, ibv_mtu>, 5> kChoices{{{"256", IBV_MTU_256},
                                                                          {"512", IBV_MTU_512},
                                                                          {"1024", IBV_MTU_1024},
                                                                          {"2048", IBV_MTU_2048},
                                                                          {"4096", IBV_MTU_4096}}};
  return set_choice(out, value, kChoices);
}

// A rate in Gb/s as the pair that ibv_port_attr reports.
std::string set_rate(PortConf& port, std::string_view value) {
  struct WidthSpeed {
    uint8_t width;
    uint8_t speed;
  };
  constexpr std::array<std::pair<std::string_view, WidthSpeed>, 9> kRates{{{"10", {2, 1}},
                                                                           {"20", {2, 2}},
                                                                           {"25", {1, 32}},
                                                                           {"40", {2, 4}},
                                                                           {"50", {1, 64}},
                                                                           {"56", {2, 16}},
                                                                           {"100", {2, 32}},
                                                                           {"200", {2, 64}},
                                                                           {"400", {2, 128}}}};
  WidthSpeed chosen{};
  std::string error = set_choice(chosen, value, kRates);
  if (error.empty()) {
    port.active_width = chosen.width;
    port.active_speed = chosen.speed;
  }
  return error;
}

std::string set_gid_address(GidConf& gid, const std::string& address) {
  std::array<uint8_t, 4> v4{};
  if (inet_pton(AF_INET, address.c_str(), v4.data()) == 1) {
    gid.raw = {};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::copy(v4.begin(), v4.end(), gid.raw.begin() + 12);
    return {};
  }
  if (inet_pton(AF_INET6, address.c_str(), gid.raw.data()) == 1) return {};
  return "'" + address + "' is neither an IPv6 nor an IPv4 address";
}

// "[ib|rocev1|rocev2] ADDRESS"
std::string add_gid(PortConf& port, std::string_view value) {
  if (port.gids.size() == kMaxGids)
    return "more than " + std::to_string(kMaxGids) + " GIDs on one port";
  GidConf gid;
  gid.type = port.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
  const size_t space = value.find_first_of(" \t");
  if (space != std::string_view::npos) {
    constexpr std::array<std::pair<std::string_view, ibv_gid_type>, 3> kTypes{
        {{"ib", IBV_GID_TYPE_IB},
         {"rocev1", IBV_GID_TYPE_ROCE_V1},
         {"rocev2", IBV_GID_TYPE_ROCE_V2}}};
    std::string error = set_choice(gid.type, value.substr(0, space), kTypes);
    if (!error.empty()) return error;
    value.remove_prefix(value.find_first_not_of(" \t", space));
  }
  std::string error = set_gid_address(gid, std::string(value));
  if (error.empty()) port.gids.push_back(gid);
  return error;
}

std::string add_pkey(PortConf& port, std::string_view value) {
  if (port.pkeys.size() == kMaxPkeys)
    return "more than " + std::to_string(kMaxPkeys) + " P_Keys on one port";
  uint16_t pkey = 0;
  std::string error = set_number(pkey, value, 1, 0xffff);
  if (error.empty()) port.pkeys.push_back(pkey);
  return error;
}

std::string set_fw_ver(DeviceConf& device, std::string_view value) {
  if (value.empty() || value.size() > 63) return "a firmware version has 1 to 63 characters";
  device.fw_ver = value;
  return {};
}

template <typename Target>
struct Key {
  std::string_view name;
  std::string (*set)(Target&, std::string_view);
  bool repeatable = false;
};

// A numeric limit: member, lowest and highest legal value.
template <auto Member, uint64_t Lo, uint64_t Hi>
std::string limit(DeviceConf& device, std::string_view value) {
  return set_number(device.limits.*Member, value, Lo, Hi);
}

constexpr uint64_t kMillion = 1U << 20;
using D = DeviceConf;
using L = Limits;

constexpr std::array kDeviceKeys{
    Key<D>{"node_guid",
           [](D& d, std::string_view v) { return set_number(d.node_guid, v, 1, UINT64_MAX); }},
    Key<D>{"vendor_id",
           [](D& d, std::string_view v) { return set_number(d.vendor_id, v, 0, 0xffffff); }},
    Key<D>{"vendor_part_id",
           [](D& d, std::string_view v) { return set_number(d.vendor_part_id, v, 0, UINT32_MAX); }},
    Key<D>{"hw_ver",
           [](D& d, std::string_view v) { return set_number(d.hw_ver, v, 0, UINT32_MAX); }},
    Key<D>{"fw_ver", set_fw_ver},
    Key<D>{"numa_node",
           [](D& d, std::string_view v) { return set_number(d.numa_node, v, 0, 1023); }},
    Key<D>{"atomics", [](D& d, std::string_view v) { return set_bool(d.limits.atomics, v); }},
    Key<D>{"max_qp", limit<&L::max_qp, 1, kMillion>},
    Key<D>{"max_qp_wr", limit<&L::max_qp_wr, 1, 65536>},
    Key<D>{"max_sge", limit<&L::max_sge, 1, 16>},
    Key<D>{"max_sge_rd", limit<&L::max_sge_rd, 1, 16>},
    Key<D>{"max_cq", limit<&L::max_cq, 1, kMillion>},
    Key<D>{"max_cqe", limit<&L::max_cqe, 1, 4 * kMillion>},
    Key<D>{"max_mr", limit<&L::max_mr, 1, kMillion>},
    Key<D>{"max_mr_size", limit<&L::max_mr_size, 4096, uint64_t{1} << 47>},
    Key<D>{"max_pd", limit<&L::max_pd, 1, kMillion>},
    Key<D>{"max_ah", limit<&L::max_ah, 1, kMillion>},
    Key<D>{"max_srq", limit<&L::max_srq, 0, kMillion>},
    Key<D>{"max_srq_wr", limit<&L::max_srq_wr, 1, 65536>},
    Key<D>{"max_srq_sge", limit<&L::max_srq_sge, 1, 16>},
    Key<D>{"max_inline", limit<&L::max_inline, 0, 1024>},
    Key<D>{"max_rd_atomic", limit<&L::max_rd_atomic, 0, 128>},
    Key<D>{"max_msg_size", limit<&L::max_msg_size, 256, uint64_t{1} << 31>},
};

std::string set_link_layer(PortConf& p, std::string_view v) {
  constexpr std::array<std::pair<std::string_view, uint8_t>, 2> kChoices{
      {{"ethernet", IBV_LINK_LAYER_ETHERNET}, {"infiniband", IBV_LINK_LAYER_INFINIBAND}}};
  return set_choice(p.link_layer, v, kChoices);
}

std::string set_state(PortConf& p, std::string_view v) {
  constexpr std::array<std::pair<std::string_view, ibv_port_state>, 4> kChoices{
      {{"active", IBV_PORT_ACTIVE},
       {"down", IBV_PORT_DOWN},
       {"init", IBV_PORT_INIT},
       {"armed", IBV_PORT_ARMED}}};
  return set_choice(p.state, v, kChoices);
}

using P = PortConf;
constexpr std::array kPortKeys{
    Key<P>{"link_layer", set_link_layer},
    Key<P>{"state", set_state},
    Key<P>{"max_mtu", [](P& p, std::string_view v) { return set_mtu(p.max_mtu, v); }},
    Key<P>{"mtu", [](P& p, std::string_view v) { return set_mtu(p.active_mtu, v); }},
    Key<P>{"lid", [](P& p, std::string_view v) { return set_number(p.lid, v, 1, 0xbfff); }},
    Key<P>{"sm_lid", [](P& p, std::string_view v) { return set_number(p.sm_lid, v, 0, 0xbfff); }},
    Key<P>{"lmc", [](P& p, std::string_view v) { return set_number(p.lmc, v, 0, 7); }},
    Key<P>{"rate_gbps", set_rate},
    Key<P>{"require_grh", [](P& p, std::string_view v) { return set_bool(p.require_grh, v); }},
    Key<P>{"gid", add_gid, true},
    Key<P>{"pkey", add_pkey, true},
};

template <typename Target>
SetResult set_in(std::span<const Key<Target>> keys, Target& target, std::string_view key,
                 std::string_view value) {
  for (const Key<Target>& k : keys) {
    if (k.name == key)
      return {.known = true, .repeatable = k.repeatable, .error = k.set(target, value)};
  }
  return {};
}

template <typename Target>
std::string names_of(std::span<const Key<Target>> keys) {
  std::string all;
  for (const Key<Target>& k : keys) {
    all += all.empty() ? "" : ", ";
    all += k.name;
  }
  return all;
}

}  // namespace

SetResult set_device_key(DeviceConf& device, std::string_view key, std::string_view value) {
  return set_in<DeviceConf>(kDeviceKeys, device, key, value);
}

SetResult set_port_key(PortConf& port, std::string_view key, std::string_view value) {
  return set_in<PortConf>(kPortKeys, port, key, value);
}

std::string device_key_names() { return names_of<DeviceConf>(kDeviceKeys); }
std::string port_key_names() { return names_of<PortConf>(kPortKeys); }

}  // namespace softhca::conf_detail
