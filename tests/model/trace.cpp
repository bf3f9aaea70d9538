#include "tests/model/trace.h"

#include <fstream>
#include <sstream>

namespace mend::conn::model {
namespace {

void read_epochs(std::istream& in, std::map<std::string, std::uint32_t>& out, const char* until) {
  std::string name;
  std::uint32_t epoch = 0;
  while (in >> name && name != until && in >> epoch) out[name] = epoch;
}

std::optional<TraceLine> read_line(const std::string& text) {
  std::istringstream in(text);
  TraceLine line;
  in >> line.verb >> line.side;
  if (!in || line.side < 0 || line.side > 1) return std::nullopt;
  if (line.verb == "step" || line.verb == "send" || line.verb == "end") in >> line.name;
  std::uint32_t number = 0;
  if (line.verb != "end") {
    while (in >> number) line.numbers.push_back(number);
    return line;
  }
  std::string word;
  in >> number >> word;
  line.numbers.push_back(number);
  if (word != "takes") return std::nullopt;
  read_epochs(in, line.takes, "keeps");
  read_epochs(in, line.keeps, "tells");
  read_epochs(in, line.tells, "");
  return line;
}

}  // namespace

std::optional<Trace> read_trace(const std::string& path) {
  std::ifstream file(path);
  Trace trace;
  std::string text;
  while (std::getline(file, text)) {
    const auto line = read_line(text);
    if (!line) return std::nullopt;
    trace.push_back(*line);
  }
  if (trace.empty()) return std::nullopt;
  return trace;
}

}  // namespace mend::conn::model
