// The fault schedule: grammar, occurrence rules, counters.
#include "softhca/fault/fault_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace softhca {
namespace {

std::vector<int> calls(FaultTable& table, FaultCall call, int n) {
  std::vector<int> results;
  for (int i = 0; i < n; ++i) results.push_back(table.on_call(call));
  return results;
}

TEST(FaultList, NoScheduleNeverFails) {
  EXPECT_EQ(fault_on_call(nullptr, FaultCall::CreateQp), 0);
  auto table = parse_faults(" # nothing\n\n ; ");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->rule_count, 0U);
  EXPECT_EQ(fault_on_call(&*table, FaultCall::CreateQp), 0);
}

TEST(FaultList, TheKthCallFailsAndIsCounted) {
  auto table = parse_faults("seed=42; fail=create_qp:3:ENOMEM");
  ASSERT_TRUE(table.has_value()) << table.error().str();
  EXPECT_EQ(table->seed, 42U);
  EXPECT_EQ(calls(*table, FaultCall::CreateCq, 3), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(calls(*table, FaultCall::CreateQp, 5), (std::vector<int>{0, 0, ENOMEM, 0, 0}));
  EXPECT_EQ(table->hit_count(0), 1U);
}

TEST(FaultList, OccurrenceForms) {
  auto table = parse_faults("fail=reg_mr:2+:EAGAIN\nfail=modify_qp:1/3:22");
  ASSERT_TRUE(table.has_value()) << table.error().str();
  EXPECT_EQ(calls(*table, FaultCall::RegMr, 4), (std::vector<int>{0, EAGAIN, EAGAIN, EAGAIN}));
  EXPECT_EQ(calls(*table, FaultCall::ModifyQp, 5), (std::vector<int>{EINVAL, 0, 0, EINVAL, 0}));
  EXPECT_EQ(table->hit_count(0), 3U);
  EXPECT_EQ(table->hit_count(1), 2U);
}

TEST(FaultList, EveryCallCanBeNamed) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(FaultCall::kCount); ++i) {
    const auto call = static_cast<FaultCall>(i);
    auto table = parse_faults("fail=" + std::string(fault_call_name(call)) + ":1:EIO");
    ASSERT_TRUE(table.has_value()) << table.error().str();
    EXPECT_EQ(table->on_call(call), EIO);
  }
}

TEST(FaultList, RankLimitsARule) {
  auto table = parse_faults("fail=alloc_pd:1+:EIO:rank=2");
  ASSERT_TRUE(table.has_value()) << table.error().str();
  EXPECT_EQ(table->on_call(FaultCall::AllocPd), 0) << "a process without a rank is not rank 2";
  table->own_rank = 2;
  EXPECT_EQ(table->on_call(FaultCall::AllocPd), EIO);
}

TEST(FaultList, NonsenseIsNamed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"drop=1", "SOFTHCA_FAULTS: 'drop=1': unknown kind 'drop'"},
      {"fail=create_cow:1:EIO", "no call 'create_cow'; known are: alloc_pd"},
      {"fail=create_qp:0:EIO", "'0' is not an occurrence"},
      {"fail=create_qp:1/0:EIO", "'1/0' is not an occurrence"},
      {"fail=create_qp:x:EIO", "'x' is not an occurrence"},
      {"fail=create_qp:1:EGAD", "no errno 'EGAD'"},
      {"fail=create_qp:1:", "no errno ''"},
      {"fail=create_qp:1:EIO:node=3", "expected rank=R, got 'node=3'"},
      {"seed=soon", "a seed is a number"},
  };
  for (const auto& [text, message] : cases) {
    const auto table = parse_faults(text);
    ASSERT_FALSE(table.has_value()) << text;
    EXPECT_NE(table.error().str().find(message), std::string::npos) << table.error().str();
  }
  std::string many;
  for (uint32_t i = 0; i <= kMaxFaultRules; ++i) many += "fail=create_qp:1:EIO;";
  EXPECT_FALSE(parse_faults(many).has_value());
}

TEST(FaultList, EnvironmentIsTextOrFile) {
  setenv("SOFTHCA_FAULTS", "fail=create_ah:1:EIO", 1);
  setenv("PMIX_RANK", "5", 1);
  auto table = load_faults_from_env();
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->rule_count, 1U);
  EXPECT_EQ(table->own_rank, 5);
  const std::string path = testing::TempDir() + "softhca_faults_" + std::to_string(getpid());
  std::ofstream(path) << "# schedule\nseed=7\nfail=create_ah:1:EIO\nfail=create_qp:1:EIO\n";
  setenv("SOFTHCA_FAULTS", path.c_str(), 1);
  table = load_faults_from_env();
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->rule_count, 2U);
  EXPECT_EQ(table->seed, 7U);
  unlink(path.c_str());
  EXPECT_FALSE(load_faults_from_env().has_value());
  unsetenv("SOFTHCA_FAULTS");
  unsetenv("PMIX_RANK");
  EXPECT_EQ(load_faults_from_env()->rule_count, 0U);
}

}  // namespace
}  // namespace softhca
