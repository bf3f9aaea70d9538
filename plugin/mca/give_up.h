// The end of a peer that cannot be repaired: one message for the user, then the PML's error
// callback, once.
//
// Thread contract: from progress() only, but for note_end() and believe_ends().
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "plugin/conn/transport.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

struct Runtime;

// Processes that have ended before their time, and of which that is not yet believed.
struct Ended {
  std::mutex mutex;
  std::vector<opal_process_name_t> names;  // some of them not known here
};

// `text` says what happened, for how long and what to do. After MPI_Finalize has begun it only
// warns.
void give_up(conn::Peer* peer, const std::string& text) noexcept;

// The same of this process itself, in a job that goes on without lost processes: its device is dead
// or does not obey. Open MPI tells all others that it has failed, and ends it.
void give_up_myself(const std::string& text) noexcept;

// In a job that goes on without lost processes, its runtime says that this one has ended. Any
// thread, the runtime's own too, on which a lock that is held over a question to the runtime would
// block.
void note_end(const opal_process_name_t& name) noexcept;

// Nobody waits for those any more that have ended and that this process knows; Open MPI knows them
// too. The others are kept until they are added. From progress() and after processes were added.
void believe_ends(Runtime& rt) noexcept;

}  // namespace mend::mca
