#include "tools/softhcactl/fabrics.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "softhca/engine/shm_layout.h"

namespace softhcactl {
namespace {

namespace fs = std::filesystem;

// Whether any process holds a slot byte of the segment.
bool is_live(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = softhca::kMaxSlots;
  const bool held = ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

}  // namespace

std::vector<FabricFile> find_fabrics() {
  const std::string prefix = "softhca.";
  const std::string suffix = "." + std::to_string(::geteuid());
  std::vector<FabricFile> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string file = entry.path().filename();
    if (!file.starts_with(prefix) || !file.ends_with(suffix)) continue;
    if (file.size() <= prefix.size() + suffix.size()) continue;
    const std::string name =
        file.substr(prefix.size(), file.size() - prefix.size() - suffix.size());
    if (name.find('.') != std::string::npos) continue;  // the segment of one process
    found.push_back({name, is_live(entry.path())});
  }
  std::sort(found.begin(), found.end(),
            [](const FabricFile& a, const FabricFile& b) { return a.name < b.name; });
  return found;
}

tl::expected<std::string, std::string> choose_fabric(const std::string& wanted) {
  std::string name = wanted;
  if (const char* env = std::getenv("SOFTHCA_FABRIC"); name.empty() && env != nullptr) name = env;
  std::string live_names;
  unsigned live = 0;
  for (const FabricFile& f : find_fabrics()) {
    if (!f.live) continue;
    if (f.name == name) return name;
    live_names += (live++ == 0 ? "" : ", ") + f.name;
  }
  if (live == 0)
    return tl::make_unexpected(name.empty() ? "no fabric is running"
                                            : fmt::format("no fabric '{}' is running", name));
  if (!name.empty())
    return tl::make_unexpected(
        fmt::format("no fabric '{}' is running; there is: {}", name, live_names));
  if (live > 1)
    return tl::make_unexpected(
        fmt::format("choose one with --fabric: {} ('softhcactl list' shows the "
                    "processes of each)",
                    live_names));
  return live_names;
}

}  // namespace softhcactl
