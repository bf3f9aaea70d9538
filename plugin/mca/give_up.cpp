#include "plugin/mca/give_up.h"

#include "plugin/mca/component.h"
#include "plugin/mca/tell_user.h"

namespace mend::mca {
namespace {

struct Farewell {
  opal_proc_t* proc = nullptr;
  Module* module = nullptr;  // one that has an error callback
  bool first_time = false;
};

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
    if (endpoint->module->error_callback != nullptr) farewell.module = endpoint->module;
  }
  return farewell;
}

}  // namespace

void give_up(conn::Peer* peer, const std::string& text) noexcept {
  Runtime& rt = *runtime();
  const Farewell farewell = mark_lost(rt, peer);
  if (rt.leaving) {
    // Everybody has finished; a message that did not arrive is no reason to fail the job.
    opal_output(0, "mend: while finalizing: %s", text.c_str());
    return;
  }
  if (!farewell.first_time) return;
  const std::string host = compat::host_of(*farewell.proc);
  const bool goes_on = compat::job_survives_losses();
  tell_user(goes_on ? "gave up, job goes on" : "gave up", opal_process_info.nodename,
            OPAL_NAME_PRINT(OPAL_PROC_MY_NAME), host.c_str(),
            OPAL_NAME_PRINT(farewell.proc->proc_name), text.c_str());
  if (farewell.module != nullptr) {
    // Open MPI prints this once more, and takes it for a format.
    std::string summary = "mend: the message above names the cause";
    farewell.module->error_callback(&farewell.module->super, MCA_BTL_ERROR_FLAGS_FATAL,
                                    farewell.proc, summary.data());
  }
  // Not before the callback, and in no other job: requests that fail would end it, and its last
  // words would name no cause.
  if (goes_on) rt.transport->give_up_peer(peer);
}

void note_end(const opal_process_name_t& name) noexcept {
  Runtime* rt = runtime();
  if (rt == nullptr) return;
  {
    const std::lock_guard lock(rt->ended.mutex);
    rt->ended.names.push_back(name);
  }
  rt->transport->ask_attention();
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
    if (peer == nullptr) {
      // Open MPI adds processes late, and the runtime says this only once.
      const std::lock_guard lock(rt.ended.mutex);
      rt.ended.names.push_back(name);
    } else if (mark_lost(rt, peer).first_time) {
      rt.transport->give_up_peer(peer);
    }
  }
}

}  // namespace mend::mca
