// What the fabric looks like: devices, ports, GID and P_Key tables, limits. Read once per fabric
// from the INI file named by SOFTHCA_CONF (grammar in docs/softhca.md), else the built-in single
// RoCE v2 device. Plain values; parsing is pure except for load_from_env and load_file, which read.
// Invariant of a FabricConf that parse() returned: 1..kMaxDevices devices with distinct names, each
// with 1..kMaxPorts ports, each port with at least one GID and one P_Key, active MTU <= maximum
// MTU.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "softhca/rules/limits.h"

namespace softhca {

inline constexpr unsigned kMaxDevices = 16;
inline constexpr unsigned kMaxPorts = 8;
inline constexpr unsigned kMaxGids = 16;
inline constexpr unsigned kMaxPkeys = 16;
inline constexpr unsigned kMaxConfText = 16384;

struct GidConf {
  std::array<uint8_t, 16> raw{};
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
};

inline constexpr std::array<uint8_t, 12> kIpv4Mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct PortConf {
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_port_state state = IBV_PORT_ACTIVE;
  ibv_mtu max_mtu = IBV_MTU_4096;
  ibv_mtu active_mtu = IBV_MTU_4096;
  uint16_t lid = 0;  // 0 on Ethernet
  uint16_t sm_lid = 0;
  uint8_t lmc = 0;
  uint8_t active_width = 2;   // as ibv_port_attr encodes them: 4x ...
  uint8_t active_speed = 32;  // ... EDR, 100 Gb/s
  bool require_grh = false;   // refuse address vectors without GRH, as RoCE NICs do
  std::vector<GidConf> gids;
  std::vector<uint16_t> pkeys;
};

struct DeviceConf {
  std::string name;
  uint64_t node_guid = 0;  // host byte order; 0 before the defaults are filled in
  uint32_t vendor_id = 0x50f7;
  uint32_t vendor_part_id = 1;
  uint32_t hw_ver = 1;
  std::string fw_ver = "1.0.0";
  int numa_node = -1;  // -1: no locality
  Limits limits;
  std::vector<PortConf> ports;
};

struct FabricConf {
  std::vector<DeviceConf> devices;
  // The INI text this was parsed from. The first process of a fabric leaves it in the segment; the
  // others and softhcactl parse that, so that everybody sees one fabric.
  std::string text;
};

struct ConfError {
  std::string file;
  unsigned line = 0;  // 0: the file as a whole
  std::string msg;

  // "file:line: msg", as compilers print it.
  std::string str() const;
};

template <typename T>
using ConfResult = tl::expected<T, ConfError>;

ConfResult<FabricConf> parse_conf(std::string_view text, std::string_view file_name);
ConfResult<FabricConf> load_conf_file(const std::string& path);
// SOFTHCA_CONF if it is set and not empty, else default_conf().
ConfResult<FabricConf> load_conf_from_env();
FabricConf default_conf();

}  // namespace softhca
