// The source of a datagram, from headers as devices write them.
#include "plugin/verbs/grh.h"

#include <gtest/gtest.h>

#include <array>

namespace mend::verbs {
namespace {

using Grh = std::array<std::byte, kGrhBytes>;

void put(Grh& grh, std::size_t at, std::initializer_list<int> bytes) {
  for (const int byte : bytes) grh[at++] = static_cast<std::byte>(byte);
}

Grh ipv4_header() {
  Grh grh{};
  // 10.0.0.1 -> 10.0.0.2, UDP; the checksum is filled in below
  put(grh, 20, {0x45, 0, 0, 0x3c, 0, 0, 0, 0, 0x40, 0x11, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
  unsigned sum = 0;
  for (std::size_t i = 20; i < kGrhBytes; i += 2) {
    sum += std::to_integer<unsigned>(grh[i]) << 8 | std::to_integer<unsigned>(grh[i + 1]);
  }
  sum = (sum & 0xffff) + (sum >> 16);
  const unsigned checksum = ~sum & 0xffff;
  put(grh, 30, {static_cast<int>(checksum >> 8), static_cast<int>(checksum & 0xff)});
  return grh;
}

TEST(Grh, Ipv6ShapedHeader) {
  Grh grh{};
  put(grh, 0, {0x60});
  put(grh, 8, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7});
  const auto gid = source_gid(grh);
  ASSERT_TRUE(gid);
  EXPECT_EQ(format_gid(*gid), "fe80::7");
}

TEST(Grh, Ipv4IsMapped) {
  const auto gid = source_gid(ipv4_header());
  ASSERT_TRUE(gid);
  EXPECT_EQ(format_gid(*gid), "::ffff:10.0.0.1");
}

// The first half is undefined with IPv4: leftovers that look like IPv6 must not win.
TEST(Grh, Ipv4WinsOverLeftovers) {
  Grh grh = ipv4_header();
  put(grh, 0, {0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto gid = source_gid(grh);
  ASSERT_TRUE(gid);
  EXPECT_EQ(format_gid(*gid), "::ffff:10.0.0.1");
}

TEST(Grh, BadChecksumIsNoIpv4) {
  Grh grh = ipv4_header();
  grh[39] ^= std::byte{1};
  EXPECT_FALSE(source_gid(grh));
}

// An IPv6 address whose middle looks like the start of an IPv4 header.
TEST(Grh, BadChecksumIsNoIpv4BehindAnIpv6Version) {
  Grh grh = ipv4_header();
  put(grh, 0, {0x60, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80});
  grh[39] ^= std::byte{1};
  const auto gid = source_gid(grh);
  ASSERT_TRUE(gid);
  EXPECT_EQ(format_gid(*gid).substr(0, 6), "fe80::");
}

// soft-RoCE within one host: the header never went through the IP layer that fills the checksum in.
TEST(Grh, Ipv4WithoutChecksum) {
  Grh grh = ipv4_header();
  put(grh, 30, {0, 0});
  const auto gid = source_gid(grh);
  ASSERT_TRUE(gid);
  EXPECT_EQ(format_gid(*gid), "::ffff:10.0.0.1");
}

TEST(Grh, NothingThere) { EXPECT_FALSE(source_gid(Grh{})); }

}  // namespace
}  // namespace mend::verbs
