#include "plugin/conn/modex.h"

#include <bit>
#include <cstring>

namespace mend::conn {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little endian");

struct ModexHeader {
  std::uint8_t version, rails;
  std::uint16_t length;         // of the whole blob
  std::uint16_t record_length;  // of one rail record; longer than ours: from a newer process
  std::uint16_t pad;
  std::uint64_t boot, job_key;
};
static_assert(sizeof(ModexHeader) == 24);

struct RailRecord {
  std::uint8_t rail, kind, link, mtu;
  std::uint16_t lid;
  std::uint8_t rd_atomic, pad0;
  std::uint32_t ud_qpn, ud_qkey, srq_buffer, pad1;
  std::uint8_t gid[16];
};
static_assert(sizeof(RailRecord) == 40 && offsetof(RailRecord, gid) == 24);

RailRecord to_wire(const RailAddress& a) {
  RailRecord r{};
  r.rail = a.rail.value;
  r.kind = static_cast<std::uint8_t>(a.kind);
  r.link = static_cast<std::uint8_t>(a.link);
  r.mtu = a.mtu;
  r.lid = a.lid;
  r.rd_atomic = a.rd_atomic;
  r.ud_qpn = a.ud_qpn.value;
  r.ud_qkey = a.ud_qkey;
  r.srq_buffer = a.srq_buffer;
  std::memcpy(r.gid, a.gid.data(), sizeof r.gid);
  return r;
}

bool in_range(const RailRecord& r) {
  const bool kind = r.kind == static_cast<std::uint8_t>(DeviceKind::Verbs) ||
                    r.kind == static_cast<std::uint8_t>(DeviceKind::Softhca);
  const bool link = r.link == static_cast<std::uint8_t>(Link::InfiniBand) ||
                    r.link == static_cast<std::uint8_t>(Link::Ethernet);
  return kind && link && r.rail < kMaxRails && r.mtu >= 1 && r.mtu <= 5 && r.rd_atomic >= 1 &&
         r.ud_qpn <= 0xffffff && r.srq_buffer > 0;
}

RailAddress from_wire(const RailRecord& r) {
  RailAddress a;
  a.rail = RailId{r.rail};
  a.kind = static_cast<DeviceKind>(r.kind);
  a.link = static_cast<Link>(r.link);
  a.mtu = r.mtu;
  a.lid = r.lid;
  a.rd_atomic = r.rd_atomic;
  a.ud_qpn = Qpn{r.ud_qpn};
  a.ud_qkey = r.ud_qkey;
  a.srq_buffer = r.srq_buffer;
  std::memcpy(a.gid.data(), r.gid, sizeof r.gid);
  return a;
}

}  // namespace

std::vector<std::byte> encode_modex(const ModexInfo& info) {
  const std::size_t rails = info.rails.size();
  std::vector<std::byte> blob(sizeof(ModexHeader) + rails * sizeof(RailRecord));
  ModexHeader header{};
  header.version = kModexVersion;
  header.rails = static_cast<std::uint8_t>(rails);
  header.length = static_cast<std::uint16_t>(blob.size());
  header.record_length = sizeof(RailRecord);
  header.boot = info.boot;
  header.job_key = info.job_key;
  std::memcpy(blob.data(), &header, sizeof header);
  for (std::size_t i = 0; i < rails; ++i) {
    const RailRecord record = to_wire(info.rails[i]);
    std::memcpy(blob.data() + sizeof header + i * sizeof record, &record, sizeof record);
  }
  return blob;
}

tl::expected<ModexInfo, ModexError> parse_modex(std::span<const std::byte> blob) {
  if (blob.empty()) return tl::unexpected(ModexError::Short);
  if (std::to_integer<std::uint8_t>(blob[0]) != kModexVersion)
    return tl::unexpected(ModexError::Version);
  ModexHeader header;
  if (blob.size() < sizeof header) return tl::unexpected(ModexError::Short);
  std::memcpy(&header, blob.data(), sizeof header);
  if (header.rails == 0 || header.rails > kMaxRails) return tl::unexpected(ModexError::Rails);
  const std::size_t records = std::size_t{header.rails} * header.record_length;
  if (header.record_length < sizeof(RailRecord) || header.length > blob.size() ||
      header.length < sizeof header + records)
    return tl::unexpected(ModexError::Length);
  if (header.boot == 0) return tl::unexpected(ModexError::Range);
  ModexInfo info;
  info.boot = header.boot;
  info.job_key = header.job_key;
  for (unsigned i = 0; i < header.rails; ++i) {
    RailRecord record;
    std::memcpy(&record, blob.data() + sizeof header + std::size_t{i} * header.record_length,
                sizeof record);
    // A rail id is an index into key arrays: record i must be rail i.
    if (!in_range(record) || record.rail != i) return tl::unexpected(ModexError::Range);
    info.rails.push_back(from_wire(record));
  }
  return info;
}

const char* to_string(ModexError error) {
  switch (error) {
    case ModexError::Short:
      return "the address blob is too short";
    case ModexError::Version:
      return "the peer speaks another wire version";
    case ModexError::Length:
      return "the lengths in the address blob do not agree";
    case ModexError::Rails:
      return "the address blob names no rail, or too many";
    case ModexError::Range:
      return "a value in the address blob is out of range";
  }
  return "?";
}

}  // namespace mend::conn
