// The choice of a GID, as a table of ports that exist.
#include "plugin/verbs/gid.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace mend::verbs {
namespace {

constexpr Gid kLinkLocal{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
constexpr Gid kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
constexpr Gid kIpv4LinkLocal{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 2, 3};
constexpr Gid kGlobal{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

struct Case {
  const char* name;
  LinkLayer link;
  int wanted;
  std::vector<GidEntry> table;
  int expected;  // index, or -errno
};

class ChooseGid : public testing::TestWithParam<Case> {};

TEST_P(ChooseGid, PicksTheIndex) {
  const Case& c = GetParam();
  const auto chosen = choose_gid(c.table, c.link, c.wanted);
  if (c.expected >= 0) {
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(static_cast<int>(chosen->index), c.expected);
  } else {
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error().code, -c.expected);
    EXPECT_FALSE(chosen.error().message.empty());
  }
}

constexpr auto kEth = LinkLayer::Ethernet;
constexpr auto kIb = LinkLayer::Infiniband;

const Case kCases[] = {
    {"Mlx5Usual",
     kEth,
     -1,
     {{0, kLinkLocal, GidType::RoceV1},
      {1, kLinkLocal, GidType::RoceV2},
      {2, kIpv4, GidType::RoceV1},
      {3, kIpv4, GidType::RoceV2}},
     3},
    {"Ipv4BeforeGlobalIpv6",
     kEth,
     -1,
     {{0, kGlobal, GidType::RoceV2}, {1, kIpv4, GidType::RoceV2}},
     1},
    {"GlobalIpv6BeforeLinkLocal",
     kEth,
     -1,
     {{0, kLinkLocal, GidType::RoceV2}, {1, kGlobal, GidType::RoceV2}},
     1},
    {"V2LinkLocalBeforeV1Routable",
     kEth,
     -1,
     {{0, kIpv4, GidType::RoceV1}, {1, kLinkLocal, GidType::RoceV2}},
     1},
    {"Ipv4LinkLocalIsLinkLocal",
     kEth,
     -1,
     {{0, kIpv4LinkLocal, GidType::RoceV2}, {1, kGlobal, GidType::RoceV2}},
     1},
    {"LowestIndexOfEquals",
     kEth,
     -1,
     {{5, kIpv4, GidType::RoceV2}, {3, kIpv4, GidType::RoceV2}},
     3},
    {"UnknownTypesStillWork", kEth, -1, {{0, kLinkLocal, GidType::Unknown}}, 0},
    {"OldLibraryPrefersKnownV2",
     kEth,
     -1,
     {{0, kIpv4, GidType::Unknown}, {4, kLinkLocal, GidType::RoceV2}},
     4},
    {"EmptyEntriesAreSkipped",
     kEth,
     -1,
     {{0, Gid{}, GidType::RoceV2}, {2, kLinkLocal, GidType::RoceV1}},
     2},
    {"ForcedIndex", kEth, 0, {{0, kLinkLocal, GidType::RoceV1}, {1, kIpv4, GidType::RoceV2}}, 0},
    {"ForcedIndexOutsideTable", kEth, 9, {{0, kIpv4, GidType::RoceV2}}, -EINVAL},
    {"ForcedIndexEmpty",
     kEth,
     1,
     {{0, kIpv4, GidType::RoceV2}, {1, Gid{}, GidType::RoceV2}},
     -EINVAL},
    {"NothingUsable", kEth, -1, {}, -ENOENT},
    {"InfinibandTakesZero", kIb, -1, {{0, kLinkLocal, GidType::Ib}, {1, kGlobal, GidType::Ib}}, 0},
    {"InfinibandForced", kIb, 1, {{0, kLinkLocal, GidType::Ib}, {1, kGlobal, GidType::Ib}}, 1},
    {"InfinibandWithoutZero", kIb, -1, {{1, kGlobal, GidType::Ib}}, -ENOENT},
};

INSTANTIATE_TEST_SUITE_P(Ports, ChooseGid, testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Gid, ForcedIndexNamesTheUsableOnes) {
  const std::vector<GidEntry> table{{2, kIpv4, GidType::RoceV2}, {7, kGlobal, GidType::RoceV2}};
  const auto chosen = choose_gid(table, kEth, 3);
  ASSERT_FALSE(chosen);
  EXPECT_NE(chosen.error().message.find("usable: 2, 7"), std::string::npos)
      << chosen.error().message;
}

TEST(Gid, Format) {
  EXPECT_EQ(format_gid(kIpv4), "::ffff:10.1.2.3");
  EXPECT_EQ(format_gid(kGlobal), "2001:db8::1");
}

}  // namespace
}  // namespace mend::verbs
