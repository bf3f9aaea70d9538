#include "plugin/mca/stats.h"

#include <cstdio>

namespace mend::mca {

std::string stats_suffix(std::uint32_t rank, std::optional<std::uint32_t> spawned_job) {
  const std::string suffix = std::to_string(rank);
  return spawned_job ? std::to_string(*spawned_job) + "." + suffix : suffix;
}

bool write_stats(const std::string& destination, const std::string& suffix,
                 const std::string& json) {
  if (destination.empty()) return true;
  const std::string line = json + "\n";
  if (destination == "stderr") {
    // One call, so that lines of different processes do not mix.
    return std::fwrite(line.data(), 1, line.size(), stderr) == line.size();
  }
  const std::string path = destination + "." + suffix;
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  return (std::fclose(file) == 0) && written;
}

}  // namespace mend::mca
