// The peers of this process as Open MPI added them, and their endpoints on each module.
//
// Thread contract: any application thread; one mutex, never held over a call that can call up.
// An entry without endpoints is a process that Open MPI has not added yet, but that has asked for a
// connection.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "plugin/conn/transport.h"
#include "plugin/mca/module.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

struct PeerEntry {
  opal_proc_t* proc = nullptr;
  conn::Peer* peer = nullptr;  // null for this process itself
  std::array<std::unique_ptr<mca_btl_base_endpoint_t>, kMaxRails> endpoints;  // by home rail
  bool gave_up = false;
  bool in_use() const {
    for (const auto& endpoint : endpoints) {
      if (endpoint) return true;
    }
    return false;
  }
};

class PeerTable {
 public:
  std::mutex& mutex() { return mutex_; }
  // All of these with the mutex held.
  PeerEntry* find(const opal_process_name_t& name);
  PeerEntry* find(const conn::Peer* peer);
  PeerEntry& add(opal_proc_t& proc, conn::Peer* peer);
  void remove(const opal_process_name_t& name);
  template <typename Fn>
  void each(Fn&& fn) {
    for (auto& [key, entry] : entries_) fn(entry);
  }

 private:
  static std::uint64_t key(const opal_process_name_t& name) {
    return std::uint64_t{name.jobid} << 32 | name.vpid;
  }
  std::mutex mutex_;
  std::map<std::uint64_t, PeerEntry> entries_;
};

}  // namespace mend::mca
