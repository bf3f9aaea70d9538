// The ranking is a pure function; snapshots are written by hand.
#include "topo/rank_nics.h"

#include <gtest/gtest.h>

namespace mend::topo {
namespace {

// Two packages with two nodes each; a NIC on node 0, one on node 3, one without a place, one on the
// whole second package.
Snapshot two_packages(std::vector<NodeIndex> process) {
  Snapshot s;
  s.nodes = {{0, 0}, {1, 0}, {2, 1}, {3, 1}};
  s.devices = {{"near0", "0000:01:00.0", {0}},
               {"far3", "0000:c1:00.0", {3}},
               {"nowhere", "", {}},
               {"package1", "0000:81:00.0", {2, 3}}};
  s.process = std::move(process);
  return s;
}

const std::vector<std::string> kAll{"far3", "near0", "package1"};

std::vector<std::string> order(const std::vector<RankedNic>& ranked,
                               const std::vector<std::string>& names) {
  std::vector<std::string> text;
  for (const RankedNic& nic : ranked) text.push_back(names[nic.index]);
  return text;
}

using Names = std::vector<std::string>;

TEST(RankNics, NearestToTheProcessFirst) {
  EXPECT_EQ(order(rank_nics(two_packages({0}), kAll, Policy::Near, 0), kAll),
            (Names{"near0", "far3", "package1"}));
  EXPECT_EQ(order(rank_nics(two_packages({2}), kAll, Policy::Near, 0), kAll),
            (Names{"package1", "far3", "near0"}));
  EXPECT_EQ(order(rank_nics(two_packages({3}), kAll, Policy::Near, 0), kAll),
            (Names{"far3", "package1", "near0"}));
}

TEST(RankNics, SamePackageIsNearerThanTheOther) {
  const auto ranked = rank_nics(two_packages({1}), kAll, Policy::Near, 0);
  EXPECT_EQ(order(ranked, kAll).front(), "near0");
  EXPECT_GT(ranked[0].distance, kLocalDistance);
  EXPECT_LT(ranked[0].distance, ranked[1].distance);
}

TEST(RankNics, FirmwareDistancesOverruleTheGuess) {
  Snapshot s = two_packages({1});
  s.latency = {{10, 40, 30, 11}, {40, 10, 30, 11}, {30, 30, 10, 20}, {11, 11, 20, 10}};
  EXPECT_EQ(order(rank_nics(s, kAll, Policy::Near, 0), kAll).front(), "far3");
}

TEST(RankNics, RelativeDistancesAreScaled) {  // some firmware reports 1.0 and 1.6, some 100 and 160
  Snapshot s = two_packages({0});
  s.latency = {
      {100, 120, 210, 210}, {120, 100, 210, 210}, {210, 210, 100, 120}, {210, 210, 120, 100}};
  const auto ranked = rank_nics(s, kAll, Policy::Near, 0);
  EXPECT_DOUBLE_EQ(ranked[0].distance, 10);
  EXPECT_DOUBLE_EQ(ranked[1].distance, 21);
}

TEST(RankNics, DevicesWithoutAPlaceAreEqualAndKeepTheirOrder) {
  const Names soft{"softhca1", "softhca0", "nowhere"};
  const auto ranked = rank_nics(two_packages({0}), soft, Policy::Near, 3);
  EXPECT_EQ(order(ranked, soft), soft);
  EXPECT_EQ(nearest(ranked).size(), 3u);
}

TEST(RankNics, UnboundProcessHasEverythingNear) {
  const auto ranked = rank_nics(two_packages({0, 1, 2, 3}), kAll, Policy::Near, 0);
  EXPECT_EQ(order(ranked, kAll), kAll);
  EXPECT_EQ(nearest(ranked).size(), 3u);
}

TEST(RankNics, UnknownBindingAndEmptySnapshotAreHarmless) {
  EXPECT_EQ(order(rank_nics(two_packages({}), kAll, Policy::Near, 0), kAll), kAll);
  EXPECT_EQ(order(rank_nics(Snapshot{}, kAll, Policy::Near, 0), kAll), kAll);
  EXPECT_TRUE(rank_nics(Snapshot{}, {}, Policy::Spread, 7).empty());
  EXPECT_TRUE(nearest({}).empty());
}

TEST(RankNics, SpreadStartsEachRankAtAnotherEqual) {
  const Names four{"a", "b", "c", "d"};
  Names firsts;
  for (unsigned rank = 0; rank < 6; ++rank)
    firsts.push_back(order(rank_nics(Snapshot{}, four, Policy::Spread, rank), four).front());
  EXPECT_EQ(firsts, (Names{"a", "b", "c", "d", "a", "b"}));
}

TEST(RankNics, SpreadNeverMovesAFarOneForward) {
  for (unsigned rank = 0; rank < 4; ++rank)
    EXPECT_EQ(order(rank_nics(two_packages({0}), kAll, Policy::Spread, rank), kAll).front(),
              "near0");
}

TEST(RankNics, NoneKeepsTheOrder) {
  const auto ranked = rank_nics(two_packages({0}), kAll, Policy::None, 5);
  EXPECT_EQ(order(ranked, kAll), kAll);
}

TEST(RankNics, NearestCutsAtTheFirstFartherOne) {
  const auto ranked = rank_nics(two_packages({0}), kAll, Policy::Near, 0);
  EXPECT_EQ(nearest(ranked).size(), 1u);
}

TEST(RankNics, PolicyNames) {
  EXPECT_EQ(parse_policy("near"), Policy::Near);
  EXPECT_EQ(parse_policy("spread"), Policy::Spread);
  EXPECT_EQ(parse_policy("none"), Policy::None);
  EXPECT_EQ(parse_policy("Near"), std::nullopt);
  EXPECT_EQ(parse_policy(""), std::nullopt);
}

TEST(Snapshot, NumaNodeOfADevice) {
  const Snapshot s = two_packages({0});
  EXPECT_EQ(s.numa_node_of("far3"), 3);
  EXPECT_EQ(s.numa_node_of("package1"), -1);
  EXPECT_EQ(s.numa_node_of("nowhere"), -1);
  EXPECT_EQ(s.numa_node_of("unheard_of"), -1);
}

}  // namespace
}  // namespace mend::topo
