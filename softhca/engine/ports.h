// Link state of ports as an administrator or a test changes it. Every context of the port gets
// PORT_ERR or PORT_ACTIVE; what travels over a port that is down is not acknowledged. Thread safe.
#pragma once

#include "softhca/engine/process.h"

namespace softhca {

// Takes a port (counted from 1) down or up, whatever the configuration says, and tells every
// process. False if it already is in that state.
bool set_port_down(Process& proc, unsigned device, unsigned port, bool down);

}  // namespace softhca
