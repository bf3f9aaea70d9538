#include "softhca/engine/ports.h"

namespace softhca {

bool set_port_down(Process& proc, unsigned device, unsigned port, bool down) {
  GlobalShared& global = *proc.global();
  PortShared& shared = global.ports[device][port - 1];
  const uint32_t wanted = down ? 1 : 0;
  if (shared.down.exchange(wanted) == wanted) return false;
  shared.changes.fetch_add(1);
  if (down) {
    global.ports_disturbed.fetch_add(1);
  } else {
    global.ports_disturbed.fetch_sub(1);
  }
  global.port_epoch.fetch_add(1);
  proc.poke_everybody();
  return true;
}

}  // namespace softhca
