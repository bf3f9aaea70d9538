// Control messages between two processes (docs/protocol.md 1.3): UD datagrams of at most 256 bytes,
// little endian. encode() and parse() are pure; parse() trusts nothing, and what it returns is in
// range but not yet accepted (accept.h has the rules that need to know who we are, fsm.h those that
// need the epoch). The structs named *Body and CtlHeader are the bytes on the wire; CtlMessage is
// what the program works with.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "plugin/verbs/types.h"

namespace mend::conn {

constexpr std::uint32_t kCtlMagic = 0x444e454d;  // "MEND" in memory order
constexpr std::uint8_t kCtlVersion = 1;
constexpr std::size_t kCtlMaxBytes = 256;

enum class MsgType : std::uint8_t {
  Req = 1,
  Rep = 2,
  Commit = 3,
  Nudge = 4,
  Hb = 5,
  HbAck = 6,
  Busy = 7,
  Bye = 8,
  ByeAck = 9,
  Rej = 10,
  KeyReq = 11,
  KeyRep = 12
};
constexpr std::uint8_t kMsgTypeFirst = 1, kMsgTypeLast = 12;

// State of a connection, as in fsm.h and in heartbeats (the numbers are wire format). Suspect
// travels as Active.
enum class State : std::uint8_t {
  Closed = 0,
  Fencing = 1,
  Requesting = 2,
  Nudging = 3,
  Prepared = 4,
  Replaying = 5,
  Active = 6,
  Suspect = 7,
  Closing = 8,
  Failed = 9
};
constexpr std::uint8_t kStates = 10;

enum class RejReason : std::uint32_t { StaleBoot = 1, Version = 2, Deadline = 3, Failed = 4 };
constexpr std::uint32_t kRejReasonLast = 4;

enum class KeyStatus : std::uint32_t { Ok = 0, Gone = 1 };

enum class Link : std::uint8_t { InfiniBand = 1, Ethernet = 2 };

enum EndpointFlag : std::uint16_t { kFlagFrozen = 1, kFlagOracle = 2 };

using Gid = std::array<std::uint8_t, 16>;

// --- bytes on the wire ---
static_assert(std::endian::native == std::endian::little, "the wire is little endian");

struct CtlHeader {
  std::uint32_t magic;
  std::uint8_t version, type;
  std::uint16_t length;   // of the whole message, header included
  std::uint64_t job_key;  // the destination's
  std::uint64_t src_boot, dst_boot;
  std::uint32_t src_rank, dst_rank;
  std::uint32_t src_conn, dst_conn;
  std::uint32_t epoch, data_epoch;
  std::uint32_t k;      // connection index within the pair of processes
  std::uint32_t crc32;  // zlib, over the whole message with this field zero
};
static_assert(sizeof(CtlHeader) == 64);
static_assert(offsetof(CtlHeader, job_key) == 8 && offsetof(CtlHeader, src_rank) == 32);
static_assert(offsetof(CtlHeader, epoch) == 48 && offsetof(CtlHeader, crc32) == 60);

struct EndpointBody {
  std::uint8_t rail, port, link, mtu;  // mtu: verbs code 1..5
  std::uint16_t lid, flags;
  std::uint32_t qpn, psn;
  std::uint8_t gid[16];
  std::uint64_t ack_cell_addr;
  std::uint32_t ack_cell_rkey, pad;
};
static_assert(sizeof(EndpointBody) == 48 && offsetof(EndpointBody, ack_cell_addr) == 32);

struct ProgressBody {
  std::uint32_t rx_next, tx_acked, window, executed;
};
static_assert(sizeof(ProgressBody) == 16);

struct HbBody {
  std::uint8_t state, pad[3];
  std::uint32_t rx_next, srq_free;
};
static_assert(sizeof(HbBody) == 12);

struct RejBody {
  std::uint32_t reason;
};
struct KeyReqBody {
  std::uint32_t reg_id, gen;
};
struct KeyRepBody {
  std::uint32_t reg_id, gen, status, rkey[kMaxRails];
};
static_assert(sizeof(KeyReqBody) == 8 && sizeof(KeyRepBody) == 44);

// --- the same in the program ---

// One end of a QP pair: everything the other side needs for INIT -> RTR.
struct Endpoint {
  RailId rail;  // of the sender of the message
  std::uint8_t port = 1;
  Link link = Link::Ethernet;
  std::uint8_t mtu = 3;  // verbs code: 1 = 256 ... 5 = 4096 bytes
  std::uint16_t lid = 0;
  std::uint16_t flags = 0;  // EndpointFlag
  Qpn qpn;
  Psn psn;  // first PSN this side will send
  Gid gid{};
  std::uint64_t ack_cell_addr = 0;
  Rkey ack_cell_rkey;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// How far the sender of a REQ or REP got; sampled after its fence (rule F1).
struct Progress {
  Seq rx_next;                 // next seq it expects from me
  Seq tx_acked;                // what I acknowledged to it
  std::uint32_t window = 0;    // SENDs it may have in flight; for diagnosis
  std::uint32_t executed = 0;  // rq_psn; meaningful only with kFlagOracle
  friend bool operator==(const Progress&, const Progress&) = default;
};

struct CtlMessage {
  MsgType type = MsgType::Hb;
  std::uint64_t job_key = 0, src_boot = 0, dst_boot = 0;
  std::uint32_t src_rank = 0, dst_rank = 0;
  ConnId src_conn = kNoConn, dst_conn = kNoConn;
  Epoch epoch, data_epoch;
  std::uint32_t k = 0;
  Endpoint endpoint;                         // Req, Rep
  Progress progress;                         // Req, Rep
  State state = State::Closed;               // Hb, HbAck
  Seq rx_next;                               // Hb, HbAck
  std::uint32_t srq_free = 0;                // Hb, HbAck
  RejReason reason = RejReason::Failed;      // Rej
  std::uint32_t reg_id = 0, generation = 0;  // KeyReq, KeyRep
  KeyStatus key_status = KeyStatus::Ok;      // KeyRep
  std::array<Rkey, kMaxRails> rkeys{};       // KeyRep
  friend bool operator==(const CtlMessage&, const CtlMessage&) = default;
};

// Why a datagram was thrown away; each has a counter.
enum class DropReason : std::uint8_t {
  Short,
  Magic,
  Version,
  Type,
  Length,
  Crc,
  Range,
  JobKey,
  Boot,
  Rank,
  Connection
};
constexpr std::uint8_t kDropReasons = 11;

std::size_t encoded_size(MsgType type);
// Writes the message; out must have kCtlMaxBytes. Returns the bytes used.
std::size_t encode(const CtlMessage& message, std::span<std::byte> out);
tl::expected<CtlMessage, DropReason> parse(std::span<const std::byte> bytes);

const char* to_string(MsgType);
const char* to_string(State);
const char* to_string(RejReason);
const char* to_string(DropReason);

}  // namespace mend::conn
