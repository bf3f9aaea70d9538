// Whether this build watches and repairs its connections: yes, but for the component that
// mpi-tests/bench/overhead.py compares with (MEND_BARE): it has the log and the sequence numbers,
// and no heartbeat, no timer of a connection in use, no acknowledgement timer.
//
// Thread contract: a constant. Invariant: nothing that is installed is compiled with MEND_BARE.
#pragma once

namespace mend {

#ifdef MEND_BARE
constexpr bool kWatches = false;
#else
constexpr bool kWatches = true;
#endif

}  // namespace mend
