// The accept rule of control messages that needs to know who we are (docs/protocol.md 1.3). Pure.
// Order of use: parse() -> addressed_to_me() -> find the connection -> from_peer() -> step().
#pragma once

#include <cstdint>
#include <optional>

#include "plugin/conn/ctl_wire.h"

namespace mend::conn {

struct SelfName {
  std::uint64_t job_key = 0;
  std::uint64_t boot = 0;
  std::uint32_t rank = 0;
};

// What the modex says about the peer of a connection, and the connection's index within the pair.
struct PeerName {
  std::uint64_t boot = 0;
  std::uint32_t rank = 0;
  std::uint32_t k = 0;
};

// The destination's names must be ours. Boot means: right job and rank, but meant for a previous
// process (the one case worth a REJ(StaleBoot)); for everything else the answer is silence.
inline std::optional<DropReason> addressed_to_me(const CtlMessage& m, const SelfName& self) {
  if (m.job_key != self.job_key) return DropReason::JobKey;
  if (m.dst_rank != self.rank) return DropReason::Rank;
  if (m.dst_boot != self.boot) return DropReason::Boot;
  return std::nullopt;
}

// The source's names must be those of the connection it was looked up for; mine is that
// connection's index in my table.
inline std::optional<DropReason> from_peer(const CtlMessage& m, const PeerName& peer, ConnId mine) {
  if (m.src_boot != peer.boot) return DropReason::Boot;
  if (m.src_rank != peer.rank) return DropReason::Rank;
  if (m.k != peer.k || (m.dst_conn != kNoConn && m.dst_conn != mine)) return DropReason::Connection;
  return std::nullopt;
}

}  // namespace mend::conn
