// Which of the active ports this process uses and in which order: by the places of the devices and
// the bindings of the ranks of this node (topo/rank_nics.h), the policy being btl_mend_numa_policy.
//
// Thread contract: set-up code, one thread.
#pragma once

#include "plugin/conn/device_choice.h"
#include "topo/snapshot.h"

namespace mend::conn {

// Adds the opened devices that hwloc does not know, where their drivers say they are.
void add_unknown_devices(const Devices& devices, topo::Snapshot& snapshot);

// Reorders and shortens devices.ports, and fills in where each is. Says in the log what was chosen
// and why. Where the topology cannot be read, all ports count as equally near.
void order_by_place(const Params& params, const Identity& self, Devices& devices);

}  // namespace mend::conn
