// Time codes and PSN arithmetic against the InfiniBand tables.
#include "softhca/rules/timers.h"

#include <gtest/gtest.h>

#include <array>

namespace softhca {
namespace {

TEST(Timers, RnrTableOfTheSpecification) {
  constexpr std::array<double, 32> kMilliseconds{
      655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,  0.32,
      0.48,   0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
      20.48,  30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
  for (uint8_t code = 0; code < 32; ++code)
    EXPECT_NEAR(static_cast<double>(rnr_timer_ns(code)), kMilliseconds[code] * 1e6, 1.0)
        << int{code};
}

TEST(Timers, AckTimeoutDoubles) {
  EXPECT_EQ(ack_timeout_ns(1), 8192U);
  EXPECT_EQ(ack_timeout_ns(14), 4096ULL << 14);  // 67 ms, the usual choice
  EXPECT_EQ(ack_timeout_ns(31), 4096ULL << 31);
  EXPECT_EQ(ack_timeout_ns(0), kNever);
}

TEST(Timers, RetryTimeCountsTheFirstTryToo) {
  EXPECT_EQ(retry_timeout_ns(10, 0), 4096ULL << 10);
  EXPECT_EQ(retry_timeout_ns(10, 7), 8 * (4096ULL << 10));
  EXPECT_EQ(retry_timeout_ns(0, 7), kNever);
}

TEST(Timers, PsnOrderWrapsAt24Bits) {
  EXPECT_EQ(psn_diff(5, 5), 0);
  EXPECT_EQ(psn_diff(0, kPsnMask), 1);
  EXPECT_EQ(psn_diff(kPsnMask, 0), -1);
  EXPECT_EQ(psn_diff(0x7fffff, 0), 0x7fffff);
  EXPECT_LT(psn_diff(0x800000, 0), 0);
  EXPECT_EQ(psn_add(kPsnMask, 2), 1U);
  for (uint32_t a = 0; a <= kPsnMask; a += 99991)
    for (const uint32_t n : {1U, 255U, 65536U, 0x7fffffU})
      EXPECT_EQ(psn_diff(psn_add(a, n), a), static_cast<int32_t>(n)) << a;
}

}  // namespace
}  // namespace softhca
