// The models of tests/model and the state machines of plugin/conn are one protocol: every schedule
// that trace_models.py took from the models is replayed in real machines. What a broken machine
// would do is noticed, and what a broken model does is not what the machines do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "tests/model/broken_steps.h"
#include "tests/model/replay.h"

namespace mend::conn::model {
namespace {

struct Schedule {
  std::string name;
  Trace trace;
};

std::vector<Schedule> schedules(const std::string& folder) {
  const char* root = std::getenv("MEND_TRACES");
  std::vector<Schedule> all;
  if (root == nullptr) return all;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(root) / folder)) {
    if (entry.path().extension() != ".trace") continue;
    const auto trace = read_trace(entry.path().string());
    EXPECT_TRUE(trace.has_value()) << entry.path();
    if (trace) all.push_back(Schedule{entry.path().stem().string(), *trace});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

const std::vector<Schedule>& sound() {
  static const std::vector<Schedule> all = schedules(".");
  return all;
}

class Conformance : public testing::TestWithParam<unsigned> {};

TEST_P(Conformance, TheMachinesDoWhatTheModelsDo) {
  ASSERT_GE(sound().size(), 100u) << "MEND_TRACES must name what trace_models.py wrote";
  std::size_t questions = 0;
  for (const Schedule& schedule : sound()) {
    Replay replay(step, GetParam());
    EXPECT_EQ(replay.run(schedule.trace), "") << schedule.name;
    questions += replay.questions();
  }
  EXPECT_GT(questions, 10000u);
}

INSTANTIATE_TEST_SUITE_P(Variants, Conformance, testing::Values(0u, 1u));

// The schedules go everywhere: a transition that none of them takes is not checked.
TEST(ConformanceCoverage, EveryTransitionOfTheModelsIsTaken) {
  std::set<std::string> taken;
  for (const Schedule& schedule : sound()) {
    Replay replay;
    (void)replay.run(schedule.trace);
    taken.insert(replay.transitions().begin(), replay.transitions().end());
  }
  for (const char* transition : kTransitions) EXPECT_TRUE(taken.contains(transition)) << transition;
}

class BrokenMachine : public testing::TestWithParam<BrokenStep> {};

TEST_P(BrokenMachine, IsNoticed) {
  ASSERT_FALSE(sound().empty());
  std::size_t noticed = 0;
  std::string how;
  for (const Schedule& schedule : sound()) {
    Replay replay(GetParam().step);
    const std::string difference = replay.run(schedule.trace);
    if (!difference.empty() && noticed++ == 0) how = schedule.name + " " + difference;
  }
  EXPECT_GT(noticed, 0u);
  std::cout << noticed << " schedules notice it: " << how << "\n";
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenMachine, testing::ValuesIn(broken_steps()),
                         [](const auto& broken) { return std::string(broken.param.name); });

// The counterexample of a model without a rule is something that the machines refuse to follow.
TEST(BrokenModel, IsNotWhatTheMachinesDo) {
  const auto broken = schedules("broken");
  ASSERT_GE(broken.size(), 10u);
  for (const Schedule& schedule : broken) {
    Replay replay;
    const std::string difference = replay.run(schedule.trace);
    EXPECT_NE(difference, "") << schedule.name;
    std::cout << schedule.name << ": " << difference << "\n";
  }
}

}  // namespace
}  // namespace mend::conn::model
