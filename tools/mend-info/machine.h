// What mend-info knows of a machine: its topology and its ports, from the live machine or from a
// description of another one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/conn/params.h"
#include "plugin/verbs/error.h"
#include "topo/snapshot.h"

namespace mend::info {

struct PortRow {
  std::string device;
  int port = 1;
  int numa = -1;     // OS number; -1: no one node
  int package = -1;  // -1: no one package
  std::string pci;   // empty: not on PCI
  std::optional<double> speed_gbps;
  double pci_gbps = 0;  // of its slot; 0 = unknown
  std::string state;    // "ACTIVE" ...; "unknown"
  bool usable = false;  // active and allowed by if_include and if_exclude
  std::string name() const { return device + ":" + std::to_string(port); }
};

struct Machine {
  topo::Snapshot snapshot;
  std::vector<PortRow> ports;                   // by device name and port number
  std::string source;                           // "this machine", or the file
  std::vector<std::string> candidates() const;  // devices of the usable ports, for topo::plan_rank
  std::vector<const PortRow*> usable() const;   // the same ports
};

// A source that names no description: this machine. A machine without devices is no error.
Result<Machine> look_at(const topo::Source& source, const conn::Params& params);

}  // namespace mend::info
