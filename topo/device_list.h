// The lists of btl_mend_if_include and if_exclude: "dev[:port],dev[:port]...", as openib had them.
// Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "plugin/verbs/error.h"

namespace mend::topo {

struct Port {
  std::string device;
  int number = 1;
  friend bool operator==(const Port&, const Port&) = default;
};

struct Selector {
  std::string device;
  int port = 0;  // 0 = every port
  friend bool operator==(const Selector&, const Selector&) = default;
};

// mlx5_2 before mlx5_10: by the digits' value where both have digits.
bool name_less(const std::string& a, const std::string& b);

Result<std::vector<Selector>> parse_device_list(const std::string& text);

// Indices into `present` that the two lists leave, in the order of `present`. At most one list may
// be given; a device or port that does not exist is an error that names it (a typing error must not
// silently change which NIC a job uses).
Result<std::vector<std::size_t>> select_ports(std::span<const Port> present,
                                              const std::string& include,
                                              const std::string& exclude);

}  // namespace mend::topo
