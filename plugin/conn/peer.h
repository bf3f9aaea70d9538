// Peer: another process of the job, as add_procs and the modex describe it, and its connections.
//
// Thread contract: filled in before it is published to the service thread, immutable afterwards but
// for the atomics and what is marked as the service thread's. Invariant: connections[k] exists for
// k < max(my rails, its rails); by_home[r] is one with home rail r.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/conn/modex.h"
#include "plugin/verbs/types.h"

namespace mend::conn {

class Connection;

class Peer {
 public:
  std::uint32_t jobid = 0;
  std::uint32_t rank = 0;
  std::string host;
  ModexInfo modex;
  std::vector<Connection*> connections;          // index k
  std::array<Connection*, kMaxRails> by_home{};  // by home rail of this process
  std::atomic<bool> gave_up{false};
  // What the layer above keeps about this peer, by home rail; its own, and its to set.
  std::array<std::atomic<void*>, kMaxRails> upper{};
};

}  // namespace mend::conn
