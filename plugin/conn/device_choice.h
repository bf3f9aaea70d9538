// Which library and which ports a process uses (docs/design.md section 3): libibverbs' active
// ports, or the embedded device.
//
// Thread contract: set-up code, one thread.
// Invariant: the library is loaded at run time only; where it is missing or has no usable port,
// nothing is printed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/conn/modex.h"
#include "plugin/conn/nic.h"
#include "plugin/conn/params.h"
#include "plugin/conn/transport.h"

namespace mend::conn {

struct ChosenPort {
  Nic* nic = nullptr;
  std::uint8_t port = 1;
  int numa_node = -1;    // OS number, -1 where it has no one place
  double distance = 10;  // from where this process is bound, topo/rank_nics.h
};

struct Devices {
  const verbs::Api* api = nullptr;
  DeviceKind kind = DeviceKind::Verbs;
  std::vector<std::unique_ptr<Nic>> nics;
  std::vector<ChosenPort> ports;  // best first, at most kMaxRails
};

// ENODEV: no library, or no active port that the parameters allow: step aside. Other codes are the
// user's to know: an unknown device in if_include, a library that does not load although it was
// asked for. `before_open` is called once there is a device to open, before the first is: opening
// may start a thread.
Result<Devices> choose_devices(const Params& params, const Identity& self,
                               const std::function<void()>& before_open = {});

// The same before the choice by place: all active ports that the parameters allow, by device name
// and port number.
Result<Devices> active_ports(const Params& params, const Identity& self,
                             const std::function<void()>& before_open = {});

}  // namespace mend::conn
