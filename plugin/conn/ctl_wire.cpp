#include "plugin/conn/ctl_wire.h"

#include <zlib.h>

#include <cstring>

namespace mend::conn {
namespace {

constexpr std::uint32_t kMask24 = 0xffffff;

// CRC-32 of the whole message as if the crc field were zero.
std::uint32_t message_crc(std::span<const std::byte> bytes) {
  CtlHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.crc32 = 0;
  const auto* head = reinterpret_cast<const Bytef*>(&header);
  const auto* body = reinterpret_cast<const Bytef*>(bytes.data() + sizeof header);
  uLong crc = crc32(0, head, sizeof header);
  crc = crc32(crc, body, static_cast<uInt>(bytes.size() - sizeof header));
  return static_cast<std::uint32_t>(crc);
}

CtlHeader header_of(const CtlMessage& m, std::size_t length) {
  CtlHeader h{};
  h.magic = kCtlMagic;
  h.version = kCtlVersion;
  h.type = static_cast<std::uint8_t>(m.type);
  h.length = static_cast<std::uint16_t>(length);
  h.job_key = m.job_key;
  h.src_boot = m.src_boot;
  h.dst_boot = m.dst_boot;
  h.src_rank = m.src_rank;
  h.dst_rank = m.dst_rank;
  h.src_conn = m.src_conn.value;
  h.dst_conn = m.dst_conn.value;
  h.epoch = m.epoch.value;
  h.data_epoch = m.data_epoch.value;
  h.k = m.k;
  return h;
}

EndpointBody to_wire(const Endpoint& e) {
  EndpointBody b{};
  b.rail = e.rail.value;
  b.port = e.port;
  b.link = static_cast<std::uint8_t>(e.link);
  b.mtu = e.mtu;
  b.lid = e.lid;
  b.flags = e.flags;
  b.qpn = e.qpn.value & kMask24;
  b.psn = e.psn.value & kMask24;
  std::memcpy(b.gid, e.gid.data(), sizeof b.gid);
  b.ack_cell_addr = e.ack_cell_addr;
  b.ack_cell_rkey = e.ack_cell_rkey.value;
  return b;
}

bool in_range(const EndpointBody& b) {
  const bool link = b.link == static_cast<std::uint8_t>(Link::InfiniBand) ||
                    b.link == static_cast<std::uint8_t>(Link::Ethernet);
  const bool flags = (b.flags & ~unsigned{kFlagFrozen | kFlagOracle}) == 0;
  return link && flags && b.rail < kMaxRails && b.port >= 1 && b.mtu >= 1 && b.mtu <= 5 &&
         b.qpn <= kMask24 && b.psn <= kMask24 && b.pad == 0;
}

Endpoint from_wire(const EndpointBody& b) {
  Endpoint e;
  e.rail = RailId{b.rail};
  e.port = b.port;
  e.link = static_cast<Link>(b.link);
  e.mtu = b.mtu;
  e.lid = b.lid;
  e.flags = b.flags;
  e.qpn = Qpn{b.qpn};
  e.psn = Psn{b.psn};
  std::memcpy(e.gid.data(), b.gid, sizeof b.gid);
  e.ack_cell_addr = b.ack_cell_addr;
  e.ack_cell_rkey = Rkey{b.ack_cell_rkey};
  return e;
}

void put_offer(const CtlMessage& m, std::byte* out) {
  const EndpointBody endpoint = to_wire(m.endpoint);
  const ProgressBody progress{m.progress.rx_next.value, m.progress.tx_acked.value,
                              m.progress.window, m.progress.executed};
  std::memcpy(out, &endpoint, sizeof endpoint);
  std::memcpy(out + sizeof endpoint, &progress, sizeof progress);
}

bool get_offer(const std::byte* in, CtlMessage& m) {
  EndpointBody endpoint;
  ProgressBody progress;
  std::memcpy(&endpoint, in, sizeof endpoint);
  std::memcpy(&progress, in + sizeof endpoint, sizeof progress);
  if (!in_range(endpoint)) return false;
  m.endpoint = from_wire(endpoint);
  m.progress =
      Progress{Seq{progress.rx_next}, Seq{progress.tx_acked}, progress.window, progress.executed};
  return true;
}

void put_heartbeat(const CtlMessage& m, std::byte* out) {
  const State state = m.state == State::Suspect ? State::Active : m.state;
  const HbBody body{static_cast<std::uint8_t>(state), {}, m.rx_next.value, m.srq_free};
  std::memcpy(out, &body, sizeof body);
}

bool get_heartbeat(const std::byte* in, CtlMessage& m) {
  HbBody body;
  std::memcpy(&body, in, sizeof body);
  const bool pad = body.pad[0] == 0 && body.pad[1] == 0 && body.pad[2] == 0;
  if (!pad || body.state >= kStates || body.state == static_cast<std::uint8_t>(State::Suspect))
    return false;
  m.state = static_cast<State>(body.state);
  m.rx_next = Seq{body.rx_next};
  m.srq_free = body.srq_free;
  return true;
}

bool get_reject(const std::byte* in, CtlMessage& m) {
  RejBody body;
  std::memcpy(&body, in, sizeof body);
  if (body.reason < 1 || body.reason > kRejReasonLast) return false;
  m.reason = static_cast<RejReason>(body.reason);
  return true;
}

void put_key_reply(const CtlMessage& m, std::byte* out) {
  KeyRepBody body{m.reg_id, m.generation, static_cast<std::uint32_t>(m.key_status), {}};
  for (unsigned i = 0; i < kMaxRails; ++i) body.rkey[i] = m.rkeys[i].value;
  std::memcpy(out, &body, sizeof body);
}

bool get_key_reply(const std::byte* in, CtlMessage& m) {
  KeyRepBody body;
  std::memcpy(&body, in, sizeof body);
  if (body.status > static_cast<std::uint32_t>(KeyStatus::Gone)) return false;
  m.reg_id = body.reg_id;
  m.generation = body.gen;
  m.key_status = static_cast<KeyStatus>(body.status);
  for (unsigned i = 0; i < kMaxRails; ++i) m.rkeys[i] = Rkey{body.rkey[i]};
  return true;
}

void put_body(const CtlMessage& m, std::byte* out) {
  const RejBody reject{static_cast<std::uint32_t>(m.reason)};
  const KeyReqBody key{m.reg_id, m.generation};
  switch (m.type) {
    case MsgType::Req:
    case MsgType::Rep:
      put_offer(m, out);
      break;
    case MsgType::Hb:
    case MsgType::HbAck:
      put_heartbeat(m, out);
      break;
    case MsgType::Rej:
      std::memcpy(out, &reject, sizeof reject);
      break;
    case MsgType::KeyReq:
      std::memcpy(out, &key, sizeof key);
      break;
    case MsgType::KeyRep:
      put_key_reply(m, out);
      break;
    case MsgType::Commit:
    case MsgType::Nudge:
    case MsgType::Busy:
    case MsgType::Bye:
    case MsgType::ByeAck:
      break;
  }
}

bool get_body(const std::byte* in, CtlMessage& m) {
  KeyReqBody key;
  switch (m.type) {
    case MsgType::Req:
    case MsgType::Rep:
      return get_offer(in, m);
    case MsgType::Hb:
    case MsgType::HbAck:
      return get_heartbeat(in, m);
    case MsgType::Rej:
      return get_reject(in, m);
    case MsgType::KeyReq:
      std::memcpy(&key, in, sizeof key);
      m.reg_id = key.reg_id;
      m.generation = key.gen;
      return true;
    case MsgType::KeyRep:
      return get_key_reply(in, m);
    case MsgType::Commit:
    case MsgType::Nudge:
    case MsgType::Busy:
    case MsgType::Bye:
    case MsgType::ByeAck:
      return true;
  }
  return false;
}

CtlMessage names_of(const CtlHeader& h) {
  CtlMessage m;
  m.type = static_cast<MsgType>(h.type);
  m.job_key = h.job_key;
  m.src_boot = h.src_boot;
  m.dst_boot = h.dst_boot;
  m.src_rank = h.src_rank;
  m.dst_rank = h.dst_rank;
  m.src_conn = ConnId{h.src_conn};
  m.dst_conn = ConnId{h.dst_conn};
  m.epoch = Epoch{h.epoch};
  m.data_epoch = Epoch{h.data_epoch};
  m.k = h.k;
  return m;
}

}  // namespace

std::size_t encoded_size(MsgType type) {
  constexpr std::size_t head = sizeof(CtlHeader);
  switch (type) {
    case MsgType::Req:
    case MsgType::Rep:
      return head + sizeof(EndpointBody) + sizeof(ProgressBody);
    case MsgType::Hb:
    case MsgType::HbAck:
      return head + sizeof(HbBody);
    case MsgType::Rej:
      return head + sizeof(RejBody);
    case MsgType::KeyReq:
      return head + sizeof(KeyReqBody);
    case MsgType::KeyRep:
      return head + sizeof(KeyRepBody);
    case MsgType::Commit:
    case MsgType::Nudge:
    case MsgType::Busy:
    case MsgType::Bye:
    case MsgType::ByeAck:
      return head;
  }
  return head;
}

std::size_t encode(const CtlMessage& message, std::span<std::byte> out) {
  const std::size_t length = encoded_size(message.type);
  if (out.size() < length) return 0;
  CtlHeader header = header_of(message, length);
  std::memcpy(out.data(), &header, sizeof header);
  put_body(message, out.data() + sizeof header);
  header.crc32 = message_crc(out.first(length));
  std::memcpy(out.data(), &header, sizeof header);
  return length;
}

tl::expected<CtlMessage, DropReason> parse(std::span<const std::byte> bytes) {
  CtlHeader header;
  if (bytes.size() < sizeof header) return tl::unexpected(DropReason::Short);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kCtlMagic) return tl::unexpected(DropReason::Magic);
  if (header.version != kCtlVersion) return tl::unexpected(DropReason::Version);
  if (header.type < kMsgTypeFirst || header.type > kMsgTypeLast)
    return tl::unexpected(DropReason::Type);
  CtlMessage message = names_of(header);
  if (header.length != bytes.size() || header.length != encoded_size(message.type))
    return tl::unexpected(DropReason::Length);
  if (header.crc32 != message_crc(bytes)) return tl::unexpected(DropReason::Crc);
  if (!get_body(bytes.data() + sizeof header, message)) return tl::unexpected(DropReason::Range);
  return message;
}

