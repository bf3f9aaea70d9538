// Enumerations as text, and link rates. The texts are those of libibverbs, because programs and
// people search logs for them ("transport retry counter exceeded"). Pure; any thread.
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

namespace {

constexpr const char* kUnknown = "unknown";

template <size_t N>
const char* text_of(const std::array<const char*, N>& table, int value) {
  return value >= 0 && static_cast<size_t>(value) < N ? table[static_cast<size_t>(value)]
                                                      : kUnknown;
}

constexpr std::array kWcStatus{
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};
static_assert(kWcStatus.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr std::array kEventType{
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
};
static_assert(kEventType.size() == IBV_EVENT_WQ_FATAL + 1);

constexpr std::array kNodeType{
    kUnknown,
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};
static_assert(kNodeType.size() == IBV_NODE_UNSPECIFIED + 1);

constexpr std::array kPortState{
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};
static_assert(kPortState.size() == IBV_PORT_ACTIVE_DEFER + 1);

struct Rate {
  ibv_rate rate;
  int mult;  // of 2.5 Gb/s; -1: not a multiple
  int mbps;
};

constexpr std::array kRates{
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},      Rate{IBV_RATE_5_GBPS, 2, 5000},
    Rate{IBV_RATE_10_GBPS, 4, 10000},      Rate{IBV_RATE_14_GBPS, -1, 14062},
    Rate{IBV_RATE_20_GBPS, 8, 20000},      Rate{IBV_RATE_25_GBPS, -1, 25781},
    Rate{IBV_RATE_28_GBPS, 11, 28125},     Rate{IBV_RATE_30_GBPS, 12, 30000},
    Rate{IBV_RATE_40_GBPS, 16, 40000},     Rate{IBV_RATE_50_GBPS, 20, 53125},
    Rate{IBV_RATE_56_GBPS, -1, 56250},     Rate{IBV_RATE_60_GBPS, 24, 60000},
    Rate{IBV_RATE_80_GBPS, 32, 80000},     Rate{IBV_RATE_100_GBPS, -1, 103125},
    Rate{IBV_RATE_112_GBPS, -1, 112500},   Rate{IBV_RATE_120_GBPS, 48, 120000},
    Rate{IBV_RATE_168_GBPS, -1, 168750},   Rate{IBV_RATE_200_GBPS, -1, 206250},
    Rate{IBV_RATE_300_GBPS, -1, 309375},   Rate{IBV_RATE_400_GBPS, 160, 425000},
    Rate{IBV_RATE_600_GBPS, 240, 637500},  Rate{IBV_RATE_800_GBPS, 320, 850000},
    Rate{IBV_RATE_1200_GBPS, 480, 1275000}};

const Rate* find_rate(int Rate::*field, int value) {
  for (const Rate& r : kRates)
    if (r.*field == value) return &r;
  return nullptr;
}

const Rate* find_rate(ibv_rate rate) {
  for (const Rate& r : kRates)
    if (r.rate == rate) return &r;
  return nullptr;
}

}  // namespace

extern "C" {

const char* ibv_wc_status_str(enum ibv_wc_status status) { return text_of(kWcStatus, status); }

const char* ibv_event_type_str(enum ibv_event_type event) { return text_of(kEventType, event); }

const char* ibv_node_type_str(enum ibv_node_type node_type) {
  return text_of(kNodeType, node_type);
}

const char* ibv_port_state_str(enum ibv_port_state port_state) {
  return text_of(kPortState, port_state);
}

int ibv_rate_to_mult(enum ibv_rate rate) {
  const Rate* r = find_rate(rate);
  return r == nullptr ? -1 : r->mult;
}

enum ibv_rate mult_to_ibv_rate(int mult) {
  const Rate* r = mult <= 0 ? nullptr : find_rate(&Rate::mult, mult);
  return r == nullptr ? IBV_RATE_MAX : r->rate;
}

int ibv_rate_to_mbps(enum ibv_rate rate) {
  const Rate* r = find_rate(rate);
  return r == nullptr ? -1 : r->mbps;
}

enum ibv_rate mbps_to_ibv_rate(int mbps) {
  const Rate* r = find_rate(&Rate::mbps, mbps);
  return r == nullptr ? IBV_RATE_MAX : r->rate;
}

}  // extern "C"
