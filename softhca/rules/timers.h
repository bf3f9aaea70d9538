// The time codes and sequence arithmetic of the InfiniBand transport, as pure functions.
// RNR timer: 5-bit code of the responder's min_rnr_timer. Ack time-out: 4.096 us * 2^code, code 0 =
// never. PSNs are 24-bit serial numbers: a is "ahead of" b when it lies in the half circle after b.
#pragma once

#include <array>
#include <cstdint>

namespace softhca {

inline constexpr uint32_t kPsnMask = 0xffffff;

// Delay in nanoseconds that a requester waits after an RNR NAK with this timer code (low five bits
// count).
constexpr uint64_t rnr_timer_ns(uint8_t code) noexcept {
  constexpr std::array<uint32_t, 32> kHundredths{
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kHundredths[code & 31U]} *
         10'000;  // the table counts hundredths of a millisecond
}

inline constexpr uint64_t kNever = UINT64_MAX;

// Time for one transport try.
constexpr uint64_t ack_timeout_ns(uint8_t code) noexcept {
  return code == 0 ? kNever : uint64_t{4096} << (code & 31U);
}

// Time from posting to RETRY_EXC_ERR when no acknowledgement ever comes: the first try and its
// repeats.
constexpr uint64_t retry_timeout_ns(uint8_t timeout, uint8_t retry_cnt) noexcept {
  return timeout == 0 ? kNever : ack_timeout_ns(timeout) * (uint64_t{retry_cnt} + 1);
}

// Signed distance a - b on the 24-bit circle: > 0 when a is ahead, < 0 when it is behind.
constexpr int32_t psn_diff(uint32_t a, uint32_t b) noexcept {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

constexpr uint32_t psn_add(uint32_t psn, uint32_t n) noexcept { return (psn + n) & kPsnMask; }

}  // namespace softhca
