#include "plugin/mca/peers.h"

namespace mend::mca {

PeerEntry* PeerTable::find(const opal_process_name_t& name) {
  const auto found = entries_.find(key(name));
  return found == entries_.end() ? nullptr : &found->second;
}

PeerEntry* PeerTable::find(const conn::Peer* peer) {
  for (auto& [key, entry] : entries_) {
    if (entry.peer == peer) return &entry;
  }
  return nullptr;
}

PeerEntry& PeerTable::add(opal_proc_t& proc, conn::Peer* peer) {
  PeerEntry& entry = entries_[key(proc.proc_name)];
  entry.proc = &proc;
  entry.peer = peer;
  return entry;
}

void PeerTable::remove(const opal_process_name_t& name) { entries_.erase(key(name)); }

}  // namespace mend::mca
