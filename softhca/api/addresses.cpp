// Exported calls on address handles.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softhca/engine/context.h"
#include "softhca/engine/gid_table.h"
#include "softhca/engine/injector.h"

using softhca::context_of;

namespace {

// Index of `gid` in the port's table, -1 if it is not there.
int gid_index_of(ibv_context* context, uint8_t port, const ibv_gid& gid) {
  const auto& ports = context_of(context)->conf->ports;
  if (port < 1 || port > ports.size()) return -1;
  const softhca::GidTable table(*context_of(context), port);
  for (unsigned i = 0; i < table.size(); ++i) {
    const softhca::GidConf* here = table.at(i);
    if (here != nullptr && std::memcmp(here->raw.data(), gid.raw, sizeof(gid.raw)) == 0)
      return static_cast<int>(i);
  }
  return -1;
}

struct Ends {
  ibv_gid from{};
  ibv_gid to{};
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

// Of the IPv6-shaped header, or of an IPv4 header in the second half: what the version says.
Ends ends_of(const ibv_grh& grh) {
  const uint32_t flow = ntohl(grh.version_tclass_flow);
  if (flow >> 28 == 6) {
    return {grh.sgid, grh.dgid, flow & 0xfffff, static_cast<uint8_t>((flow >> 20) & 0xff),
            grh.hop_limit};
  }
  const auto* ip = reinterpret_cast<const uint8_t*>(&grh) + 20;
  Ends ends{.traffic_class = ip[1], .hop_limit = ip[8]};
  for (const auto& [gid, at] : {std::pair(&ends.from, 12), std::pair(&ends.to, 16)}) {
    std::copy(softhca::kIpv4Mapped.begin(), softhca::kIpv4Mapped.end(), gid->raw);
    std::memcpy(gid->raw + softhca::kIpv4Mapped.size(), ip + at, 4);
  }
  return ends;
}

}  // namespace

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  const int rc = softhca::fault_on_call(*context_of(pd->context), softhca::FaultCall::CreateAh);
  if (rc != 0) {
    errno = rc;
    return nullptr;
  }
  softhca::Ah* ah = softhca::create_ah(*softhca::pd_of(pd), *attr);
  return ah == nullptr ? nullptr : &ah->ah;
}

int ibv_destroy_ah(ibv_ah* ah) { return softhca::destroy_ah(softhca::ah_of(ah)); }

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  std::memset(attr, 0, sizeof(*attr));
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  const Ends ends = ends_of(*grh);
  const int index = gid_index_of(context, port, ends.to);
  if (index < 0) {
    errno = EINVAL;
    return -1;
  }
  attr->is_global = 1;
  attr->grh.dgid = ends.from;
  attr->grh.sgid_index = static_cast<uint8_t>(index);
  attr->grh.flow_label = ends.flow_label;
  attr->grh.traffic_class = ends.traffic_class;
  attr->grh.hop_limit = ends.hop_limit;
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  ibv_ah_attr attr{};
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t eth_mac[6], uint16_t* vid) {
  // Every port of the fabric is on this host.
  constexpr uint8_t kLocal[6] = {0x02, 0, 0, 0, 0, 0x01};
  std::memcpy(eth_mac, kLocal, sizeof(kLocal));
  *vid = 0xffff;
  return 0;
}
