// The table of faults: complete, and the same in the document as in the code.
#include "plugin/conn/error_policy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "plugin/verbs/async_events.h"
#include "plugin/verbs/wc_status.h"

namespace mend::conn {
namespace {

TEST(ErrorPolicy, EveryStatusHasTheClassThatTheProtocolNames) {
  const std::map<ibv_wc_status, FaultClass> special{
      {IBV_WC_SUCCESS, FaultClass::Ignore},
      {IBV_WC_LOC_LEN_ERR, FaultClass::NotRepairable},
      {IBV_WC_MW_BIND_ERR, FaultClass::NotRepairable},
      {IBV_WC_LOC_PROT_ERR, FaultClass::LocalFault},
      {IBV_WC_LOC_ACCESS_ERR, FaultClass::LocalFault},
      {IBV_WC_REM_INV_REQ_ERR, FaultClass::RemoteAccess},
      {IBV_WC_REM_ACCESS_ERR, FaultClass::RemoteAccess},
      {IBV_WC_REM_OP_ERR, FaultClass::RemoteOperation},
      {IBV_WC_REM_ABORT_ERR, FaultClass::RemoteOperation},
      {IBV_WC_RNR_RETRY_EXC_ERR, FaultClass::PeerSlow}};
  ASSERT_EQ(status_rules().size(), 24u);
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    const auto status = static_cast<ibv_wc_status>(i);
    EXPECT_EQ(status_rules()[static_cast<std::size_t>(i)].status, status);
    const auto it = special.find(status);
    EXPECT_EQ(policy_of(status), it == special.end() ? FaultClass::LinkLike : it->second)
        << verbs::wc_status_name(status);
  }
  EXPECT_EQ(policy_of(static_cast<ibv_wc_status>(31)), FaultClass::LinkLike);
}

TEST(ErrorPolicy, EveryEventHasARule) {
  ASSERT_EQ(event_rules().size(), static_cast<std::size_t>(IBV_EVENT_WQ_FATAL) + 1);
  for (int i = 0; i <= IBV_EVENT_WQ_FATAL; ++i) {
    const auto event = static_cast<ibv_event_type>(i);
    EXPECT_EQ(event_rules()[static_cast<std::size_t>(i)].event, event);
    // A port's events move addresses, and nothing else does.
    EXPECT_EQ(policy_of(event) == FaultClass::PathChange,
              verbs::event_subject(event) == verbs::EventSubject::Port)
        << verbs::event_name(event);
  }
  for (const auto event : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR})
    EXPECT_EQ(policy_of(event), FaultClass::LinkLike);
  for (const auto event : {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR})
    EXPECT_EQ(policy_of(event), FaultClass::DeviceFatal);
}

// docs/protocol.md has the rows word for word.
TEST(ErrorPolicy, DocumentAndCodeAgree) {
  std::ifstream file(MEND_PROTOCOL_MD);
  ASSERT_TRUE(file) << MEND_PROTOCOL_MD;
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  std::istringstream rows(policy_rows());
  int count = 0;
  for (std::string row; std::getline(rows, row); ++count)
    EXPECT_EQ(lines.count(row), 1u) << "docs/protocol.md lacks: " << row;
  EXPECT_EQ(count, 44);
}

}  // namespace
}  // namespace mend::conn
