#include "softhca/conf/conf.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "softhca/conf/conf_keys.h"

namespace softhca {
namespace {

std::string_view trim(std::string_view s) {
  const size_t from = s.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(" \t\r") - from + 1);
}

bool valid_device_name(std::string_view name) {
  if (name.empty() || name.size() >= IBV_SYSFS_NAME_MAX) return false;
  if (std::isalpha(static_cast<unsigned char>(name[0])) == 0) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

// The EUI-64 based link-local GID of a port.
GidConf link_local_gid(uint64_t guid, unsigned port_index, ibv_gid_type type) {
  GidConf gid{.raw = {0xfe, 0x80}, .type = type};
  const uint64_t id = guid + port_index;
  for (unsigned i = 0; i < 8; ++i) gid.raw[8 + i] = static_cast<uint8_t>(id >> (56 - 8 * i));
  return gid;
}

GidConf ipv4_gid(unsigned device_index, unsigned port_index) {
  GidConf gid;
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[13] = 77;
  gid.raw[14] = static_cast<uint8_t>(device_index);
  gid.raw[15] = static_cast<uint8_t>(port_index + 1);
  return gid;
}

void fill_port_defaults(const DeviceConf& dev, unsigned dev_index, unsigned port_index,
                        PortConf& port) {
  const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (port.pkeys.empty()) port.pkeys.push_back(0xffff);
  if (port.gids.empty()) {
    port.gids.push_back(link_local_gid(dev.node_guid, port_index,
                                       ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB));
    if (ethernet) port.gids.push_back(ipv4_gid(dev_index, port_index));
  }
  if (!ethernet && port.lid == 0)
    port.lid = static_cast<uint16_t>(1 + dev_index * kMaxPorts + port_index);
  if (!ethernet && port.sm_lid == 0) port.sm_lid = 1;
}

void fill_defaults(FabricConf& conf) {
  for (unsigned d = 0; d < conf.devices.size(); ++d) {
    DeviceConf& dev = conf.devices[d];
    if (dev.node_guid == 0) dev.node_guid = 0x0250f7fffe000000ULL + (uint64_t{d} << 8);
    if (dev.ports.empty()) dev.ports.emplace_back();
    for (unsigned p = 0; p < dev.ports.size(); ++p) fill_port_defaults(dev, d, p, dev.ports[p]);
  }
}

// Line by line reader of the INI text; the section decides where a key goes.
class Parser {
 public:
  explicit Parser(std::string_view file) : file_(file) {}

  ConfResult<FabricConf> run(std::string_view text) {
    if (text.size() > kMaxConfText)
      return fail(0, "longer than " + std::to_string(kMaxConfText) + " bytes");
    conf_.text = text;
    for (line_ = 1; !text.empty(); ++line_) {
      const size_t end = text.find('\n');
      std::string error = take_line(text.substr(0, end));
      if (error.empty() && end == std::string_view::npos) break;
      if (!error.empty()) return fail(line_, std::move(error));
      text.remove_prefix(end + 1);
    }
    if (conf_.devices.empty()) return fail(0, "no device: expected a section such as [softhca0]");
    fill_defaults(conf_);
    return check();
  }

 private:
  tl::unexpected<ConfError> fail(unsigned line, std::string msg) const {
    return tl::make_unexpected(ConfError{file_, line, std::move(msg)});
  }

  std::string take_line(std::string_view line) {
    line = trim(line.substr(0, line.find_first_of("#;")));
    if (line.empty()) return {};
    if (line.front() == '[') return open_section(line);
    const size_t eq = line.find('=');
    if (eq == std::string_view::npos) return "expected 'key = value' or '[section]'";
    return set_key(trim(line.substr(0, eq)), trim(line.substr(eq + 1)));
  }

  std::string open_section(std::string_view line) {
    if (line.back() != ']') return "a section ends with ']'";
    const std::string_view name = trim(line.substr(1, line.size() - 2));
    const size_t slash = name.find('/');
    seen_.clear();
    in_port_ = slash != std::string_view::npos;
    return in_port_ ? open_port(trim(name.substr(0, slash)), trim(name.substr(slash + 1)))
                    : open_device(name);
  }

  std::string open_device(std::string_view name) {
    if (!valid_device_name(name))
      return "'" + std::string(name) +
             "' is not a device name (a letter, then letters, digits, _ or -)";
    for (const DeviceConf& d : conf_.devices)
      if (d.name == name) return "device '" + std::string(name) + "' appears twice";
    if (conf_.devices.size() == kMaxDevices)
      return "more than " + std::to_string(kMaxDevices) + " devices";
    conf_.devices.emplace_back();
    conf_.devices.back().name = name;
    return {};
  }

  std::string open_port(std::string_view device, std::string_view number) {
    if (conf_.devices.empty() || conf_.devices.back().name != device)
      return "a port section [" + std::string(device) + "/N] must follow its device section [" +
             std::string(device) + "]";
    auto& ports = conf_.devices.back().ports;
    if (ports.size() == kMaxPorts) return "more than " + std::to_string(kMaxPorts) + " ports";
    const std::string expected = std::to_string(ports.size() + 1);
    if (number != expected)
      return "ports are numbered 1, 2, ...: expected [" + std::string(device) + "/" + expected +
             "]";
    ports.emplace_back();
    return {};
  }

  std::string set_key(std::string_view key, std::string_view value) {
    if (conf_.devices.empty()) return "'" + std::string(key) + "' stands before the first section";
    DeviceConf& dev = conf_.devices.back();
    const auto result = in_port_ ? conf_detail::set_port_key(dev.ports.back(), key, value)
                                 : conf_detail::set_device_key(dev, key, value);
    if (!result.known) {
      return std::string("unknown ") + (in_port_ ? "port" : "device") + " key '" +
             std::string(key) + "'; known are: " +
             (in_port_ ? conf_detail::port_key_names() : conf_detail::device_key_names());
    }
    if (!result.error.empty()) return std::string(key) + ": " + result.error;
    if (!seen_.insert(std::string(key)).second && !result.repeatable)
      return "'" + std::string(key) + "' appears twice in this section";
    return {};
  }

  // What only the whole picture shows.
  ConfResult<FabricConf> check() {
    for (const DeviceConf& dev : conf_.devices) {
      for (size_t p = 0; p < dev.ports.size(); ++p) {
        const PortConf& port = dev.ports[p];
        const std::string where = dev.name + "/" + std::to_string(p + 1) + ": ";
        if (port.active_mtu > port.max_mtu) return fail(0, where + "mtu is above max_mtu");
        const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        if (ethernet && port.lid != 0) return fail(0, where + "an ethernet port has no lid");
        for (const GidConf& gid : port.gids) {
          if ((gid.type == IBV_GID_TYPE_IB) == ethernet)
            return fail(0, where + "the GID type does not fit the link layer");
        }
      }
    }
    return std::move(conf_);
  }

  std::string file_;
  unsigned line_ = 0;
  FabricConf conf_;
  std::set<std::string> seen_;  // keys of the open section
  bool in_port_ = false;
};

}  // namespace

std::string ConfError::str() const {
  return line == 0 ? file + ": " + msg : file + ":" + std::to_string(line) + ": " + msg;
}

ConfResult<FabricConf> parse_conf(std::string_view text, std::string_view file_name) {
  return Parser(file_name).run(text);
}

ConfResult<FabricConf> load_conf_file(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return tl::make_unexpected(
        ConfError{path, 0, std::string("cannot read: ") + std::strerror(errno)});
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) return tl::make_unexpected(ConfError{path, 0, "cannot read"});
  return parse_conf(text, path);
}

ConfResult<FabricConf> load_conf_from_env() {
  const char* path = std::getenv("SOFTHCA_CONF");
  if (path == nullptr || *path == '\0') return default_conf();
  return load_conf_file(path);
}

FabricConf default_conf() { return *parse_conf("[softhca0]\n", "built-in"); }

}  // namespace softhca
