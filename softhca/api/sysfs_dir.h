// A private directory that looks like /sys/class/infiniband/<device> as far as a device's place in
// the machine is concerned (device/numa_node, device/local_cpus): programs read it through
// ibv_device.ibdev_path. Made only for devices whose configuration names a NUMA node; removed with
// the object; those of processes that were killed by the next one that makes its own.
#pragma once

#include <memory>
#include <string>

namespace softhca {

class SysfsDir {
 public:
  // nullptr if it cannot be made; the device then has no locality.
  static std::unique_ptr<SysfsDir> create(const std::string& device, int numa_node);
  ~SysfsDir();
  SysfsDir(const SysfsDir&) = delete;
  SysfsDir& operator=(const SysfsDir&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  SysfsDir() = default;

  std::string root_;
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace softhca
