// The sizing formulas, as tables.
#include "plugin/conn/sizing.h"

#include <gtest/gtest.h>

namespace mend::conn {
namespace {

TEST(SendDepth, FromRateWindowAndDevice) {
  struct Case {
    std::uint32_t wanted, mbps, window, device, expected;
  };
  const Case cases[] = {
      {0, 10'000, 128, 16384, 128},   // 10 GbE: the window decides
      {0, 100'000, 128, 16384, 256},  // 75 kB in flight = 146 requests, rounded up
      {0, 400'000, 128, 16384, 1024},
      {0, 0, 128, 16384, 128},    // a device that does not tell its rate
      {0, 0, 2, 16384, 16},       // never below the floor
      {0, 0, 4096, 16384, 128},   // a huge window does not make huge queues
      {0, 100'000, 128, 64, 62},  // two requests stay reserved
      {0, 4'000'000, 128, 1 << 20, 4096},
      {40, 100'000, 128, 16384, 40},  // what the user wants, exactly
      {40, 100'000, 128, 32, 30},     // within the device
      {0, 100'000, 128, 2, 0},        // no room beside the reserved ones
  };
  for (const Case& c : cases) {
    EXPECT_EQ(
        send_queue_depth(
            {.wanted = c.wanted, .speed_mbps = c.mbps, .window = c.window, .device_max = c.device}),
        c.expected)
        << c.wanted << " " << c.mbps << " " << c.window << " " << c.device;
  }
}

TEST(SrqDepth, WindowTimesPeersButNeverBelowTheRule) {
  struct Case {
    std::uint32_t wanted, window, peers, live, device, expected;
  };
  const Case cases[] = {
      {0, 128, 1, 3, 4096, 128},     {0, 128, 3, 5, 4096, 384},
      {0, 128, 4, 6, 4096, 512},     {0, 128, 63, 65, 4096, 512},      // no growth with peers ...
      {0, 2, 1, 3, 4096, 16},        {0, 128, 999, 1001, 4096, 2002},  // ... but the rule
      {4, 128, 1, 3, 4096, 6},  // too small a wish is raised to the rule
      {1000, 128, 1, 3, 4096, 1000}, {1000, 128, 1, 3, 512, 512},  // the device's limit
      {0, 128, 1, 300, 512, 0},                                    // the rule cannot be kept
      {0, 128, 0, 0, 4096, 128},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(srq_depth({.wanted = c.wanted,
                         .window = c.window,
                         .peers = c.peers,
                         .live_qps = c.live,
                         .device_max = c.device}),
              c.expected)
        << c.wanted << " " << c.window << " " << c.peers << " " << c.live << " " << c.device;
  }
}

TEST(SrqCapacity, HoldsEveryPeerPoolAndRecovery) {
  EXPECT_EQ(srq_capacity(128, 1, 2, 4096), 1024u) << "for peers nobody announced";
  EXPECT_EQ(srq_capacity(2000, 1, 2, 4096), 2000u);
  EXPECT_EQ(srq_capacity(128, 1000, 2, 4096), 2u * (1000 + 2 + 32));
  EXPECT_EQ(srq_capacity(128, 5000, 2, 4096), 4096u) << "clamped to the device";
}

TEST(CqDepth, CannotOverrun) {
  EXPECT_EQ(cq_depth(0, 130, 512), 512u);
  EXPECT_EQ(cq_depth(10, 130, 512), 1812u);
  EXPECT_EQ(cq_depth(1u << 24, 1u << 12, 0), std::uint64_t{1} << 36) << "no 32-bit overflow";
}

TEST(Sizing, ReliefIsBoundedAndNeverShrinks) {
  EXPECT_EQ(relieved_depth({.depth = 128, .first_depth = 128, .device_max = 4096}), 192u);
  EXPECT_EQ(relieved_depth({.depth = 480, .first_depth = 128, .device_max = 4096}), 512u);
  EXPECT_EQ(relieved_depth({.depth = 512, .first_depth = 128, .device_max = 4096}), 512u);
  EXPECT_EQ(relieved_depth({.depth = 100, .first_depth = 100, .device_max = 120}), 120u);
  EXPECT_EQ(relieved_depth({.depth = 1, .first_depth = 1, .device_max = 4096}), 2u);
  // The 2 x rule has taken it beyond the bound.
  EXPECT_EQ(relieved_depth({.depth = 900, .first_depth = 128, .device_max = 4096}), 900u);
  EXPECT_EQ(relieved_depth({.depth = 16, .first_depth = 16, .fixed = true, .device_max = 4096}),
            16u);
}

}  // namespace
}  // namespace mend::conn
