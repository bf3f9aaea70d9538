// Help messages, to the process' own standard error.
//
// Not by opal_show_help: in Open MPI 4.1 with PMIx 4 the message is handed to mpirun in a buffer
// that may be freed before it is read, and 4 of 10 messages are lost ("Data unpack would read past
// end of buffer"). A message that names why a job ends must arrive. The price is that nothing sums
// up equal messages of several processes: what is equal in all of a host, one process says.
//
// Thread contract: any thread; one write() per message.
#pragma once

#include <string>

namespace mend::mca {

// The text of a topic of help-mpi-btl-mend.txt with its values filled in (printf style).
void tell_user(const char* topic, ...) noexcept;

// Where help-mpi-btl-mend.txt lies: beside the component, in the build tree as after installation.
// Ends in a slash; empty if nobody knows.
std::string help_directory();

// What one line can say, after the names of host and process that Open MPI puts before its own.
void tell_in_a_line(const std::string& text) noexcept;

// Whether this process speaks for its host in matters that are the same in all of its processes.
bool speaks_for_host() noexcept;

}  // namespace mend::mca
