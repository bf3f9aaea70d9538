#include "plugin/mca/give_up.h"

#include <algorithm>

#include "plugin/mca/component.h"
#include "plugin/mca/tell_user.h"

namespace mend::mca {
namespace {

struct Farewell {
  opal_proc_t* proc = nullptr;
  bool first_time = false;
};

// By any module whose error callback Open MPI has set; it sets that of all. Not one of the peer's
// own: who was only received from has no endpoint.
void tell_open_mpi(const Runtime& rt, opal_proc_t* lost) {
  const auto tells = std::find_if(rt.modules.begin(), rt.modules.end(), [](const auto& module) {
    return module->error_callback != nullptr;
  });
  if (tells == rt.modules.end()) return;
  // Open MPI prints this once more, and takes it for a format.
  std::string summary = "mend: the message above names the cause";
  (*tells)->error_callback(&(*tells)->super, MCA_BTL_ERROR_FLAGS_FATAL, lost, summary.data());
}

// Everybody has finished; a message that did not arrive is no reason to fail the job.
bool only_a_warning(const Runtime& rt, const std::string& text) {
  if (rt.leaving) opal_output(0, "mend: while finalizing: %s", text.c_str());
  return rt.leaving;
}

Farewell mark_lost(Runtime& rt, conn::Peer* peer) {
  Farewell farewell;
  const std::lock_guard lock(rt.peers.mutex());
  PeerEntry* entry = rt.peers.find(peer);
  if (entry == nullptr || entry->gave_up) return farewell;
  entry->gave_up = true;
  farewell.first_time = true;
  farewell.proc = entry->proc;
  for (auto& endpoint : entry->endpoints) {
    if (!endpoint) continue;
    endpoint->lost.store(true);
  }
  return farewell;
}

}  // namespace

void give_up(conn::Peer* peer, const std::string& text) noexcept {
  Runtime& rt = *runtime();
  const Farewell farewell = mark_lost(rt, peer);
  if (only_a_warning(rt, text) || !farewell.first_time) return;
  const std::string host = compat::host_of(*farewell.proc);
  const bool goes_on = compat::job_survives_losses();
  tell_user(goes_on ? "gave up, job goes on" : "gave up", opal_process_info.nodename,
            OPAL_NAME_PRINT(OPAL_PROC_MY_NAME), host.c_str(),
            OPAL_NAME_PRINT(farewell.proc->proc_name), text.c_str());
  tell_open_mpi(rt, farewell.proc);
  // Not before the callback, and in no other job: requests that fail would end it, and its last
  // words would name no cause.
  if (goes_on) rt.transport->give_up_peer(peer);
}

void give_up_myself(const std::string& text) noexcept {
  Runtime& rt = *runtime();
  if (only_a_warning(rt, text)) return;
  tell_user("gave up on itself", opal_process_info.nodename, OPAL_NAME_PRINT(OPAL_PROC_MY_NAME),
            text.c_str());
  tell_open_mpi(rt, opal_proc_local_get());
}

void note_end(const opal_process_name_t& name) noexcept {
  Runtime* rt = runtime();
  if (rt == nullptr) return;
  {
    // Under the mutex: end_runtime() sets `leaving` and then reads the names, for the last time.
    const std::lock_guard lock(rt->ended.mutex);
    if (!rt->leaving) {
      rt->ended.names.push_back(name);
      return rt->transport->ask_attention();
    }
  }
  // Open MPI has removed the processes by then; only the transport still waits for them.
  rt->transport->give_up_process(name.jobid, name.vpid);
}

void believe_ends(Runtime& rt) noexcept {
  std::vector<opal_process_name_t> names;
  {
    const std::lock_guard lock(rt.ended.mutex);
    names.swap(rt.ended.names);
  }
  for (const opal_process_name_t& name : names) {
    conn::Peer* peer = nullptr;
    {
      const std::lock_guard lock(rt.peers.mutex());
      PeerEntry* entry = rt.peers.find(name);
      if (entry != nullptr) peer = entry->peer;
    }
    if (rt.leaving) {
      rt.transport->give_up_process(name.jobid, name.vpid);
    } else if (peer == nullptr) {
      // Open MPI adds processes late, and the runtime says this only once.
      const std::lock_guard lock(rt.ended.mutex);
      rt.ended.names.push_back(name);
    } else if (mark_lost(rt, peer).first_time) {
      rt.transport->give_up_peer(peer);
    }
  }
}

}  // namespace mend::mca
