#include "plugin/conn/rail_pairs.h"

#include <algorithm>

namespace mend::conn {
namespace {

constexpr std::ptrdiff_t kSubnetPrefixBytes = 8;

bool in_a_pair(const std::vector<RailPair>& pairs, std::uint32_t RailPair::*side,
               std::uint32_t rail) {
  return std::any_of(pairs.begin(), pairs.end(),
                     [&](const RailPair& pair) { return pair.*side == rail; });
}

}  // namespace

bool can_talk(const RailAddress& a, const RailAddress& b, bool same_host) {
  if (a.kind != b.kind || a.link != b.link) return false;
  if (a.kind == DeviceKind::Softhca && !same_host) return false;
  if (a.link != Link::InfiniBand) return true;
  return std::equal(a.gid.begin(), a.gid.begin() + kSubnetPrefixBytes, b.gid.begin());
}

std::vector<RailPair> pair_rails(std::span<const RailAddress> leader,
                                 std::span<const RailAddress> follower, bool same_host) {
  std::vector<RailPair> pairs;
  const auto p = static_cast<std::uint32_t>(leader.size());
  const auto q = static_cast<std::uint32_t>(follower.size());
  if (p == 0 || q == 0) return pairs;
  const auto add_if = [&](std::uint32_t i, std::uint32_t j) {
    const bool possible = can_talk(leader[i], follower[j], same_host);
    if (possible) pairs.push_back(RailPair{i, j});
    return possible;
  };
  for (std::uint32_t k = 0; k < std::max(p, q); ++k) add_if(k % p, k % q);
  for (std::uint32_t i = 0; i < p; ++i)
    for (std::uint32_t step = 0; step < q && !in_a_pair(pairs, &RailPair::leader, i); ++step)
      add_if(i, (i + step) % q);
  for (std::uint32_t j = 0; j < q; ++j)
    for (std::uint32_t step = 0; step < p && !in_a_pair(pairs, &RailPair::follower, j); ++step)
      add_if((j + step) % p, j);
  return pairs;
}

}  // namespace mend::conn
