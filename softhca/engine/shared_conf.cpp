#include "softhca/engine/shared_conf.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace softhca {

void publish_conf(GlobalShared& global, const FabricConf& conf) noexcept {
  uint32_t down_ports = 0;
  for (std::size_t d = 0; d < conf.devices.size(); ++d) {
    for (std::size_t p = 0; p < conf.devices[d].ports.size(); ++p) {
      const bool down = conf.devices[d].ports[p].state != IBV_PORT_ACTIVE;
      global.ports[d][p].down = down ? 1 : 0;
      down_ports += down ? 1 : 0;
    }
  }
  global.ports_disturbed = down_ports;
  std::memcpy(global.conf_text, conf.text.data(), conf.text.size());
  global.conf_length.store(static_cast<uint32_t>(conf.text.size()), std::memory_order_release);
}

int read_shared_conf(const GlobalShared& global, FabricConf* conf, std::string* why) {
  const uint32_t length = global.conf_length.load(std::memory_order_acquire);
  if (length == 0 || length > kMaxConfText) {
    *why = "the fabric has no configuration";
    return ENOENT;
  }
  auto parsed = parse_conf({global.conf_text, length}, "the fabric's configuration");
  if (!parsed) {
    *why = parsed.error().str();
    return EINVAL;
  }
  *conf = std::move(*parsed);
  return 0;
}

int agree_on_conf(GlobalShared& global, FabricConf* conf, std::string* why) {
  auto own = load_conf_from_env();
  if (!own) {
    *why = own.error().str();
    return EINVAL;
  }
  if (global.conf_length.load(std::memory_order_acquire) == 0) {
    publish_conf(global, *own);
    *conf = std::move(*own);
    return 0;
  }
  const char* wanted = std::getenv("SOFTHCA_CONF");
  const bool has_wish = wanted != nullptr && *wanted != '\0';
  const std::string_view present{global.conf_text, global.conf_length.load()};
  if (has_wish && own->text != present) {
    *why = std::string("SOFTHCA_CONF=") + wanted +
           " differs from the configuration with which this fabric is running; set another "
           "SOFTHCA_FABRIC or end the jobs that use this one";
    return EEXIST;
  }
  return read_shared_conf(global, conf, why);
}

}  // namespace softhca
