// The end of a peer that cannot be repaired: one message for the user, then the PML's error
// callback, once.
//
// Thread contract: give_up() from progress() only, process_ended() from any thread.
#pragma once

#include <string>

#include "plugin/conn/transport.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

// `text` says what happened, for how long and what to do. After MPI_Finalize has begun it only
// warns.
void give_up(conn::Peer* peer, const std::string& text) noexcept;

// In a job that goes on without lost processes, its runtime says that this one has ended; Open MPI
// knows. Nobody waits for it any more.
void process_ended(const opal_process_name_t& name) noexcept;

}  // namespace mend::mca
