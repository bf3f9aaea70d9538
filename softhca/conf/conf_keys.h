// The keys of the INI file, as tables: name, range and where the value goes. Internal to
// softhca/conf. A setter returns an empty string or what is wrong with the value. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "softhca/conf/conf.h"

namespace softhca::conf_detail {

// Sets one key; `known` tells an unknown key from a bad value, `repeatable` keys append.
struct SetResult {
  bool known = false;
  bool repeatable = false;
  std::string error;
};

SetResult set_device_key(DeviceConf& device, std::string_view key, std::string_view value);
SetResult set_port_key(PortConf& port, std::string_view key, std::string_view value);
std::string device_key_names();
std::string port_key_names();

}  // namespace softhca::conf_detail
