// Lists in parameters: text in parts, between separators. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace mend::topo {

// At least one part; parts may be empty.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

}  // namespace mend::topo
