// Bytes on the wire: control messages, modex blob, accept rules.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>
#include <vector>

#include "plugin/conn/accept.h"
#include "plugin/conn/ctl_wire.h"
#include "plugin/conn/modex.h"

namespace mend::conn {
namespace {

using Bytes = std::vector<std::byte>;

CtlMessage sample(MsgType type) {
  CtlMessage m;
  m.type = type;
  m.job_key = 0x1122334455667788;
  m.src_boot = 0xa1a2a3a4a5a6a7a8;
  m.dst_boot = 0xb1b2b3b4b5b6b7b8;
  m.src_rank = 3;
  m.dst_rank = 7;
  m.src_conn = ConnId{5};
  m.dst_conn = ConnId{6};
  m.epoch = Epoch{9};
  m.data_epoch = Epoch{8};
  m.k = 1;
  if (type == MsgType::Req || type == MsgType::Rep) {
    m.endpoint = Endpoint{
        RailId{2},     1,  Link::InfiniBand,   4,         0x1234, kFlagFrozen, Qpn{0xabcdef},
        Psn{0x123456}, {}, 0x1020304050607080, Rkey{0x99}};
    for (unsigned i = 0; i < 16; ++i) m.endpoint.gid[i] = static_cast<std::uint8_t>(i + 1);
    m.progress = Progress{Seq{11}, Seq{12}, 128, 0};
  }
  if (type == MsgType::Hb || type == MsgType::HbAck) {
    m.state = State::Replaying;
    m.rx_next = Seq{44};
    m.srq_free = 55;
  }
  if (type == MsgType::Rej) m.reason = RejReason::Deadline;
  if (type == MsgType::KeyReq || type == MsgType::KeyRep) {
    m.reg_id = 70;
    m.generation = 71;
  }
  if (type == MsgType::KeyRep) {
    m.key_status = KeyStatus::Gone;
    for (unsigned i = 0; i < kMaxRails; ++i) m.rkeys[i] = Rkey{100 + i};
  }
  return m;
}

Bytes encoded(const CtlMessage& m) {
  Bytes bytes(kCtlMaxBytes);
  bytes.resize(encode(m, bytes));
  return bytes;
}

void fix_crc(Bytes& bytes) {
  std::memset(bytes.data() + 60, 0, 4);
  const auto crc = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  std::memcpy(bytes.data() + 60, &crc, 4);
}

class EveryType : public testing::TestWithParam<int> {
 protected:
  static MsgType type() { return static_cast<MsgType>(GetParam()); }
};

TEST_P(EveryType, SurvivesTheWire) {
  const CtlMessage m = sample(type());
  const Bytes bytes = encoded(m);
  EXPECT_EQ(bytes.size(), encoded_size(type()));
  EXPECT_LE(bytes.size(), kCtlMaxBytes);
  const auto back = parse(bytes);
  ASSERT_TRUE(back.has_value()) << to_string(back.error());
  EXPECT_EQ(*back, m);
  EXPECT_STRNE(to_string(type()), "?");
}

TEST_P(EveryType, EveryFlippedBitIsDropped) {
  const Bytes bytes = encoded(sample(type()));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes bad = bytes;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(parse(bad).has_value()) << "bit " << bit;
  }
}

TEST_P(EveryType, EveryOtherLengthIsDropped) {
  const Bytes bytes = encoded(sample(type()));
  for (std::size_t n = 0; n <= kCtlMaxBytes; ++n) {
    Bytes bad = bytes;
    bad.resize(n);
    if (n == bytes.size()) continue;
    EXPECT_FALSE(parse(bad).has_value()) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(CtlWire, EveryType, testing::Range(int{kMsgTypeFirst}, kMsgTypeLast + 1));

TEST(CtlWire, BytesAreWhereTheProtocolPutsThem) {
  const Bytes b = encoded(sample(MsgType::Req));
  const auto u8 = [&](std::size_t at) { return std::to_integer<unsigned>(b[at]); };
  ASSERT_EQ(b.size(), 128u);
  EXPECT_EQ(std::memcmp(b.data(), "MEND", 4), 0);
  EXPECT_EQ(u8(4), kCtlVersion);
  EXPECT_EQ(u8(5), 1u);
  EXPECT_EQ(u8(6) | u8(7) << 8, 128u);
  EXPECT_EQ(u8(8), 0x88u);   // job_key
  EXPECT_EQ(u8(16), 0xa8u);  // src_boot
  EXPECT_EQ(u8(24), 0xb8u);  // dst_boot
  EXPECT_EQ(u8(32), 3u);     // src_rank
  EXPECT_EQ(u8(36), 7u);
  EXPECT_EQ(u8(40), 5u);
  EXPECT_EQ(u8(44), 6u);
  EXPECT_EQ(u8(48), 9u);     // epoch
  EXPECT_EQ(u8(52), 8u);     // data_epoch
  EXPECT_EQ(u8(56), 1u);     // k
  EXPECT_EQ(u8(64), 2u);     // rail
  EXPECT_EQ(u8(72), 0xefu);  // qpn
  EXPECT_EQ(u8(76), 0x56u);  // psn
  EXPECT_EQ(u8(80), 1u);     // gid
  EXPECT_EQ(u8(96), 0x80u);  // ack cell
  EXPECT_EQ(u8(112), 11u);   // rx_next
  EXPECT_EQ(u8(116), 12u);   // tx_acked
}

struct Patch {
  MsgType type;
  std::size_t at;
  std::uint8_t value;
  DropReason expected;
};

TEST(CtlWire, ValuesOutOfRangeAreDroppedWithTheirReason) {
  const Patch patches[] = {
      {MsgType::Req, 0, 'm', DropReason::Magic},   {MsgType::Req, 4, 2, DropReason::Version},
      {MsgType::Req, 5, 0, DropReason::Type},      {MsgType::Req, 5, 13, DropReason::Type},
      {MsgType::Req, 6, 127, DropReason::Length},  {MsgType::Req, 5, 3, DropReason::Length},
      {MsgType::Req, 64, 8, DropReason::Range},    {MsgType::Req, 65, 0, DropReason::Range},
      {MsgType::Req, 66, 3, DropReason::Range},    {MsgType::Req, 67, 0, DropReason::Range},
      {MsgType::Req, 67, 6, DropReason::Range},    {MsgType::Req, 70, 4, DropReason::Range},
      {MsgType::Req, 75, 1, DropReason::Range},    {MsgType::Req, 79, 1, DropReason::Range},
      {MsgType::Rep, 108, 1, DropReason::Range},   {MsgType::Hb, 64, 10, DropReason::Range},
      {MsgType::Hb, 64, 7, DropReason::Range},     {MsgType::HbAck, 65, 1, DropReason::Range},
      {MsgType::Rej, 64, 0, DropReason::Range},    {MsgType::Rej, 64, 5, DropReason::Range},
      {MsgType::KeyRep, 72, 2, DropReason::Range},
  };
  for (const Patch& patch : patches) {
    Bytes bytes = encoded(sample(patch.type));
    bytes[patch.at] = static_cast<std::byte>(patch.value);
    fix_crc(bytes);
    const auto result = parse(bytes);
    ASSERT_FALSE(result.has_value()) << to_string(patch.type) << " byte " << patch.at;
    EXPECT_STREQ(to_string(result.error()), to_string(patch.expected)) << patch.at;
  }
}

TEST(CtlWire, SuspectTravelsAsActive) {
  CtlMessage m = sample(MsgType::Hb);
  m.state = State::Suspect;
  EXPECT_EQ(parse(encoded(m))->state, State::Active);
}

TEST(CtlWire, EncodeNeedsRoom) {
  Bytes small(127);
  EXPECT_EQ(encode(sample(MsgType::Req), small), 0u);
}

// --- accept rules ---

TEST(Accept, OnlyWhatIsAddressedToMe) {
  const CtlMessage m = sample(MsgType::Hb);
  const SelfName me{m.job_key, m.dst_boot, m.dst_rank};
  EXPECT_EQ(addressed_to_me(m, me), std::nullopt);
  EXPECT_EQ(addressed_to_me(m, SelfName{me.job_key + 1, me.boot, me.rank}), DropReason::JobKey);
  EXPECT_EQ(addressed_to_me(m, SelfName{me.job_key, me.boot + 1, me.rank}), DropReason::Boot);
  EXPECT_EQ(addressed_to_me(m, SelfName{me.job_key, me.boot, me.rank + 1}), DropReason::Rank);
}

TEST(Accept, OnlyFromThePeerOfTheConnection) {
  CtlMessage m = sample(MsgType::Hb);
  const PeerName peer{m.src_boot, m.src_rank, m.k};
  EXPECT_EQ(from_peer(m, peer, ConnId{6}), std::nullopt);
  EXPECT_EQ(from_peer(m, peer, ConnId{7}), DropReason::Connection);
  EXPECT_EQ(from_peer(m, PeerName{m.src_boot + 1, m.src_rank, m.k}, ConnId{6}), DropReason::Boot);
  EXPECT_EQ(from_peer(m, PeerName{m.src_boot, m.src_rank + 1, m.k}, ConnId{6}), DropReason::Rank);
  EXPECT_EQ(from_peer(m, PeerName{m.src_boot, m.src_rank, m.k + 1}, ConnId{6}),
            DropReason::Connection);
  m.dst_conn = kNoConn;
  EXPECT_EQ(from_peer(m, peer, ConnId{7}), std::nullopt) << "by name, before the conn_id is known";
}

// --- modex ---

ModexInfo modex_sample(unsigned rails) {
  ModexInfo info;
  info.boot = 0x1234567890abcdef;
  info.job_key = 42;
  for (unsigned i = 0; i < rails; ++i) {
    RailAddress a;
    a.rail = RailId{static_cast<std::uint8_t>(i)};
    a.kind = i % 2 == 0 ? DeviceKind::Softhca : DeviceKind::Verbs;
    a.lid = static_cast<std::uint16_t>(i + 1);
    a.rd_atomic = 16;
    a.ud_qpn = Qpn{0x100 + i};
    a.ud_qkey = 0x80010000;
    a.srq_buffer = 32784;
    a.gid[15] = static_cast<std::uint8_t>(i);
    info.rails.push_back(a);
  }
  return info;
}

TEST(Modex, SurvivesTheWireForEveryNumberOfRails) {
  for (unsigned rails = 1; rails <= kMaxRails; ++rails) {
    const ModexInfo info = modex_sample(rails);
    const auto back = parse_modex(encode_modex(info));
    ASSERT_TRUE(back.has_value()) << to_string(back.error());
    EXPECT_EQ(*back, info);
  }
}

TEST(Modex, VersionIsTheFirstByteAndCheckedFirst) {
  Bytes blob = encode_modex(modex_sample(2));
  ASSERT_EQ(blob[0], std::byte{kModexVersion});
  blob[0] = std::byte{kModexVersion - 1};  // whose handles are shorter
  EXPECT_EQ(parse_modex(blob).error(), ModexError::Version);
  blob.resize(1);
  EXPECT_EQ(parse_modex(blob).error(), ModexError::Version);
  EXPECT_EQ(parse_modex({}).error(), ModexError::Short);
}

TEST(Modex, LongerRecordsAndTrailersOfNewerProcessesAreSkipped) {
  const ModexInfo info = modex_sample(2);
  const Bytes blob = encode_modex(info);
  Bytes longer(blob.begin(), blob.begin() + 24);
  for (unsigned i = 0; i < 2; ++i) {
    longer.insert(longer.end(), blob.begin() + 24 + i * 40, blob.begin() + 64 + i * 40);
    longer.insert(longer.end(), 8, std::byte{0xee});
  }
  longer.insert(longer.end(), 5, std::byte{0xdd});
  const auto length = static_cast<std::uint16_t>(longer.size());
  const std::uint16_t record = 48;
  std::memcpy(longer.data() + 2, &length, 2);
  std::memcpy(longer.data() + 4, &record, 2);
  const auto back = parse_modex(longer);
  ASSERT_TRUE(back.has_value()) << to_string(back.error());
  EXPECT_EQ(*back, info);
}

TEST(Modex, NonsenseIsRefused) {
  const Bytes blob = encode_modex(modex_sample(2));
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes bad = blob;
    bad[at] = static_cast<std::byte>(value);
    return parse_modex(bad).has_value() ? ModexError::Short : parse_modex(bad).error();
  };
  EXPECT_EQ(with(1, 0), ModexError::Rails);
  EXPECT_EQ(with(1, 9), ModexError::Rails);
  EXPECT_EQ(with(1, 3), ModexError::Length);
  EXPECT_EQ(with(2, 255), ModexError::Length);
  EXPECT_EQ(with(4, 39), ModexError::Length);
  EXPECT_EQ(with(24, 1), ModexError::Range) << "record 0 must be rail 0";
  EXPECT_EQ(with(25, 3), ModexError::Range);
  EXPECT_EQ(with(26, 0), ModexError::Range);
  EXPECT_EQ(with(27, 6), ModexError::Range);
  EXPECT_EQ(with(30, 0), ModexError::Range);
  for (std::size_t n = 0; n < blob.size(); ++n)
    EXPECT_FALSE(parse_modex(std::span(blob).first(n)).has_value()) << n;
}

}  // namespace
}  // namespace mend::conn
