// softhcactl: look at and disturb a running fabric of the software HCA.
// Exit codes: 0 done, 1 no such fabric, device or port, others from the command line parser.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "softhca/fault/fault_names.h"
#include "tools/softhcactl/fabric_admin.h"
#include "tools/softhcactl/fabrics.h"
#include "tools/softhcactl/render.h"

namespace softhcactl {
namespace {

struct Options {
  std::string fabric;
  bool json = false;
  std::string device;
  unsigned port = 1;
  std::string state;
  std::vector<unsigned> places;
  std::string rules;
};

int complain(const std::string& what) {
  fmt::print(stderr, "softhcactl: {}\n", what);
  return 1;
}

void show(const Options& options, const nlohmann::ordered_json& json, const std::string& text) {
  fmt::print("{}", options.json ? json.dump(2) + "\n" : text);
}

int list_all(const Options& options) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  for (const FabricFile& file : find_fabrics()) {
    if (!options.fabric.empty() && file.name != options.fabric) continue;
    if (!file.live) {
      all.push_back({{"fabric", file.name}, {"stale", true}});
      text += fmt::format("fabric {}  stale: no process is attached\n", file.name);
      continue;
    }
    auto admin = FabricAdmin::attach(file.name);
    if (!admin) {
      // Jobs of another version may run beside ours; that must not hide the others.
      if (!options.fabric.empty()) return complain(admin.error());
      all.push_back({{"fabric", file.name}, {"error", admin.error()}});
      text += fmt::format("fabric {}  {}\n", file.name, admin.error());
      continue;
    }
    all.push_back(describe(**admin));
    text += as_text(all.back());
  }
  if (all.empty() && !options.fabric.empty())
    return complain(fmt::format("no fabric '{}'", options.fabric));
  show(options, all, text.empty() ? "no fabric is running\n" : text);
  return 0;
}

int set_port(const Options& options, FabricAdmin& admin) {
  const auto changed = admin.set_port(options.device, options.port, options.state == "up");
  if (!changed) return complain(changed.error());
  const std::string text = fmt::format("{}/{} {}{}\n", options.device, options.port,
                                       *changed ? "" : "already ", options.state);
  show(options,
       {{"device", options.device},
        {"port", options.port},
        {"state", options.state},
        {"changed", *changed}},
       text);
  return 0;
}

int swap_gids(const Options& options, FabricAdmin& admin) {
  const unsigned a = options.places[0];
  const unsigned b = options.places[1];
  const auto changed = admin.swap_gids(options.device, options.port, a, b);
  if (!changed) return complain(changed.error());
  const std::string text = fmt::format("{}/{} GIDs {} and {}{} exchanged\n", options.device,
                                       options.port, a, b, *changed ? "" : " hold nothing to be");
  show(options,
       {{"device", options.device},
        {"port", options.port},
        {"swapped", {a, b}},
        {"changed", *changed}},
       text);
  return 0;
}

int reset(const Options& options, FabricAdmin& admin) {
  admin.reset();
  show(options, {{"fabric", admin.name()}, {"reset", true}}, "reset\n");
  return 0;
}

int counters(const Options& options, FabricAdmin& admin) {
  const auto json = describe_counters(admin);
  show(options, json, counters_as_text(json));
  return 0;
}

int fault_add(const Options& options, FabricAdmin& admin) {
  const auto added = admin.add_faults(options.rules);
  if (!added) return complain(added.error());
  show(options, {{"fabric", admin.name()}, {"added", *added}}, fmt::format("{} added\n", *added));
  return 0;
}

int fault_clear(const Options& options, FabricAdmin& admin) {
  admin.clear_faults();
  show(options, {{"fabric", admin.name()}, {"cleared", true}}, "cleared\n");
  return 0;
}

int fault_list(const Options& options, FabricAdmin& admin) {
  const auto json = describe_faults(admin);
  show(options, json, faults_as_text(json));
  return 0;
}

int with_fabric(const Options& options, int (*command)(const Options&, FabricAdmin&)) {
  const auto name = choose_fabric(options.fabric);
  if (!name) return complain(name.error());
  auto admin = FabricAdmin::attach(*name);
  if (!admin) return complain(admin.error());
  return command(options, **admin);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"Looks at and disturbs a running fabric of the software HCA (docs/softhca.md)."};
  app.add_option("--fabric", options.fabric,
                 "fabric name; default: SOFTHCA_FABRIC, or the only one");
  app.add_flag("--json", options.json, "answer in JSON");
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* list = app.add_subcommand("list", "fabrics with their ports and processes");
  CLI::App* port = app.add_subcommand("port", "take a port down or up");
  port->add_option("DEVICE", options.device)->required();
  port->add_option("PORT", options.port)->required();
  port->add_option("STATE", options.state)->required()->check(CLI::IsMember({"up", "down"}));
  CLI::App* gids = app.add_subcommand("gid", "exchange two places of a port's GID table");
  gids->add_option("DEVICE", options.device)->required();
  gids->add_option("PORT", options.port)->required();
  gids->add_option("PLACES", options.places, "two indices; one may be empty")
      ->required()
      ->expected(2)
      ->check(CLI::Range(0U, softhca::kMaxGids - 1));
  CLI::App* count = app.add_subcommand("counters", "what each queue pair has sent");
  app.add_subcommand("reset", "counters to zero, ports and GIDs as configured");
  CLI::App* fault = app.add_subcommand("fault", "change the fault schedule, and see its hits");
  fault->require_subcommand(1);
  fault->footer(softhca::fault_help());
  CLI::App* add = fault->add_subcommand("add", "puts rules in force, for every process");
  add->add_option("RULES", options.rules, "rules, separated by ';'")->required();
  CLI::App* clear = fault->add_subcommand("clear", "takes all rules away");
  CLI::App* faults = fault->add_subcommand("list", "rules in force, with their hits");
  CLI11_PARSE(app, argc, argv);
  if (list->parsed()) return list_all(options);
  if (add->parsed()) return with_fabric(options, fault_add);
  if (clear->parsed()) return with_fabric(options, fault_clear);
  if (faults->parsed()) return with_fabric(options, fault_list);
  if (port->parsed()) return with_fabric(options, set_port);
  if (gids->parsed()) return with_fabric(options, swap_gids);
  return with_fabric(options, count->parsed() ? counters : reset);
}

}  // namespace
}  // namespace softhcactl

int main(int argc, char** argv) {
  try {
    return softhcactl::run(argc, argv);
  } catch (const std::exception& e) {
    return softhcactl::complain(e.what());
  }
}
