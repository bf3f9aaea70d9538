// The white list of repairable completions.
#include "plugin/verbs/wc_status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace mend::verbs {
namespace {

TEST(WcStatus, OnlyKeysAndBuffersCanBeFatal) {
  const std::set<ibv_wc_status> local{IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_MW_BIND_ERR,
                                      IBV_WC_LOC_ACCESS_ERR};
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    const auto status = static_cast<ibv_wc_status>(i);
    WcClass expected = local.count(status) != 0 ? WcClass::LocalFault : WcClass::LinkLike;
    if (status == IBV_WC_SUCCESS) expected = WcClass::Success;
    if (status == IBV_WC_WR_FLUSH_ERR) expected = WcClass::Flush;
    if (status == IBV_WC_REM_ACCESS_ERR) expected = WcClass::RemoteAccess;
    EXPECT_EQ(classify(status), expected) << wc_status_name(status);
  }
}

TEST(WcStatus, EveryStatusHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    names.insert(wc_status_name(static_cast<ibv_wc_status>(i)));
  }
  EXPECT_EQ(names.size(), 24u);
  EXPECT_STREQ(wc_status_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
  EXPECT_STREQ(wc_status_name(static_cast<ibv_wc_status>(31)), "unknown status");
  EXPECT_EQ(classify(static_cast<ibv_wc_status>(31)), WcClass::LinkLike);
}

}  // namespace
}  // namespace mend::verbs
