#include "plugin/conn/error_policy.h"

#include <array>
#include <cstddef>

#include "plugin/verbs/async_events.h"
#include "plugin/verbs/wc_status.h"

namespace mend::conn {
namespace {

constexpr auto kLink = FaultClass::LinkLike;

constexpr std::array<StatusRule, 24> kStatuses = {{
    {IBV_WC_SUCCESS, FaultClass::Ignore},
    {IBV_WC_LOC_LEN_ERR, FaultClass::NotRepairable},
    {IBV_WC_LOC_QP_OP_ERR, kLink},
    {IBV_WC_LOC_EEC_OP_ERR, kLink},
    {IBV_WC_LOC_PROT_ERR, FaultClass::LocalFault},
    {IBV_WC_WR_FLUSH_ERR, kLink},  // says nothing of the cause
    {IBV_WC_MW_BIND_ERR, FaultClass::NotRepairable},
    {IBV_WC_BAD_RESP_ERR, kLink},
    {IBV_WC_LOC_ACCESS_ERR, FaultClass::LocalFault},
    {IBV_WC_REM_INV_REQ_ERR, FaultClass::RemoteAccess},
    {IBV_WC_REM_ACCESS_ERR, FaultClass::RemoteAccess},
    {IBV_WC_REM_OP_ERR, FaultClass::RemoteOperation},
    {IBV_WC_RETRY_EXC_ERR, kLink},
    {IBV_WC_RNR_RETRY_EXC_ERR, FaultClass::PeerSlow},
    {IBV_WC_LOC_RDD_VIOL_ERR, kLink},
    {IBV_WC_REM_INV_RD_REQ_ERR, kLink},
    {IBV_WC_REM_ABORT_ERR, FaultClass::RemoteOperation},
    {IBV_WC_INV_EECN_ERR, kLink},
    {IBV_WC_INV_EEC_STATE_ERR, kLink},
    {IBV_WC_FATAL_ERR, kLink},  // of one queue pair; a dead device says so by its event
    {IBV_WC_RESP_TIMEOUT_ERR, kLink},
    {IBV_WC_GENERAL_ERR, kLink},
    {IBV_WC_TM_ERR, kLink},
    {IBV_WC_TM_RNDV_INCOMPLETE, kLink},
}};

constexpr std::array<EventRule, 20> kEvents = {{
    {IBV_EVENT_CQ_ERR, FaultClass::DeviceFatal},
    {IBV_EVENT_QP_FATAL, kLink},
    {IBV_EVENT_QP_REQ_ERR, kLink},
    {IBV_EVENT_QP_ACCESS_ERR, kLink},  // the requester's completion says which key
    {IBV_EVENT_COMM_EST, FaultClass::Ignore},
    {IBV_EVENT_SQ_DRAINED, FaultClass::Ignore},
    {IBV_EVENT_PATH_MIG, FaultClass::Ignore},
    {IBV_EVENT_PATH_MIG_ERR, FaultClass::Ignore},
    {IBV_EVENT_DEVICE_FATAL, FaultClass::DeviceFatal},
    {IBV_EVENT_PORT_ACTIVE, FaultClass::PathChange},
    {IBV_EVENT_PORT_ERR, FaultClass::PathChange},
    {IBV_EVENT_LID_CHANGE, FaultClass::PathChange},
    {IBV_EVENT_PKEY_CHANGE, FaultClass::PathChange},
    {IBV_EVENT_SM_CHANGE, FaultClass::PathChange},
    {IBV_EVENT_SRQ_ERR, FaultClass::DeviceFatal},
    {IBV_EVENT_SRQ_LIMIT_REACHED, FaultClass::Ignore},    // the ledger counts
    {IBV_EVENT_QP_LAST_WQE_REACHED, FaultClass::Ignore},  // the fence waits for it
    {IBV_EVENT_CLIENT_REREGISTER, FaultClass::PathChange},
    {IBV_EVENT_GID_CHANGE, FaultClass::PathChange},
    {IBV_EVENT_WQ_FATAL, FaultClass::Ignore},  // mend has none
}};

template <typename Table, typename Value>
constexpr FaultClass look_up(const Table& table, Value value) {
  for (const auto& rule : table) {
    if constexpr (requires { rule.status; }) {
      if (rule.status == value) return rule.fault;
    } else {
      if (rule.event == value) return rule.fault;
    }
  }
  return FaultClass::LinkLike;
}

constexpr bool statuses_in_order() {
  for (std::size_t i = 0; i < kStatuses.size(); ++i)
    if (static_cast<std::size_t>(kStatuses[i].status) != i) return false;
  return kStatuses.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1;
}
constexpr bool events_in_order() {
  for (std::size_t i = 0; i < kEvents.size(); ++i)
    if (static_cast<std::size_t>(kEvents[i].event) != i) return false;
  return kEvents.size() == IBV_EVENT_WQ_FATAL + 1;
}
static_assert(statuses_in_order() && events_in_order());

}  // namespace

const char* to_string(FaultClass fault) {
  switch (fault) {
    case FaultClass::Ignore:
      return "ignore";
    case FaultClass::LinkLike:
      return "link-like";
    case FaultClass::PeerSlow:
      return "peer slow";
    case FaultClass::LocalFault:
      return "local fault";
    case FaultClass::RemoteAccess:
      return "remote access";
    case FaultClass::RemoteOperation:
      return "remote operation";
    case FaultClass::PathChange:
      return "path change";
    case FaultClass::DeviceFatal:
      return "device fatal";
    case FaultClass::NotRepairable:
      return "not repairable";
  }
  return "unknown";
}

std::span<const StatusRule> status_rules() { return kStatuses; }
std::span<const EventRule> event_rules() { return kEvents; }

FaultClass policy_of(ibv_wc_status status) { return look_up(kStatuses, status); }
FaultClass policy_of(ibv_event_type event) { return look_up(kEvents, event); }

std::string policy_rows() {
  std::string rows;
  const auto add = [&rows](const char* name, FaultClass fault) {
    rows += std::string("| ") + name + " | " + to_string(fault) + " |\n";
  };
  for (const StatusRule& rule : kStatuses) add(verbs::wc_status_name(rule.status), rule.fault);
  for (const EventRule& rule : kEvents) add(verbs::event_name(rule.event), rule.fault);
  return rows;
}

}  // namespace mend::conn
