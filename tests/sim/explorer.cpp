// explorer: runs many random schedules and names the seed of the first that fails.
//   explorer --count N [--from SEED] [--kinds a,b]    runs SEED .. SEED + N - 1
//   explorer --seed SEED                              runs one, with a trace on stderr
//   explorer --count N --expect TEXT                  succeeds if one fails, and says TEXT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/verbs/log.h"
#include "tests/sim/chaos.h"

namespace {

using namespace mend::sim;

void trace(mend::LogLevel, std::string_view text) { fmt::print(stderr, "{}\n", text); }

std::uint32_t mask_of(const std::vector<std::string>& names) {
  if (names.empty() || names.front() == "all") return ~0u;
  std::uint32_t mask = 0;
  for (const std::string& name : names) {
    unsigned kind = 0;
    while (kind < kKinds && name != to_string(static_cast<Kind>(kind))) ++kind;
    if (kind == kKinds) throw std::invalid_argument("no kind of fault is called " + name);
    mask |= 1u << kind;
  }
  return mask;
}

std::string kinds_of(const Plan& plan) {
  std::string text;
  for (unsigned i = 0; i < kKinds; ++i)
    if ((plan.kinds & 1u << i) != 0) text += fmt::format(" {}", to_string(static_cast<Kind>(i)));
  return text;
}

bool says_one_of(const std::string& complaints, const std::vector<std::string>& expected) {
  return std::any_of(expected.begin(), expected.end(), [&](const std::string& text) {
    return complaints.find(text) != std::string::npos;
  });
}

struct Totals {
  std::uint64_t schedules = 0, failed = 0, faults = 0, put_repeats = 0, executed = 0;
  std::int64_t recoveries = 0, replayed = 0;
  std::array<std::uint64_t, kKinds> hits{};

  void add(const Outcome& outcome) {
    ++schedules;
    failed += outcome.complaints.empty() ? 0 : 1;
    faults += outcome.faults;
    put_repeats += outcome.put_repeats;
    executed += outcome.executed;
    recoveries += outcome.recoveries;
    replayed += outcome.replayed;
    for (unsigned i = 0; i < kKinds; ++i) hits[i] += outcome.hits[i];
  }
};

void report_failure(std::uint64_t seed, const Plan& plan, const Outcome& outcome) {
  fmt::print("seed {} failed ({} processes, {} operations, up to {} faults of:{}):\n{}", seed,
             plan.nodes, plan.operations, plan.faults, kinds_of(plan), outcome.complaints);
  std::fflush(stdout);
}

int report(const Totals& totals, std::uint32_t mask) {
  fmt::print(
      "{} schedules, {} failed; {} faults, {} recoveries, {} operations replayed, {} puts "
      "executed again, {} requests executed\n",
      totals.schedules, totals.failed, totals.faults, totals.recoveries, totals.replayed,
      totals.put_repeats, totals.executed);
  bool idle = false;
  for (unsigned i = 0; i < kKinds; ++i) {
    fmt::print("  {:<16}{}\n", to_string(static_cast<Kind>(i)), totals.hits[i]);
    idle = idle || ((mask & 1u << i) != 0 && totals.hits[i] == 0);
  }
  if (totals.failed != 0) return 1;
  // A run in which a kind of fault never happened proves less than it says.
  if (totals.schedules >= 1000 && (idle || totals.recoveries == 0 || totals.replayed == 0)) {
    fmt::print("some kind of fault never happened\n");
    return 1;
  }
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Runs random schedules of faults and traffic on simulated mend processes"};
  std::uint64_t count = 1000, from = 1, seed = 0;
  unsigned most_failures = 5;
  std::vector<std::string> expected;
  std::vector<std::string> kinds;
  app.add_option("--count", count, "how many schedules");
  app.add_option("--from", from, "first seed");
  app.add_option("--seed", seed, "run this one only, with a trace");
  app.add_option("--kinds", kinds, "only these kinds of faults, or all")->delimiter(',');
  app.add_option("--most-failures", most_failures, "stop after so many failures");
  app.add_option("--expect", expected, "a schedule must fail, with one of these in its complaints");
  CLI11_PARSE(app, argc, argv);
  const std::uint32_t mask = mask_of(kinds);
  if (seed != 0) {
    mend::set_log_sink(&trace);
    from = seed;
    count = 1;
  }
  Totals totals;
  for (std::uint64_t s = from; s < from + count && totals.failed < most_failures; ++s) {
    const Plan plan = plan_of(s, mask);
    const Outcome outcome = run_chaos(s, plan);
    totals.add(outcome);
    if (outcome.complaints.empty()) continue;
    report_failure(s, plan, outcome);
    if (says_one_of(outcome.complaints, expected)) {
      fmt::print("noticed in schedule {}, as expected\n", s - from + 1);
      std::fflush(stdout);
      return 0;
    }
  }
  if (!expected.empty()) {
    fmt::print("no schedule failed with '{}'\n", fmt::join(expected, "' or '"));
    return 1;
  }
  return report(totals, mask);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "explorer: %s\n", error.what());
    return 2;
  }
}
