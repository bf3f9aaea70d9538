// What this machine looks like to a NIC chooser: NUMA nodes, how far apart they are, where each
// RDMA device sits and where this process is bound. Plain data; load() fills it in once from hwloc
// (the live machine, or HWLOC_XMLFILE).
//
// Thread contract: load() from one thread at start-up (some ten milliseconds on a large machine:
// skip it when no device in use has a place); the rest is immutable data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugin/verbs/error.h"

namespace mend::topo {

// Index into Snapshot::nodes.
using NodeIndex = unsigned;

struct NumaNode {
  int os_index = -1;
  int package = -1;                // nodes of one package are closer to each other; -1 = unknown
  std::vector<unsigned> cpus;      // OS numbers, ascending
  std::uint64_t memory_bytes = 0;  // 0 = unknown
  std::string kind;                // "HBM", "GPUMemory" ...; empty: ordinary memory, or unknown
};

// What a topology file says of a port; the live machine is asked through verbs.
struct PortPlace {
  int number = 1;
  std::string state;  // "ACTIVE", "DOWN" ...
};

struct DevicePlace {
  std::string name;              // verbs device name, e.g. "mlx5_0"
  std::string pci;               // "0000:5e:00.0", empty where the device is not on PCI
  std::vector<NodeIndex> nodes;  // nodes it is attached to; empty = no locality known
  double pci_gbps = 0;           // of its PCI link, gigabits per second; 0 = unknown
  std::vector<PortPlace> ports;  // empty where the source does not tell
};

// The nodes a process may run on; empty = anywhere, or unknown.
using Binding = std::vector<NodeIndex>;

struct Snapshot {
  std::vector<NumaNode> nodes;
  // Relative latency as the firmware reports it, row = from, column = to; empty when it reports
  // none. The diagonal is the smallest.
  std::vector<std::vector<double>> latency;
  std::vector<DevicePlace> devices;
  Binding process;  // of this process
  // OS numbers of the CPUs of each core, cores in the order of the machine.
  std::vector<std::vector<unsigned>> cores;

  const DevicePlace* find(const std::string& device) const;
  int numa_node_of(const std::string& device) const;  // OS index, -1 where it is not exactly one
  // The nodes that own any of these CPUs (OS numbers); CPUs that nobody owns are passed over.
  Binding nodes_of(std::span<const unsigned> cpus) const;
  // Where a driver says that a device which hwloc does not know is attached.
  void add_device(const std::string& device, int numa_os_index);
};

// At most one of xml, synthetic and fsroot; none: HWLOC_XMLFILE or the live machine.
struct Source {
  std::string xml;        // an hwloc XML file
  std::string binding;    // an hwloc list "0-3,8" of CPUs; empty: where this process is bound
  std::string synthetic;  // an hwloc synthetic description, "package:2 numa:2 core:4 pu:1"
  std::string fsroot;     // the root of a Linux file system (sysfs and all) of another machine
};

Result<Snapshot> load(const Source& source = {});

// The same for a file from anywhere: some damaged ones crash hwloc's loader, which is found out in
// a child process first. Not for processes with threads.
Result<Snapshot> load_untrusted(const Source& source);

// An hwloc list of CPUs, "0-3,8", as OS numbers. EINVAL: it is none, or has no end ("4-").
Result<std::vector<unsigned>> parse_cpu_list(const std::string& text);

}  // namespace mend::topo
