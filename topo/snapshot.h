// What this machine looks like to a NIC chooser: NUMA nodes, how far apart they are, where each
// RDMA device sits and where this process is bound. Plain data; load() fills it in once from hwloc
// (the live machine, or HWLOC_XMLFILE).
//
// Thread contract: load() from one thread at start-up (some ten milliseconds on a large machine:
// skip it when no device in use has a place); the rest is immutable data.
#pragma once

#include <string>
#include <vector>

#include "plugin/verbs/error.h"

namespace mend::topo {

// Index into Snapshot::nodes.
using NodeIndex = unsigned;

struct NumaNode {
  int os_index = -1;
  int package = -1;  // nodes of one package are closer to each other; -1 = unknown
};

struct DevicePlace {
  std::string name;              // verbs device name, e.g. "mlx5_0"
  std::string pci;               // "0000:5e:00.0", empty where the device is not on PCI
  std::vector<NodeIndex> nodes;  // nodes it is attached to; empty = no locality known
};

struct Snapshot {
  std::vector<NumaNode> nodes;
  // Relative latency as the firmware reports it, row = from, column = to; empty when it reports
  // none. The diagonal is the smallest.
  std::vector<std::vector<double>> latency;
  std::vector<DevicePlace> devices;
  std::vector<NodeIndex> process;  // nodes this process may run on; empty = unknown

  const DevicePlace* find(const std::string& device) const;
  int numa_node_of(const std::string& device) const;  // OS index, -1 where it is not exactly one
};

struct Source {
  std::string xml;      // an hwloc XML file; empty: HWLOC_XMLFILE or the live machine
  std::string binding;  // an hwloc list "0-3,8" of CPUs; empty: where this process is bound
};

Result<Snapshot> load(const Source& source = {});

}  // namespace mend::topo
