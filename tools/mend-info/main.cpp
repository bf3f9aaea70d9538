// mend-info: what mend sees of a machine and what it would do there, without MPI running.
// Exit codes: 0 done, 1 it could not be found out (the reason is on standard error), others from
// the command line parser.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tools/mend-info/environment.h"
#include "tools/mend-info/machine.h"
#include "tools/mend-info/ranks.h"
#include "tools/mend-info/reports.h"
#include "tools/mend-info/topo_view.h"

namespace mend::info {
namespace {

struct Options {
  topo::Source source;
  std::string policy, bind_to = "core", bindings, svg, device, include, exclude, library;
  unsigned ranks = 0;
  unsigned peers = 1;
  bool json = false;
};

int complain(const std::string& what) {
  fmt::print(stderr, "mend-info: {}\n", what);
  return 1;
}

Result<conn::Params> params_of(const Options& options) {
  auto params = params_of_environment();
  if (!params) return params;
  if (!options.policy.empty()) params->numa_policy = options.policy;
  if (!options.library.empty()) params->verbs_library = options.library;
  if (!options.include.empty()) params->if_include = options.include;
  if (!options.exclude.empty()) params->if_exclude = options.exclude;
  return params;
}

// This process alone, as it is bound.
std::vector<RankRow> this_process(const Machine& machine, topo::Policy policy) {
  RankRow row;
  row.binding = machine.snapshot.process;
  row.plan = topo::plan_rank(machine.snapshot, machine.candidates(), policy, {}, 0);
  cut_to_most_rails(row.plan);
  return {row};
}

Result<std::vector<RankRow>> rows_of(const Options& options, const Machine& machine,
                                     topo::Policy policy) {
  if (!options.bindings.empty()) return preview_bindings(machine, options.bindings, policy);
  if (options.ranks > 0) return preview(machine, options.ranks, options.bind_to, policy);
  return this_process(machine, policy);
}

int topo_report(const Options& options, const conn::Params& params) {
  const auto machine = look_at(options.source, params);
  if (!machine) return complain(machine.error().message);
  const topo::Policy policy = topo::parse_policy(params.numa_policy).value_or(topo::Policy::Near);
  const auto rows = rows_of(options, *machine, policy);
  if (!rows) return complain(rows.error().message);
  const bool is_preview = options.ranks > 0 || !options.bindings.empty();
  const TopoView view{*machine, params.numa_policy, *rows, is_preview};
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    file << as_svg(view);
    if (!file.flush()) return complain("cannot write " + options.svg);
  }
  if (options.json)
    fmt::print("{}", as_json(view));
  else if (options.svg.empty())
    fmt::print("{}", as_text(view));
  return 0;
}

int said(const Result<void>& result) { return result ? 0 : complain(result.error().message); }

void add_topo(CLI::App& app, Options& options) {
  CLI::App* topo = app.add_subcommand(
      "topo", "The machine, where its NICs are, how far, and which ones a process uses");
  auto* from = topo->add_option_group("source", "another machine than this one");
  from->add_option("--xml", options.source.xml, "an hwloc XML file (lstopo FILE.xml)");
  from->add_option("--synthetic", options.source.synthetic,
                   "an hwloc synthetic description, e.g. \"package:2 numa:2 core:4 pu:1\"");
  from->add_option("--fsroot", options.source.fsroot,
                   "the root of another Linux' files, with sysfs");
  from->require_option(0, 1);
  topo->add_option("--binding", options.source.binding,
                   "CPUs that this process counts as bound to");
  topo->add_option("--ranks", options.ranks, "preview this many ranks of a node")
      ->check(CLI::Range(1, 65536));
  topo->add_option(
          "--bind-to", options.bind_to,
          "of the preview: core, numa, socket or none, ranks being mapped by the same unit, as "
          "mpirun --map-by UNIT --bind-to UNIT does")
      ->capture_default_str();
  topo->add_option(
      "--bindings", options.bindings,
      "of the preview: the CPUs of each rank, lists separated by slashes, \"0-3/4-7\"");
  topo->add_option("--policy", options.policy, "near, spread or none (btl_mend_numa_policy)")
      ->check(CLI::IsMember({"near", "spread", "none"}));
  topo->add_flag("--json", options.json, "for programs");
  topo->add_option("--svg", options.svg, "draw a picture into this file");
}

int run(int argc, char** argv) {
  CLI::App app{
      "What mend sees of this machine and what it would do. Works without MPI. The parameters "
      "btl_mend_* are taken from the environment (OMPI_MCA_btl_mend_NAME)."};
  app.require_subcommand(1);
  app.fallthrough();  // before the subcommands, which inherit it
  Options options;
  app.add_option("--library", options.library, "btl_mend_verbs_library: auto, softhca or a path");
  app.add_option("--include", options.include, "btl_mend_if_include: DEVICE[:PORT],...");
  app.add_option("--exclude", options.exclude, "btl_mend_if_exclude");
  app.add_subcommand("devices", "Devices, their limits, ports and GIDs, and the memlock limit");
  add_topo(app, options);
  CLI::App* size = app.add_subcommand("size", "Queue depths and memory for a number of peers");
  size->add_option("--peers", options.peers, "other processes of the job")
      ->required()
      ->check(CLI::Range(1, 10000000));
  size->add_option("--device", options.device, "the device to plan for; default: the first usable");
  app.add_subcommand("params", "All parameters with values, defaults, ranges and meanings");
  CLI11_PARSE(app, argc, argv);

  const auto params = params_of(options);
  if (!params) return complain(params.error().message);
  if (app.got_subcommand("devices")) return said(report_devices(*params));
  if (app.got_subcommand("topo")) return topo_report(options, *params);
  if (app.got_subcommand("size")) return said(report_sizes(*params, options.peers, options.device));
  report_params(*params);
  return 0;
}

}  // namespace
}  // namespace mend::info

int main(int argc, char** argv) {
  try {
    return mend::info::run(argc, argv);
  } catch (const std::exception& error) {
    return mend::info::complain(error.what());
  }
}
