#include "plugin/mca/stats.h"

#include <cstdio>

namespace mend::mca {

bool write_stats(const std::string& destination, std::uint32_t rank, const std::string& json) {
  if (destination.empty()) return true;
  const std::string line = json + "\n";
  if (destination == "stderr") {
    // One call, so that lines of different processes do not mix.
    return std::fwrite(line.data(), 1, line.size(), stderr) == line.size();
  }
  const std::string path = destination + "." + std::to_string(rank);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  return (std::fclose(file) == 0) && written;
}

}  // namespace mend::mca
