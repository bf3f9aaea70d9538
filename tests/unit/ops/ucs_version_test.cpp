// A libucs of another UCX must be told from the one mend was built against.
#include "ops/ucs_version.h"

#include <gtest/gtest.h>

#include "ops/ucs_compat.h"

namespace mend::ops {
namespace {

constexpr bool kParams = ucs_compat::kPoolTakesParams;
constexpr unsigned kMajor = ucs_compat::kBuiltMajor, kMinor = ucs_compat::kBuiltMinor;

TEST(UcsVersion, TheOneOfThisBuildFits) { EXPECT_EQ(ucs_mismatch(find_ucs()), ""); }

TEST(UcsVersion, WithoutLibucpTheCallsDecide) {
  EXPECT_EQ(ucs_mismatch({kParams, 0, 0}), "");
  EXPECT_EQ(ucs_mismatch({true, 0, 0}), kParams ? "" : "1.14 or later");
  EXPECT_EQ(ucs_mismatch({false, 0, 0}), kParams ? "older than 1.14" : "");
}

TEST(UcsVersion, LibucpNamesTheVersion) {
  EXPECT_EQ(ucs_mismatch({kParams, kMajor, kMinor}), "");
  EXPECT_EQ(ucs_mismatch({kParams, kMajor, 99}), std::to_string(kMajor) + ".99");
  EXPECT_EQ(ucs_mismatch({!kParams, 9, 1}), "9.1");
}

// libucp is the right one, but libucs is not.
TEST(UcsVersion, CallsThatDoNotFitAreBelievedMore) {
  EXPECT_NE(ucs_mismatch({!kParams, kMajor, kMinor}), "");
}

}  // namespace
}  // namespace mend::ops
