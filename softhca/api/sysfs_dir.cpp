#include "softhca/api/sysfs_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace softhca {

namespace fs = std::filesystem;

std::unique_ptr<SysfsDir> SysfsDir::create(const std::string& device, int numa_node) {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "softhca-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) return nullptr;
  auto dir = std::unique_ptr<SysfsDir>(new SysfsDir);
  dir->root_ = pattern;
  dir->path_ = pattern + "/" + device;
  if (!fs::create_directories(dir->path_ + "/device", error)) return nullptr;
  std::ofstream(dir->path_ + "/device/numa_node") << numa_node << '\n';
  // The node's processors, if this machine has such a node.
  std::ifstream cpus("/sys/devices/system/node/node" + std::to_string(numa_node) + "/cpumap");
  std::string mask;
  if (std::getline(cpus, mask)) std::ofstream(dir->path_ + "/device/local_cpus") << mask << '\n';
  return dir;
}

SysfsDir::~SysfsDir() {
  std::error_code ignored;
  if (!root_.empty()) fs::remove_all(root_, ignored);
}

}  // namespace softhca
