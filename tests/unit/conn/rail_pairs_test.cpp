// Pairs of rails: both sides get the same list, whatever each prefers.
#include "plugin/conn/rail_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mend::conn {
namespace {

RailAddress infiniband(std::uint8_t subnet) {
  RailAddress rail;
  rail.link = Link::InfiniBand;
  rail.gid[7] = subnet;
  rail.gid[15] = 0x77;  // the port's own part
  return rail;
}
RailAddress ethernet(DeviceKind kind = DeviceKind::Verbs) {
  RailAddress rail;
  rail.kind = kind;
  rail.link = Link::Ethernet;
  return rail;
}
using Rails = std::vector<RailAddress>;
using Pairs = std::vector<RailPair>;

TEST(RailPairs, EqualRailsGoByNumber) {
  const Rails two(2, ethernet()), three(3, ethernet());
  EXPECT_EQ(pair_rails(two, two, true), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pair_rails(two, three, true), (Pairs{{0, 0}, {1, 1}, {0, 2}}));
  EXPECT_EQ(pair_rails(three, Rails(1, ethernet()), true), (Pairs{{0, 0}, {1, 0}, {2, 0}}));
}

// Ranks of a node prefer their rails in different orders: two that had them the other way round
// took one connection for two different pairs of subnets, and never met.
TEST(RailPairs, SubnetsInOppositeOrdersMeetEachOther) {
  const Rails mine{infiniband(1), infiniband(2)}, theirs{infiniband(2), infiniband(1)};
  EXPECT_EQ(pair_rails(mine, theirs, false), (Pairs{{0, 1}, {1, 0}}));
  const Rails rotated{infiniband(2), infiniband(3), infiniband(1)};
  EXPECT_EQ(pair_rails(mine, rotated, false), (Pairs{{0, 2}, {1, 0}}));
}

TEST(RailPairs, EveryRailThatCanTalkIsServedAndNoOther) {
  const Rails pool{infiniband(1), infiniband(2), ethernet(), ethernet(DeviceKind::Softhca)};
  for (unsigned p = 1; p < 64; ++p) {
    for (unsigned q = 1; q < 64; ++q) {
      Rails a, b;
      for (unsigned i = 0; i < 3; ++i) {
        if ((p >> (2 * i) & 3U) != 0 || i == 0) a.push_back(pool[p >> (2 * i) & 3U]);
        if ((q >> (2 * i) & 3U) != 0 || i == 0) b.push_back(pool[q >> (2 * i) & 3U]);
      }
      const Pairs pairs = pair_rails(a, b, true);
      std::set<std::uint32_t> leaders, followers;
      for (const RailPair& pair : pairs) {
        EXPECT_TRUE(can_talk(a[pair.leader], b[pair.follower], true));
        leaders.insert(pair.leader);
        followers.insert(pair.follower);
      }
      for (std::uint32_t i = 0; i < a.size(); ++i) {
        const bool possible = std::any_of(b.begin(), b.end(), [&](const RailAddress& other) {
          return can_talk(a[i], other, true);
        });
        EXPECT_EQ(leaders.count(i) > 0, possible) << p << " " << q;
      }
      for (std::uint32_t j = 0; j < b.size(); ++j) {
        const bool possible = std::any_of(a.begin(), a.end(), [&](const RailAddress& other) {
          return can_talk(other, b[j], true);
        });
        EXPECT_EQ(followers.count(j) > 0, possible) << p << " " << q;
      }
    }
  }
}

TEST(RailPairs, KindsLinksSubnetsAndHostsKeepApart) {
  EXPECT_FALSE(can_talk(infiniband(1), infiniband(2), true));
  EXPECT_FALSE(can_talk(infiniband(1), ethernet(), true));
  EXPECT_FALSE(can_talk(ethernet(), ethernet(DeviceKind::Softhca), true));
  EXPECT_FALSE(can_talk(ethernet(DeviceKind::Softhca), ethernet(DeviceKind::Softhca), false));
  EXPECT_TRUE(can_talk(ethernet(DeviceKind::Softhca), ethernet(DeviceKind::Softhca), true));
  EXPECT_TRUE(pair_rails({}, Rails(2, ethernet()), true).empty());
  EXPECT_TRUE(pair_rails(Rails(2, infiniband(1)), Rails(2, infiniband(2)), true).empty());
}

}  // namespace
}  // namespace mend::conn
