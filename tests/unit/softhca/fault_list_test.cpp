// The fault schedule: grammar, occurrence rules, the board that a fabric keeps it on.
#include "softhca/fault/fault_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "softhca/fault/fault_board.h"
#include "softhca/fault/fault_names.h"

namespace softhca {
namespace {

FaultRule rule_of(const std::string& text) {
  const auto list = parse_faults(text);
  EXPECT_TRUE(list.has_value()) << list.error().str();
  if (!list || list->size() != 1) return {};
  return list->front();
}

TEST(FaultList, EmptyTextHasNoRules) {
  const auto list = parse_faults(" # nothing\n\n ; ");
  ASSERT_TRUE(list.has_value());
  EXPECT_TRUE(list->empty());
}

TEST(FaultList, OccurrenceForms) {
  const FaultRule third = rule_of("fail=create_qp:3:ENOMEM");
  EXPECT_EQ(third.call, FaultCall::CreateQp);
  EXPECT_EQ(third.error, ENOMEM);
  const FaultRule from_second = rule_of("fail=reg_mr:2+:EAGAIN");
  const FaultRule every_third = rule_of("fail=modify_qp:1/3:22");
  EXPECT_EQ(every_third.error, EINVAL);
  std::string hits;
  for (uint64_t i = 1; i <= 5; ++i) {
    hits += third.hits(i) ? 'a' : '-';
    hits += from_second.hits(i) ? 'b' : '-';
    hits += every_third.hits(i) ? 'c' : '-';
  }
  EXPECT_EQ(hits,
            "--c"
            "-b-"
            "ab-"
            "-bc"
            "-b-");
}

TEST(FaultList, EveryCallCanBeNamed) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(FaultCall::kCount); ++i) {
    const auto call = static_cast<FaultCall>(i);
    const std::string name(fault_call_name(call));
    EXPECT_EQ(rule_of("fail=" + name + ":1:EIO").call, call);
    const FaultRule slow = rule_of("delay=" + name + ":1:5ms");
    EXPECT_EQ(slow.call, call);
    EXPECT_EQ(slow.delay, 5'000'000U);
  }
}

TEST(FaultList, EveryKindHasAnExampleThatParses) {
  for (const FaultKindInfo& info : fault_kinds()) {
    std::string text(info.name);
    if (info.kind == FaultKind::FailCall) text += "=create_qp:1:EIO";
    if (info.kind == FaultKind::DelayCall) text += "=create_qp:1:1us";
    if (info.kind == FaultKind::Status) text += "=REM_OP_ERR";
    if (info.kind == FaultKind::Event) text += "=IBV_EVENT_GID_CHANGE";
    EXPECT_EQ(rule_of(text).kind, info.kind) << text;
    EXPECT_EQ(fault_kind_name(info.kind), info.name);
    EXPECT_NE(fault_help().find(info.name), std::string::npos);
  }
}

TEST(FaultList, KeysSelectAndTime) {
  const FaultRule r = rule_of(
      "kill-qp:period=200ms:jitter=0.5:side=random:rank=2:peer=1:device=mlx5_0:port=2:qp=rc:"
      "from=1s:until=1.5s:limit=7:event=no");
  EXPECT_TRUE(r.timed);
  EXPECT_TRUE(acts_alone(r));
  EXPECT_EQ(r.period, 200'000'000U);
  EXPECT_DOUBLE_EQ(r.jitter, 0.5);
  EXPECT_EQ(r.side, FaultSide::Random);
  EXPECT_EQ(r.rank, 2);
  EXPECT_EQ(r.peer, 1);
  EXPECT_STREQ(r.device.data(), "mlx5_0");
  EXPECT_EQ(r.port, 2);
  EXPECT_EQ(r.from, 1'000'000'000U);
  EXPECT_EQ(r.until, 1'500'000'000U);
  EXPECT_EQ(r.limit, 7U);
  EXPECT_FALSE(r.event);
  const FaultRule drop = rule_of("drop:n=2/5:op=send,write:times=all:qp=rc");
  EXPECT_EQ(drop.times, kForever);
  EXPECT_NE(drop.opcodes & 1U << IBV_WR_SEND, 0U);
  EXPECT_NE(drop.opcodes & 1U << IBV_WR_RDMA_WRITE_WITH_IMM, 0U);
  EXPECT_EQ(drop.opcodes & 1U << IBV_WR_RDMA_READ, 0U);
  EXPECT_EQ(rule_of("fail=modify_qp:1:EIO:to=RTR").to_state, IBV_QPS_RTR);
  EXPECT_EQ(rule_of("status=IBV_WC_LOC_PROT_ERR").status, IBV_WC_LOC_PROT_ERR);
}

TEST(FaultList, SeedsHoldForWhatFollows) {
  const auto list = parse_faults("drop:p=0.1; seed=42; drop:p=0.1\nseed=43\ndrop:p=0.1");
  ASSERT_TRUE(list.has_value()) << list.error().str();
  EXPECT_EQ((*list)[0].seed, 1U);
  EXPECT_EQ((*list)[1].seed, 42U);
  EXPECT_EQ((*list)[2].seed, 43U);
}

TEST(FaultList, NonsenseIsNamed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"drip:n=1", "SOFTHCA_FAULTS: 'drip:n=1': unknown kind 'drip'; known are: seed, fail"},
      {"drop=1", "drop takes no argument"},
      {"status", "status needs =STATUS"},
      {"status=GREAT", "no completion status 'GREAT'"},
      {"event=PARTY", "no event 'PARTY'"},
      {"fail=create_cow:1:EIO", "no call 'create_cow'; known are: alloc_pd"},
      {"fail=create_qp:0:EIO", "'0' is not an occurrence"},
      {"fail=create_qp:1/0:EIO", "'1/0' is not an occurrence"},
      {"fail=create_qp:x:EIO", "'x' is not an occurrence"},
      {"fail=create_qp:1:EGAD", "no errno 'EGAD'"},
      {"fail=create_qp:1:", "no errno ''"},
      {"fail=create_qp:1:EIO:node=3", "'node' is no key of fail; known are: rank"},
      {"drop:rank=x", "'rank=x' is wrong"},
      {"drop:port=300", "'port=300' is wrong"},
      {"drop:n=1:p=0.5", "exclude each other"},
      {"drop:p=1.5", "'p=1.5' is wrong"},
      {"kill-qp:at=5", "'at=5' is wrong"},
      {"kill-qp:jitter=0.5", "jitter needs a period"},
      {"dup:qp=rc", "only datagrams"},
      {"seed=soon", "a seed is a number"},
  };
  for (const auto& [text, message] : cases) {
    const auto list = parse_faults(text);
    ASSERT_FALSE(list.has_value()) << text;
    EXPECT_NE(list.error().str().find(message), std::string::npos) << list.error().str();
  }
  std::string many;
  for (uint32_t i = 0; i <= kMaxFaultRules; ++i) many += "fail=create_qp:1:EIO;";
  EXPECT_FALSE(parse_faults(many).has_value());
}

