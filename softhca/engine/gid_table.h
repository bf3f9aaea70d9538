// The GID table of a port as it is now. It begins as configured; an administrator or a test may
// move addresses to other places, which leaves holes, as a kernel does when an address goes away
// and comes back. Whoever keeps an index over such a change names another address with it, or none.
// A value: read once, it does not change any more.
#pragma once

#include "softhca/engine/context.h"
#include "softhca/engine/process.h"

namespace softhca {

class GidTable {
 public:
  // port: counted from 1, of a device of the configuration.
  GidTable(const Process& proc, unsigned device, unsigned port) noexcept;
  GidTable(const Context& ctx, unsigned port) noexcept
      : GidTable(*ctx.proc, ctx.device->index, port) {}

  unsigned size() const noexcept;  // behind the last place in use, at least as many as configured
  const GidConf* at(unsigned place) const noexcept;  // nullptr: empty, or behind the end

 private:
  unsigned configured_at(unsigned place) const noexcept {
    return static_cast<unsigned>((places_ >> (4 * place)) & 0xf);
  }

  const PortConf& conf_;
  uint64_t places_;  // four bits for each: which of the configured GIDs is there, if there is one
};

// Exchanges what two places of the port's table hold, either of which may be empty, and tells every
// process (GID_CHANGE). False if that changes nothing. Thread safe.
bool swap_gids(Process& proc, unsigned device, unsigned port, unsigned a, unsigned b);
// As configured.
void reset_gids(Process& proc, unsigned device, unsigned port);

}  // namespace softhca
