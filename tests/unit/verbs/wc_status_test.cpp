// Names of completion statuses.
#include "plugin/verbs/wc_status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace mend::verbs {
namespace {

TEST(WcStatus, EveryStatusHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    names.insert(wc_status_name(static_cast<ibv_wc_status>(i)));
  }
  EXPECT_EQ(names.size(), 24u);
  EXPECT_STREQ(wc_status_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
  EXPECT_STREQ(wc_status_name(static_cast<ibv_wc_status>(31)), "unknown status");
}

}  // namespace
}  // namespace mend::verbs