TEST(FaultList, EnvironmentIsTextOrFile) {
  setenv("SOFTHCA_FAULTS", "fail=create_ah:1:EIO", 1);
  setenv("PMIX_RANK", "5", 1);
  auto list = load_faults_from_env();
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->size(), 1U);
  EXPECT_EQ(rank_from_env(), 5);
  const std::string path = testing::TempDir() + "softhca_faults_" + std::to_string(getpid());
  std::ofstream(path) << "# schedule\nseed=7\nfail=create_ah:1:EIO\nno-last-wqe\n";
  setenv("SOFTHCA_FAULTS", path.c_str(), 1);
  list = load_faults_from_env();
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->size(), 2U);
  EXPECT_EQ(list->back().seed, 7U);
  unlink(path.c_str());
  EXPECT_FALSE(load_faults_from_env().has_value());
  unsetenv("SOFTHCA_FAULTS");
  unsetenv("PMIX_RANK");
  EXPECT_TRUE(load_faults_from_env()->empty());
}

TEST(FaultBoard, ScheduleIsPublishedOnceAndClearedForAll) {
  auto board = std::make_unique<FaultBoard>();
  const auto list = parse_faults("drop:n=1; kill-qp:period=10ms");
  ASSERT_TRUE(list.has_value());
  EXPECT_TRUE(board_add(*board, *list, origin_of(*list), 1000));
  EXPECT_TRUE(board_add(*board, *list, origin_of(*list), 2000)) << "the second process of a job";
  EXPECT_TRUE(board_read(*board, 1).has_value());
  EXPECT_FALSE(board_read(*board, 2).has_value());
  EXPECT_EQ(board_read(*board, 0)->added, 1000U);
  EXPECT_EQ(board->slots[0].next_at, kNoTime);
  EXPECT_EQ(board->slots[1].next_at, 1000U + 10'000'000U);
  const uint32_t epoch = board->epoch;
  board_clear(*board);
  EXPECT_GT(board->epoch, epoch);
  EXPECT_FALSE(board_read(*board, 0).has_value());
  EXPECT_TRUE(board_add(*board, *list, 0, 5000));
  EXPECT_EQ(board_read(*board, 0)->serial, 3U) << "never the same twice";
}

TEST(FaultBoard, AFullBoardTakesNothing) {
  auto board = std::make_unique<FaultBoard>();
  FaultList most(kMaxFaultRules - 1, rule_of("drop:n=1"));
  EXPECT_TRUE(board_add(*board, most, 0, 0));
  EXPECT_FALSE(board_add(*board, FaultList(2, rule_of("drop:n=1")), 0, 0));
  EXPECT_FALSE(board_read(*board, kMaxFaultRules - 1).has_value());
}

TEST(FaultBoard, PeriodsVaryAsTheSeedSays) {
  const FaultRule r = rule_of("kill-qp:period=200ms:jitter=0.5");
  double sum = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t gap = fault_gap(r, 1, i);
    EXPECT_GE(gap, 100'000'000U);
    EXPECT_LE(gap, 300'000'000U);
    EXPECT_EQ(gap, fault_gap(r, 1, i));
    sum += static_cast<double>(gap);
  }
  EXPECT_NEAR(sum / 1000, 200e6, 10e6);
  EXPECT_NE(fault_gap(r, 1, 0), fault_gap(r, 1, 1));
}

}  // namespace
}  // namespace softhca
