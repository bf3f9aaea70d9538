#include "plugin/verbs/gid.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace mend::verbs {
namespace {

bool is_zero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool is_ipv4_mapped(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool is_link_local(const Gid& gid) {
  if (is_ipv4_mapped(gid)) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

}  // namespace

const char* to_string(LinkLayer link) {
  return link == LinkLayer::Ethernet ? "Ethernet" : "InfiniBand";
}

const char* to_string(GidType type) {
  switch (type) {
    case GidType::Ib:
      return "IB";
    case GidType::RoceV1:
      return "RoCE v1";
    case GidType::RoceV2:
      return "RoCE v2";
    case GidType::Unknown:
      break;
  }
  return "unknown";
}

GidRank rank(const GidEntry& entry, LinkLayer link) {
  if (is_zero(entry.gid)) return GidRank::Unusable;
  if (link == LinkLayer::Infiniband) return GidRank::Infiniband;
  if (entry.type != GidType::RoceV2) return GidRank::RoceV1;
  if (is_link_local(entry.gid)) return GidRank::RoceV2LinkLocal;
  return is_ipv4_mapped(entry.gid) ? GidRank::RoceV2Ipv4 : GidRank::RoceV2GlobalIpv6;
}

Result<GidEntry> choose_gid(std::span<const GidEntry> table, LinkLayer link, int wanted_index) {
  const bool forced = wanted_index >= 0;
  const bool by_index = forced || link == LinkLayer::Infiniband;
  const auto index = static_cast<std::uint32_t>(forced ? wanted_index : 0);
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : table) {
    if (rank(entry, link) == GidRank::Unusable) continue;
    if (by_index) {
      if (entry.index == index) return entry;
    } else if (best == nullptr || rank(entry, link) > rank(*best, link) ||
               (rank(entry, link) == rank(*best, link) && entry.index < best->index)) {
      best = &entry;
    }
  }
  if (best != nullptr) return *best;
  if (!forced) {
    return fail(ENOENT, "gid", fmt::format("the {} port has no usable GID", to_string(link)));
  }
  std::string known;
  for (const GidEntry& entry : table) {
    if (rank(entry, link) == GidRank::Unusable) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.index);
  }
  return fail(EINVAL, "btl_mend_gid_index",
              fmt::format("GID index {} is not usable on this {} port (usable: {})", wanted_index,
                          to_string(link), known.empty() ? "none" : known));
}

std::string format_gid(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

}  // namespace mend::verbs
