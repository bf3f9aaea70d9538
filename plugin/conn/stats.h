// The statistics of one process: the fields of the stats line and of the MPI_T variables, in one
// list.
//
// Thread contract: Stats is a plain value; the transport fills one from its parts whenever it is
// asked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mend::conn {

// Order is the order in the stats line and the index of Transport::stat(). Append only.
enum class Stat : std::uint8_t {
  Sends,            // messages accepted for sending, without atomics' requests and answers
  Recvs,            // messages received in order
  Puts,             // RDMA writes submitted
  Gets,             // RDMA reads submitted
  Atomics,          // atomic operations requested
  BytesSent,        // payload bytes of sends and puts
  BytesReceived,    // payload bytes of receives and gets
  Connections,      // connections that ever carried traffic
  QpsCreated,       // RC queue pairs created
  QpsDestroyed,     // RC queue pairs destroyed
  QpsLiveMax,       // most RC queue pairs live at one time (qp_pool.h), summed over rails
  Recoveries,       // times a connection was repaired: all was replayed on a new queue pair
  Replayed,         // operations posted again after a recovery
  ReplayedBytes,    // their payload
  InDoubt,          // replayed puts of which it was unknown whether they had been executed
  DupRx,            // messages received twice (must be 0)
  Failovers,        // connections moved to another rail (not built yet)
  Failbacks,        // connections moved back to their home rail (not built yet)
  HeartbeatMisses,  // heartbeats that were not answered in time
  HbFalseAlarm,     // suspicions that a probe refuted
  Rnr,              // receiver-not-ready events; no device's counter is read yet: -1
  SrqDepth,         // receive buffers of all rails
  SrqMinFree,       // lowest number of posted buffers seen on any rail
  SrqLost,          // receive buffers found missing by an audit
  MrsLiveMax,       // most memory regions registered at one time
  MrBytesMax,       // most bytes registered at one time
  MaxOutageUs,      // longest time from the first sign of trouble to being repaired, microseconds
  Repairs,          // operations whose keys or memory were renewed after a refusal
  CtlDropped,       // control datagrams that were damaged, forged or for somebody else
  CtlStale,         // control messages of another epoch, or without meaning in that state
  Slowed,           // times a connection sent less at once because its peer was short of buffers
  Count
};
constexpr std::size_t kStats = static_cast<std::size_t>(Stat::Count);

extern const std::array<const char*, kStats> kStatNames;

struct RailStats {
  std::string name;
  int numa_node = -1;                // OS number of the device's NUMA node; -1: no one place
  double distance = 10;              // from the process' binding, relative: 10 = near, or not known
  std::uint64_t bytes_sent = 0;      // payload bytes that left on this rail
  std::uint64_t bytes_received = 0;  // payload bytes that arrived on this rail
  std::string gid = {};              // of the port, as last looked up; empty: it has none
  std::uint32_t gid_index = 0;       // where it is in the port's table
  std::uint32_t path_mtu = 0;        // bytes, smallest of its connections; 0: there was none
};

struct Stats {
  std::uint32_t rank = 0;
  std::string host;
  std::string device;  // devices in use, comma separated
  std::array<std::int64_t, kStats> values{};
  std::vector<RailStats> rails;

  std::int64_t& operator[](Stat s) { return values[static_cast<std::size_t>(s)]; }
  std::int64_t operator[](Stat s) const { return values[static_cast<std::size_t>(s)]; }
  std::string to_json() const;  // one object on one line, no newline
};

}  // namespace mend::conn
