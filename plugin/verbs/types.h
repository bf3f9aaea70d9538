// Strong types for the integers of the wire and of verbs, so that the right integer lands in the
// right slot. Pure values: no locking, no dependency on verbs.h.
#pragma once

#include <compare>
#include <cstdint>

namespace mend {

// Sequence number of a SEND on one connection and direction; wraps at 2^32 (serial arithmetic).
struct Seq {
  std::uint32_t value = 0;
  friend constexpr bool operator==(Seq, Seq) = default;
  constexpr Seq next() const { return Seq{value + 1}; }
};
// Distance a - b in serial arithmetic; positive when a is newer.
constexpr std::int32_t operator-(Seq a, Seq b) {
  return static_cast<std::int32_t>(a.value - b.value);
}
constexpr bool before(Seq a, Seq b) { return (a - b) < 0; }
constexpr Seq later(Seq a, Seq b) { return before(a, b) ? b : a; }

// Generation of a connection's QP pair; 0 = never connected, the leader adds 1 per pair. Never
// wraps in practice.
struct Epoch {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Epoch, Epoch) = default;
  constexpr Epoch next() const { return Epoch{value + 1}; }
};

// Queue pair number, 24 bits.
struct Qpn {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Qpn, Qpn) = default;
};

// Packet sequence number, 24 bits, serial.
struct Psn {
  std::uint32_t value = 0;
  friend constexpr bool operator==(Psn, Psn) = default;
};
constexpr std::uint32_t kPsnMask = 0xffffff;

struct Lkey {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Lkey, Lkey) = default;
};
struct Rkey {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Rkey, Rkey) = default;
};

// Index of a rail (device + port) in this process' list; also the index into per-rail key arrays.
struct RailId {
  std::uint8_t value = 0;
  friend constexpr auto operator<=>(RailId, RailId) = default;
};
constexpr unsigned kMaxRails = 8;

// Index of a connection in this process' table; meaningless elsewhere except as an echo.
struct ConnId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(ConnId, ConnId) = default;
};
constexpr ConnId kNoConn{0xffffffffu};

}  // namespace mend
