// The ranking and the plan of a node are pure functions; snapshots are written by hand.
#include "topo/rank_nics.h"

#include <gtest/gtest.h>

namespace mend::topo {
namespace {

// Two packages with two nodes each; a NIC on node 0, one on node 3, one without a place, one on the
// whole second package.
Snapshot two_packages() {
  Snapshot s;
  for (int i = 0; i < 4; ++i) s.nodes.push_back(NumaNode{i, i / 2, {}, 0, ""});
  const auto device = [&s](const char* name, Binding nodes) {
    s.devices.push_back(DevicePlace{name, "", std::move(nodes), 0, {}});
  };
  device("near0", {0});
  device("far3", {3});
  device("nowhere", {});
  device("package1", {2, 3});
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
  const Snapshot s = two_packages();
  EXPECT_EQ(order(rank_nics(s, kAll, {0}), kAll), (Names{"near0", "far3", "package1"}));
  EXPECT_EQ(order(rank_nics(s, kAll, {2}), kAll), (Names{"package1", "far3", "near0"}));
  EXPECT_EQ(order(rank_nics(s, kAll, {3}), kAll), (Names{"far3", "package1", "near0"}));
}

TEST(RankNics, SamePackageIsNearerThanTheOther) {
  const auto ranked = rank_nics(two_packages(), kAll, {1});
  EXPECT_EQ(order(ranked, kAll).front(), "near0");
  EXPECT_GT(ranked[0].distance, kLocalDistance);
  EXPECT_LT(ranked[0].distance, ranked[1].distance);
}

TEST(RankNics, FirmwareDistancesOverruleTheGuess) {
  Snapshot s = two_packages();
  s.latency = {{10, 40, 30, 11}, {40, 10, 30, 11}, {30, 30, 10, 20}, {11, 11, 20, 10}};
  EXPECT_EQ(order(rank_nics(s, kAll, {1}), kAll).front(), "far3");
}

TEST(RankNics, RelativeDistancesAreScaled) {  // some firmware reports 1.0 and 1.6, some 100 and 160
  Snapshot s = two_packages();
  s.latency = {
      {100, 120, 210, 210}, {120, 100, 210, 210}, {210, 210, 100, 120}, {210, 210, 120, 100}};
  const auto ranked = rank_nics(s, kAll, {0});
  EXPECT_DOUBLE_EQ(ranked[0].distance, 10);
  EXPECT_DOUBLE_EQ(ranked[1].distance, 21);
}

TEST(RankNics, DevicesWithoutAPlaceAreEqualAndKeepTheirOrder) {
  const Names soft{"softhca1", "softhca0", "nowhere"};
  const auto ranked = rank_nics(two_packages(), soft, {0});
  EXPECT_EQ(order(ranked, soft), soft);
  EXPECT_EQ(nearest(ranked).size(), 3u);
}

TEST(RankNics, UnboundProcessHasEverythingNear) {
  const auto ranked = rank_nics(two_packages(), kAll, {0, 1, 2, 3});
  EXPECT_EQ(order(ranked, kAll), kAll);
  EXPECT_EQ(nearest(ranked).size(), 3u);
}

TEST(RankNics, UnknownBindingAndEmptySnapshotAreHarmless) {
  EXPECT_EQ(order(rank_nics(two_packages(), kAll, {}), kAll), kAll);
  EXPECT_EQ(order(rank_nics(Snapshot{}, kAll, {}), kAll), kAll);
  EXPECT_TRUE(rank_nics(Snapshot{}, {}, {}).empty());
  EXPECT_TRUE(nearest({}).empty());
}

TEST(RankNics, NearestCutsAtTheFirstFartherOne) {
  EXPECT_EQ(nearest(rank_nics(two_packages(), kAll, {0})).size(), 1u);
}

// --- the plan of a node ---

using Bindings = std::vector<std::optional<Binding>>;

Names firsts(const Snapshot& s, const Names& candidates, Policy policy, const Bindings& bindings) {
  Names names;
  for (std::size_t me = 0; me < bindings.size(); ++me)
    names.push_back(candidates[plan_rank(s, candidates, policy, bindings, me).rails.front().index]);
  return names;
}

TEST(PlanRank, RanksThatShareNicsTakeThemInTurn) {
  const Names four{"a", "b", "c", "d"};
  EXPECT_EQ(firsts(Snapshot{}, four, Policy::Near, Bindings(6)),
            (Names{"a", "b", "c", "d", "a", "b"}));
}

// Ranks mapped round robin to the packages: by their local rank alone all those of one package
// would have taken the same of its two NICs.
TEST(PlanRank, RanksOfAPackageAreCountedByThemselves) {
  Snapshot s = two_packages();
  s.devices.clear();
  for (const auto& [name, node] : {std::pair{"a", 0U}, {"b", 1U}, {"c", 2U}, {"d", 3U}})
    s.devices.push_back(DevicePlace{name, "", node < 2 ? Binding{0, 1} : Binding{2, 3}, 0, {}});
  const Names all{"a", "b", "c", "d"};
  const Bindings bindings{Binding{0, 1}, Binding{2, 3}, Binding{0, 1},
                          Binding{2, 3}, Binding{0, 1}, Binding{2, 3}};
  EXPECT_EQ(firsts(s, all, Policy::Near, bindings), (Names{"a", "c", "b", "d", "a", "c"}));
  const RankPlan fourth = plan_rank(s, all, Policy::Near, bindings, 3);
  EXPECT_EQ(order(fourth.rails, all), (Names{"d", "c"})) << "its own first, the other one next";
  EXPECT_EQ(fourth.turn, 1u);
  EXPECT_EQ(fourth.sharing, 3u);
}

TEST(PlanRank, UnknownNeighboursCountAsBoundAlike) {
  const Names two{"near0", "nowhere"};
  const Bindings known{Binding{0}, std::nullopt, Binding{0}, Binding{3}, std::nullopt};
  EXPECT_EQ(plan_rank(two_packages(), two, Policy::Near, known, 2).turn, 2u);
  EXPECT_EQ(plan_rank(two_packages(), two, Policy::Near, known, 2).sharing, 4u);
}

TEST(PlanRank, OwnBindingIsThatOfTheProcessWhereTheListHasNone) {
  Snapshot s = two_packages();
  s.process = {3};
  EXPECT_EQ(firsts(s, kAll, Policy::Near, Bindings(1)), (Names{"far3"}));
  EXPECT_EQ(order(plan_rank(s, kAll, Policy::Near, {}, 0).rails, kAll).front(), "far3");
}

TEST(PlanRank, AFarOneIsNeverTakenForANearOne) {
  for (std::size_t me = 0; me < 4; ++me) {
    const auto rails =
        plan_rank(two_packages(), kAll, Policy::Near, Bindings(4, Binding{0}), me).rails;
    EXPECT_EQ(order(rails, kAll), (Names{"near0"}));
  }
}

TEST(PlanRank, SpreadTakesAllInTurnHoweverFar) {
  const Bindings here(5, Binding{0});
  EXPECT_EQ(firsts(two_packages(), kAll, Policy::Spread, here),
            (Names{"far3", "near0", "package1", "far3", "near0"}));
  EXPECT_EQ(plan_rank(two_packages(), kAll, Policy::Spread, here, 0).rails.size(), 1u);
  EXPECT_GT(plan_rank(two_packages(), kAll, Policy::Spread, here, 0).rails[0].distance, 10);
}

TEST(PlanRank, NoneKeepsAllAsTheyAre) {
  const auto rails =
      plan_rank(two_packages(), kAll, Policy::None, Bindings(6, Binding{0}), 5).rails;
  EXPECT_EQ(order(rails, kAll), kAll);
}

TEST(PlanRank, TwoPortsOfADeviceAreTwoCandidates) {
  const Names ports{"near0", "near0", "far3"};
  const Bindings bindings(3, Binding{0});
  EXPECT_EQ(plan_rank(two_packages(), ports, Policy::Near, bindings, 0).rails[0].index, 0u);
  EXPECT_EQ(plan_rank(two_packages(), ports, Policy::Near, bindings, 1).rails[0].index, 1u);
  EXPECT_EQ(plan_rank(two_packages(), ports, Policy::Near, bindings, 2).rails[0].index, 0u);
}

TEST(PlanRank, NothingToChooseFrom) {
  for (const Policy policy : {Policy::Near, Policy::Spread, Policy::None})
    EXPECT_TRUE(plan_rank(two_packages(), {}, policy, Bindings(2), 1).rails.empty());
}

TEST(RankNics, PolicyNames) {
  EXPECT_EQ(parse_policy("near"), Policy::Near);
  EXPECT_EQ(parse_policy("spread"), Policy::Spread);
  EXPECT_EQ(parse_policy("none"), Policy::None);
  EXPECT_EQ(parse_policy("Near"), std::nullopt);
  EXPECT_EQ(parse_policy(""), std::nullopt);
}

TEST(Snapshot, NumaNodeOfADevice) {
  const Snapshot s = two_packages();
  EXPECT_EQ(s.numa_node_of("far3"), 3);
  EXPECT_EQ(s.numa_node_of("package1"), -1);
  EXPECT_EQ(s.numa_node_of("nowhere"), -1);
  EXPECT_EQ(s.numa_node_of("unheard_of"), -1);
}

}  // namespace
}  // namespace mend::topo
