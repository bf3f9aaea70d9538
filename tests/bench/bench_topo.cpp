// How long mapping a machine takes beside hwloc's own loading of the same file: topo::load() and
// the plan of one rank per core, against hwloc_topology_load() with I/O devices kept. Interleaved,
// medians; prints a table, and JSON with --json FILE. Not a timed test.
#include <fmt/core.h>
#include <hwloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "topo/rank_nics.h"
#include "topo/snapshot.h"

namespace {

using mend::topo::Binding;
using mend::topo::Policy;
using mend::topo::Source;

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

bool load_with_hwloc(const std::string& file) {
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return false;
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  const bool loaded = hwloc_topology_set_xml(t, file.c_str()) == 0 && hwloc_topology_load(t) == 0;
  hwloc_topology_destroy(t);
  return loaded;
}

// The number of rails that the ranks got.
std::size_t map_machine(const std::string& file) {
  const auto s = mend::topo::load(Source{file, "", "", ""});
  if (!s) return 0;
  std::vector<std::string> names;
  for (const auto& device : s->devices) names.push_back(device.name);
  std::vector<std::optional<Binding>> bindings;
  for (const auto& core : s->cores) bindings.emplace_back(s->nodes_of(core));
  return mend::topo::plan_rank(*s, names, Policy::Near, bindings, bindings.size() / 2).rails.size();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

int start(int argc, char** argv) {
  CLI::App app{"Mapping a machine beside hwloc's own loading of it."};
  std::vector<std::string> files;
  std::string json;
  unsigned pairs = 31;
  app.add_option("FILE", files, "hwloc XML files")->required();
  app.add_option("--pairs", pairs, "interleaved runs of each")->check(CLI::Range(1, 100000));
  app.add_option("--json", json, "also write the medians here");
  CLI11_PARSE(app, argc, argv);
  auto rows = nlohmann::ordered_json::array();
  fmt::print("{:>10} {:>10} {:>7}  file\n", "hwloc us", "mend us", "ratio");
  for (const std::string& file : files) {
    std::vector<double> theirs, ours;
    for (unsigned i = 0; i < pairs; ++i) {
      const double start = now_us();
      if (!load_with_hwloc(file)) return 1;
      const double middle = now_us();
      if (map_machine(file) == 0) return 1;
      theirs.push_back(middle - start);
      ours.push_back(now_us() - middle);
    }
    const double a = median(theirs);
    const double b = median(ours);
    fmt::print("{:>10.0f} {:>10.0f} {:>7.2f}  {}\n", a, b, b / a, file);
    rows.push_back({{"file", file}, {"hwloc_us", a}, {"mend_us", b}, {"ratio", b / a}});
  }
  if (!json.empty()) std::ofstream(json) << rows.dump(2) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_topo FAILED: %s\n", e.what());
    return 1;
  }
}
