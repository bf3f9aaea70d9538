#include "plugin/verbs/wc_status.h"

#include <array>
#include <cstddef>

namespace mend::verbs {
namespace {

// Indexed by ibv_wc_status.
constexpr std::array<const char*, 24> kNames = {"SUCCESS",
                                                "LOC_LEN_ERR",
                                                "LOC_QP_OP_ERR",
                                                "LOC_EEC_OP_ERR",
                                                "LOC_PROT_ERR",
                                                "WR_FLUSH_ERR",
                                                "MW_BIND_ERR",
                                                "BAD_RESP_ERR",
                                                "LOC_ACCESS_ERR",
                                                "REM_INV_REQ_ERR",
                                                "REM_ACCESS_ERR",
                                                "REM_OP_ERR",
                                                "RETRY_EXC_ERR",
                                                "RNR_RETRY_EXC_ERR",
                                                "LOC_RDD_VIOL_ERR",
                                                "REM_INV_RD_REQ_ERR",
                                                "REM_ABORT_ERR",
                                                "INV_EECN_ERR",
                                                "INV_EEC_STATE_ERR",
                                                "FATAL_ERR",
                                                "RESP_TIMEOUT_ERR",
                                                "GENERAL_ERR",
                                                "TM_ERR",
                                                "TM_RNDV_INCOMPLETE"};
static_assert(kNames.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

}  // namespace

const char* wc_status_name(ibv_wc_status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < kNames.size() ? kNames[index] : "unknown status";
}

}  // namespace mend::verbs
