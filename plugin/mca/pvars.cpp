#include "plugin/mca/pvars.h"

#include <array>

#include "plugin/conn/stats.h"
#include "plugin/mca/component.h"

namespace mend::mca {
namespace {

struct Pvar {
  conn::Stat stat;
  int pvar_class;
  const char* help;
};

using conn::Stat;
constexpr int kCounter = MCA_BASE_PVAR_CLASS_COUNTER;
constexpr int kHigh = MCA_BASE_PVAR_CLASS_HIGHWATERMARK;
constexpr int kLow = MCA_BASE_PVAR_CLASS_LOWWATERMARK;
constexpr int kLevel = MCA_BASE_PVAR_CLASS_LEVEL;

constexpr Pvar kPvars[] = {
    {Stat::Sends, kCounter, "Messages accepted for sending, without atomic requests and answers"},
    {Stat::Recvs, kCounter, "Messages received in order"},
    {Stat::Puts, kCounter, "RDMA writes submitted"},
    {Stat::Gets, kCounter, "RDMA reads submitted"},
    {Stat::Atomics, kCounter, "Atomic operations requested"},
    {Stat::BytesSent, kCounter, "Payload bytes of sends and puts"},
    {Stat::BytesReceived, kCounter, "Payload bytes of receives and gets"},
    {Stat::Connections, kCounter, "Connections that were ever active"},
    {Stat::QpsCreated, kCounter, "RC queue pairs created"},
    {Stat::QpsDestroyed, kCounter, "RC queue pairs destroyed"},
    {Stat::QpsLiveMax, kHigh,
     "Most RC queue pairs live at one time: ready or in use, without retired ones"},
    {Stat::Recoveries, kCounter, "Times a connection became active again on a new queue pair"},
    {Stat::Replayed, kCounter, "Operations posted again after a recovery"},
    {Stat::ReplayedBytes, kCounter, "Payload bytes posted again after a recovery"},
    {Stat::InDoubt, kCounter, "Replayed puts of which it was unknown whether they had arrived"},
    {Stat::DupRx, kCounter, "Messages received twice and dropped; must be 0"},
    {Stat::Failovers, kCounter, "Connections moved to another rail; not built yet, always 0"},
    {Stat::Failbacks, kCounter,
     "Connections moved back to their home rail; not built yet, always 0"},
    {Stat::HeartbeatMisses, kCounter, "Heartbeats that were not answered in time"},
    {Stat::HbFalseAlarm, kCounter, "Suspicions that a probe refuted"},
    {Stat::Rnr, kCounter,
     "Receiver-not-ready events; no device's counter is read yet: all bits are set"},
    {Stat::SrqDepth, kLevel, "Receive buffers of all rails"},
    {Stat::SrqMinFree, kLow, "Lowest number of posted receive buffers seen on any rail"},
    {Stat::SrqLost, kCounter, "Receive buffers found missing by an audit"},
    {Stat::MrsLiveMax, kHigh, "Most memory regions registered at one time"},
    {Stat::MrBytesMax, kHigh, "Most bytes registered at one time"},
    {Stat::MaxOutageUs, kHigh, "Longest outage that was healed, microseconds"},
    {Stat::Repairs, kCounter, "Operations whose keys or memory were renewed after a refusal"},
    {Stat::CtlDropped, kCounter,
     "Control datagrams that were damaged, forged or for somebody else"},
    {Stat::CtlStale, kCounter, "Control messages of another epoch, or without meaning then"},
    {Stat::Slowed, kCounter,
     "Times a connection sent less at once because its peer was short of receive buffers"},
};
static_assert(std::size(kPvars) == conn::kStats, "every statistic is a performance variable");

int read_value(const mca_base_pvar_t* pvar, void* value, void* /*object*/) noexcept {
  const auto* description = static_cast<const Pvar*>(pvar->ctx);
  unsigned long long result = 0;
  if (const Runtime* rt = runtime()) {
    result = rt->transport->stat(static_cast<unsigned>(description->stat));
  }
  *static_cast<unsigned long long*>(value) = result;
  return OPAL_SUCCESS;
}

int notify(mca_base_pvar_t* /*pvar*/, mca_base_pvar_event_t /*event*/, void* /*object*/,
           int* count) noexcept {
  if (count != nullptr) *count = 1;
  return OPAL_SUCCESS;
}

}  // namespace

int register_pvars(const mca_base_component_t& component) {
  constexpr auto kFlags = static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY |
                                                            MCA_BASE_PVAR_FLAG_CONTINUOUS);
  for (const Pvar& pvar : kPvars) {
    const char* name = conn::kStatNames[static_cast<std::size_t>(pvar.stat)];
    const int rc = mca_base_component_pvar_register(
        &component, name, pvar.help, OPAL_INFO_LVL_4, pvar.pvar_class,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT, kFlags,
        &read_value, nullptr, &notify, const_cast<Pvar*>(&pvar));
    if (rc < 0) return rc;
  }
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
