// The fabrics of this user on this host, found by their files in /dev/shm. Reads only.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace softhcactl {

struct FabricFile {
  std::string name;
  bool live =
      false;  // some process is attached; a dead one is cleaned up by the next that attaches
};

std::vector<FabricFile> find_fabrics();

// The fabric to work on: `wanted`, else SOFTHCA_FABRIC, else the only live one. A message if there
// is none.
tl::expected<std::string, std::string> choose_fabric(const std::string& wanted);

}  // namespace softhcactl
