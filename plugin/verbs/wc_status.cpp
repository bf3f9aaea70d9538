#include "plugin/verbs/wc_status.h"

#include <array>
#include <cstddef>

namespace mend::verbs {
namespace {

struct StatusEntry {
  const char* name;
  WcClass wc_class;
};

// Indexed by ibv_wc_status. What is not clearly a fault of a buffer or key is treated as a broken
// link: a recovery that was not needed costs time only, a wrong "fatal" costs the job.
constexpr std::array<StatusEntry, 24> kStatus = {{
    {"SUCCESS", WcClass::Success},
    {"LOC_LEN_ERR", WcClass::LocalFault},
    {"LOC_QP_OP_ERR", WcClass::LinkLike},
    {"LOC_EEC_OP_ERR", WcClass::LinkLike},
    {"LOC_PROT_ERR", WcClass::LocalFault},
    {"WR_FLUSH_ERR", WcClass::Flush},
    {"MW_BIND_ERR", WcClass::LocalFault},
    {"BAD_RESP_ERR", WcClass::LinkLike},
    {"LOC_ACCESS_ERR", WcClass::LocalFault},
    {"REM_INV_REQ_ERR", WcClass::LinkLike},
    {"REM_ACCESS_ERR", WcClass::RemoteAccess},
    {"REM_OP_ERR", WcClass::LinkLike},
    {"RETRY_EXC_ERR", WcClass::LinkLike},
    {"RNR_RETRY_EXC_ERR", WcClass::LinkLike},
    {"LOC_RDD_VIOL_ERR", WcClass::LinkLike},
    {"REM_INV_RD_REQ_ERR", WcClass::LinkLike},
    {"REM_ABORT_ERR", WcClass::LinkLike},
    {"INV_EECN_ERR", WcClass::LinkLike},
    {"INV_EEC_STATE_ERR", WcClass::LinkLike},
    {"FATAL_ERR", WcClass::LinkLike},
    {"RESP_TIMEOUT_ERR", WcClass::LinkLike},
    {"GENERAL_ERR", WcClass::LinkLike},
    {"TM_ERR", WcClass::LinkLike},
    {"TM_RNDV_INCOMPLETE", WcClass::LinkLike},
}};
static_assert(kStatus.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

}  // namespace

WcClass classify(ibv_wc_status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < kStatus.size() ? kStatus[index].wc_class : WcClass::LinkLike;
}

const char* wc_status_name(ibv_wc_status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < kStatus.size() ? kStatus[index].name : "unknown status";
}

const char* to_string(WcClass wc_class) {
  switch (wc_class) {
    case WcClass::Success:
      return "success";
    case WcClass::Flush:
      return "flush";
    case WcClass::LinkLike:
      return "link-like";
    case WcClass::LocalFault:
      return "local fault";
    case WcClass::RemoteAccess:
      return "remote access";
  }
  return "unknown";
}

}  // namespace mend::verbs
