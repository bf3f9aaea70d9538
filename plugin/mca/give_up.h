// The end of a peer that cannot be repaired: one message for the user, then the PML's error
// callback, once.
//
// Thread contract: from progress() only.
#pragma once

#include <string>

#include "plugin/conn/transport.h"

namespace mend::mca {

// `text` says what happened, for how long and what to do. After MPI_Finalize has begun it only
// warns.
void give_up(conn::Peer* peer, const std::string& text) noexcept;

}  // namespace mend::mca