const char* to_string(MsgType type) {
  switch (type) {
    case MsgType::Req:
      return "REQ";
    case MsgType::Rep:
      return "REP";
    case MsgType::Commit:
      return "COMMIT";
    case MsgType::Nudge:
      return "NUDGE";
    case MsgType::Hb:
      return "HB";
    case MsgType::HbAck:
      return "HB_ACK";
    case MsgType::Busy:
      return "BUSY";
    case MsgType::Bye:
      return "BYE";
    case MsgType::ByeAck:
      return "BYE_ACK";
    case MsgType::Rej:
      return "REJ";
    case MsgType::KeyReq:
      return "KEYREQ";
    case MsgType::KeyRep:
      return "KEYREP";
  }
  return "?";
}

const char* to_string(State state) {
  switch (state) {
    case State::Closed:
      return "Closed";
    case State::Fencing:
      return "Fencing";
    case State::Requesting:
      return "Requesting";
    case State::Nudging:
      return "Nudging";
    case State::Prepared:
      return "Prepared";
    case State::Replaying:
      return "Replaying";
    case State::Active:
      return "Active";
    case State::Suspect:
      return "Suspect";
    case State::Closing:
      return "Closing";
    case State::Failed:
      return "Failed";
  }
  return "?";
}

const char* to_string(RejReason reason) {
  switch (reason) {
    case RejReason::StaleBoot:
      return "the process was restarted";
    case RejReason::Version:
      return "another wire version";
    case RejReason::Deadline:
      return "no connection for too long";
    case RejReason::Failed:
      return "the connection failed for good";
  }
  return "?";
}

const char* to_string(DropReason reason) {
  switch (reason) {
    case DropReason::Short:
      return "short";
    case DropReason::Magic:
      return "magic";
    case DropReason::Version:
      return "version";
    case DropReason::Type:
      return "type";
    case DropReason::Length:
      return "length";
    case DropReason::Crc:
      return "crc";
    case DropReason::Range:
      return "range";
    case DropReason::JobKey:
      return "job_key";
    case DropReason::Boot:
      return "boot";
    case DropReason::Rank:
      return "rank";
    case DropReason::Connection:
      return "connection";
  }
  return "?";
}

}  // namespace mend::conn
