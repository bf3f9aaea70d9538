// The component: what Open MPI opens, asks for modules, polls and closes; and the runtime,
// everything that lives from init to the last module's finalize.
//
// Thread contract: open, init, finalize and close come from one thread; progress from any
// application thread in between. Invariant: runtime() is non-null exactly while modules are handed
// out, and nothing calls up outside of progress().
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "plugin/conn/transport.h"
#include "plugin/mca/give_up.h"
#include "plugin/mca/log_bridge.h"
#include "plugin/mca/module.h"
#include "plugin/mca/ompi_compat.h"
#include "plugin/mca/peers.h"
#include "plugin/mca/registration.h"
#include "plugin/mca/self_path.h"

extern "C" {
__attribute__((visibility("default"))) extern mca_btl_base_component_3_0_0_t mca_btl_mend_component;
}

namespace mend::mca {

struct Runtime {
  std::unique_ptr<conn::Transport> transport;
  std::unique_ptr<RegistrationCache> registrations;  // destroyed before the transport
  std::vector<std::unique_ptr<Module>> modules;      // by rail
  std::array<Module*, kMaxRails> by_rail{};          // the same, for receiving
  PeerTable peers;
  SelfPath self;
  Ended ended;
  // Endpoints of processes that Open MPI removed: callbacks still due name them until the transport
  // is closed.
  std::vector<std::unique_ptr<mca_btl_base_endpoint_t>> retired;
  std::size_t modules_live = 0;      // not yet finalized
  bool named_other_version = false;  // the user was told of a peer with another version of mend
  bool named_shortage = false;       // and of one for which something had run out
  // Processes are being removed: an outage now warns and does not abort.
  std::atomic<bool> leaving{false};
};

// Null before init and after the last finalize.
Runtime* runtime() noexcept;

// A process of this job that ob1 has not added yet has asked for a connection: makes it known to
// the transport, so that its first message is received. From progress().
void meet_peer(Runtime& rt, std::uint32_t rank) noexcept;

// Called for each module; the last one ends everything.
void finalize_module(Module& module) noexcept;

// One round of everything, as Open MPI's progress engine does it; returns the number of events.
int progress() noexcept;

}  // namespace mend::mca
