#include "plugin/verbs/grh.h"

#include <algorithm>
#include <cstdint>

namespace mend::verbs {
namespace {

constexpr std::size_t kIpv4At = 20;        // the IPv4 header is in the second half
constexpr std::size_t kIpv4Checksum = 10;  // within it
constexpr std::size_t kIpv4Source = 12;
constexpr std::size_t kIpv6Source = 8;

std::uint8_t byte_at(std::span<const std::byte, kGrhBytes> grh, std::size_t index) {
  return std::to_integer<std::uint8_t>(grh[index]);
}

bool checksum_right(std::span<const std::byte, kGrhBytes> grh) {
  std::uint32_t sum = 0;
  for (std::size_t i = kIpv4At; i < kGrhBytes; i += 2) {
    sum += static_cast<std::uint32_t>(byte_at(grh, i) << 8 | byte_at(grh, i + 1));
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

// soft-RoCE does not fill it in where sender and receiver share a host.
bool checksum_missing(std::span<const std::byte, kGrhBytes> grh) {
  return byte_at(grh, kIpv4At + kIpv4Checksum) == 0 &&
         byte_at(grh, kIpv4At + kIpv4Checksum + 1) == 0;
}

// Version 4, no options, checksum right. The first half is undefined then and may look like
// anything, an IPv6 version included: only where it does not may the checksum be missing.
bool is_ipv4(std::span<const std::byte, kGrhBytes> grh) {
  if (byte_at(grh, kIpv4At) != 0x45) return false;
  return checksum_right(grh) || (byte_at(grh, 0) >> 4 != 6 && checksum_missing(grh));
}

}  // namespace

std::optional<Gid> source_gid(std::span<const std::byte, kGrhBytes> grh) {
  Gid gid{};
  if (is_ipv4(grh)) {
    gid[10] = gid[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) gid[12 + i] = byte_at(grh, kIpv4At + kIpv4Source + i);
    return gid;
  }
  if (byte_at(grh, 0) >> 4 != 6) return std::nullopt;
  for (std::size_t i = 0; i < gid.size(); ++i) gid[i] = byte_at(grh, kIpv6Source + i);
  return gid;
}

}  // namespace mend::verbs
