#include "softhca/api/sysfs_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace softhca {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "softhca-";

// A directory is in use while its process holds a lock on it, which the kernel drops however the
// process ends. -1: cannot be had.
int lock_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// Takes away what processes left that were killed. A fresh directory may not be locked yet.
void remove_stale(const fs::path& folder) {
  constexpr auto kFresh = std::chrono::seconds(60);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    struct stat st {};
    const bool ours =
        ::lstat(entry.path().c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid();
    if (!ours || fs::file_time_type::clock::now() - entry.last_write_time(error) < kFresh) continue;
    const int fd = lock_directory(entry.path());
    if (fd < 0) continue;
    fs::remove_all(entry.path(), error);
    ::close(fd);
  }
}

}  // namespace

std::unique_ptr<SysfsDir> SysfsDir::create(const std::string& device, int numa_node) {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) return nullptr;
  remove_stale(folder);
  std::string pattern = (folder / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) return nullptr;
  auto dir = std::unique_ptr<SysfsDir>(new SysfsDir);
  dir->root_ = pattern;
  dir->lock_fd_ = lock_directory(pattern);
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
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

}  // namespace softhca
