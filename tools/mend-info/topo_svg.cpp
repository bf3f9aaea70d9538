// A picture: packages beside each other, NUMA nodes in them, NICs and ranks on their nodes.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>

#include "tools/mend-info/topo_view.h"

namespace mend::info {
namespace {

constexpr int kNodeWidth = 250;
constexpr int kLine = 18;
constexpr int kPad = 12;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c >= ' ' && c <= '~' ? c : '?';  // names of files may hold anything
  }
  return out;
}

struct Box {
  std::string title;
  std::vector<std::string> nics, ranks;
  int height() const {
    return (static_cast<int>(nics.size() + ranks.size()) + 1) * kLine + 3 * kPad;
  }
};

std::string text_at(int x, int y, const std::string& text, const char* style) {
  return fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", x, y, style, escaped(text));
}

std::string rect_at(int x, int y, int width, int height, const char* style) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" {}/>\n", x, y,
                     width, height, style);
}

std::string drawn(const Box& box, int x, int y) {
  std::string svg = rect_at(x, y, kNodeWidth, box.height(), "fill=\"#f4f7fb\" stroke=\"#7d93ad\"");
  int line = y + kPad + kLine - 4;
  svg += text_at(x + kPad, line, box.title, "font-weight=\"bold\"");
  for (const std::string& nic : box.nics)
    svg += text_at(x + kPad, line += kLine, nic, "fill=\"#0b6e4f\"");
  for (const std::string& rank : box.ranks)
    svg += text_at(x + kPad, line += kLine, rank, "fill=\"#8a3b12\"");
  return svg;
}

Box node_box(const TopoView& view, topo::NodeIndex index) {
  const topo::NumaNode& node = view.machine.snapshot.nodes[index];
  Box box;
  box.title = fmt::format("NUMA {}{}", node.os_index, node.kind.empty() ? "" : " " + node.kind);
  for (const PortRow& port : view.machine.ports)
    if (port.numa == node.os_index)
      box.nics.push_back(fmt::format("{} {} {}", port.name(), port.state, port.pci));
  const auto usable = view.machine.usable();
  for (const RankRow& row : view.ranks) {
    if (row.binding.empty() || row.binding.front() != index || row.plan.rails.empty()) continue;
    box.ranks.push_back(fmt::format("rank {} uses {}, distance {:g}", row.rank,
                                    usable[row.plan.rails[0].index]->name(),
                                    row.plan.rails[0].distance));
  }
  return box;
}

Box elsewhere(const TopoView& view) {
  Box box;
  box.title = "on no one NUMA node";
  for (const PortRow& port : view.machine.ports)
    if (port.numa < 0) box.nics.push_back(fmt::format("{} {}", port.name(), port.state));
  const auto usable = view.machine.usable();
  for (const RankRow& row : view.ranks)
    if (row.binding.empty() && !row.plan.rails.empty())
      box.ranks.push_back(fmt::format("rank {} (unbound) uses {}", row.rank,
                                      usable[row.plan.rails[0].index]->name()));
  return box;
}

}  // namespace

std::string as_svg(const TopoView& view) {
  std::map<int, std::vector<Box>> columns;
  for (topo::NodeIndex i = 0; i < view.machine.snapshot.nodes.size(); ++i)
    columns[view.machine.snapshot.nodes[i].package].push_back(node_box(view, i));
  if (Box box = elsewhere(view); !box.nics.empty() || !box.ranks.empty())
    columns[INT_MAX].push_back(box);
  std::string body;
  int x = kPad;
  int bottom = 0;
  for (const auto& [package, boxes] : columns) {
    int height = 2 * kPad + kLine;
    for (const Box& box : boxes) height += box.height() + kPad;
    body += rect_at(x, 3 * kPad, kNodeWidth + 2 * kPad, height, "fill=\"#ffffff\" stroke=\"#333\"");
    const std::string title = package == INT_MAX ? "elsewhere"
                              : package < 0      ? "no package"
                                                 : fmt::format("Package {}", package);
    body += text_at(x + kPad, 3 * kPad + kLine, title, "font-size=\"15\"");
    int y = 4 * kPad + kLine;
    for (const Box& box : boxes) {
      body += drawn(box, x + kPad, y);
      y += box.height() + kPad;
    }
    bottom = std::max(bottom, 3 * kPad + height);
    x += kNodeWidth + 3 * kPad;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n{}{}</svg>\n",
      x + kPad, bottom + kPad,
      text_at(kPad, 2 * kPad, view.machine.source + ", policy " + view.policy, ""), body);
}

}  // namespace mend::info
