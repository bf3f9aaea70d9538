// Which processes can be reached, and their endpoints. Nothing connects here: the first message
// does. A process without mend, of another wire version or behind no common rail is unreachable by
// this BTL, which is no error.
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "plugin/conn/peer.h"
#include "plugin/mca/component.h"
#include "plugin/mca/give_up.h"
#include "plugin/mca/tell_user.h"

namespace mend::mca {
namespace {

bool is_me(const opal_proc_t& proc) { return &proc == opal_proc_local_get(); }

// No common rail is an ordinary answer. Another version of mend is a mistake of whoever installed
// it, and one line for each process will do; so it will when something has run out.
void say_unreachable(Runtime& rt, const std::string& who, const Error& error) {
  if (error.code == EPROTONOSUPPORT && !rt.named_other_version) {
    rt.named_other_version = true;
    return tell_in_a_line(error.message);
  }
  say(1, ("peer " + who + " is not reachable: " + error.message).c_str());
  if (error.code != ENOTSUP && error.code != EPROTONOSUPPORT &&
      !std::exchange(rt.named_shortage, true))
    tell_user("setup failed", opal_process_info.nodename, error.object.c_str(),
              error.message.c_str());
}

// The peer in the transport; null when mend cannot reach it.
conn::Peer* reach(Runtime& rt, opal_proc_t& proc) {
  std::size_t size = 0;
  const std::unique_ptr<std::byte, decltype(&std::free)> modex(
      compat::fetch_modex(mca_btl_mend_component.btl_version, proc, size), &std::free);
  const std::string host = compat::host_of(proc);
  const std::string who = OPAL_NAME_PRINT(proc.proc_name);
  if (modex == nullptr) {
    say(10, ("peer " + who + " on " + host + " does not run mend").c_str());
    return nullptr;
  }
  auto peer = rt.transport->add_peer(proc.proc_name.jobid, proc.proc_name.vpid, host,
                                     std::span<const std::byte>(modex.get(), size));
  if (!peer) {
    say_unreachable(rt, who + " on " + host, peer.error());
    return nullptr;
  }
  return *peer;
}

// The process' entry, made if need be; null when it is unreachable. The table's mutex is held.
PeerEntry* entry_for(Runtime& rt, opal_proc_t& proc) {
  if (PeerEntry* known = rt.peers.find(proc.proc_name)) return known;
  if (is_me(proc)) return &rt.peers.add(proc, nullptr);
  conn::Peer* peer = reach(rt, proc);
  return peer == nullptr ? nullptr : &rt.peers.add(proc, peer);
}

RailId first_rail(const Runtime& rt, const conn::Peer* peer) {
  RailId rail{0};
  while (!rt.transport->reaches(peer, rail)) ++rail.value;
  return rail;
}

mca_btl_base_endpoint_t* endpoint_for(Runtime& rt, Module& module, opal_proc_t& proc) {
  const std::lock_guard lock(rt.peers.mutex());
  PeerEntry* entry = entry_for(rt, proc);
  if (entry == nullptr) return nullptr;
  if (entry->peer != nullptr && !rt.transport->reaches(entry->peer, module.rail)) return nullptr;
  auto& endpoint = entry->endpoints[module.rail.value];
  if (!endpoint) {
    endpoint = std::make_unique<mca_btl_base_endpoint_t>();
    endpoint->module = &module;
    endpoint->proc = &proc;
    endpoint->peer = entry->peer;
    endpoint->lost.store(entry->gave_up);
    if (entry->peer == nullptr) {
      module.own_endpoint.store(endpoint.get(), std::memory_order_release);
    } else {
      entry->peer->upper[module.rail.value].store(endpoint.get(), std::memory_order_release);
      endpoint->channel = &rt.transport->channel(entry->peer, module.rail);
      endpoint->copied = &rt.transport->channel(entry->peer, first_rail(rt, entry->peer));
    }
  }
  return endpoint.get();
}

// Retires the endpoint; returns the peer if it was its last one, which then has to be removed.
conn::Peer* retire_endpoint(Runtime& rt, const Module& module, const opal_process_name_t& name) {
  const std::lock_guard lock(rt.peers.mutex());
  PeerEntry* entry = rt.peers.find(name);
  if (entry == nullptr) return nullptr;
  // Processes of this job that were spoken to are removed by MPI_Finalize and by nothing else;
  // others also at once, when Open MPI finds that another BTL is to serve them.
  const bool mine = name.jobid == OPAL_PROC_MY_NAME.jobid;
  if (mine && entry->peer != nullptr && rt.transport->ever_used(entry->peer)) rt.leaving = true;
  auto& endpoint = entry->endpoints[module.rail.value];
  if (endpoint) rt.retired.push_back(std::move(endpoint));
  if (entry->in_use()) return nullptr;
  conn::Peer* peer = entry->peer;
  rt.peers.remove(name);
  return peer;
}

}  // namespace

void meet_peer(Runtime& rt, std::uint32_t rank) noexcept {
  const opal_process_name_t name{OPAL_PROC_MY_NAME.jobid, rank};
  if (rank == OPAL_PROC_MY_NAME.vpid) return;  // a process of another job; dpm adds that itself
  opal_proc_t* proc = opal_proc_for_name(name);
  if (proc == nullptr) return;
  try {
    const std::lock_guard lock(rt.peers.mutex());
    entry_for(rt, *proc);
  } catch (const std::bad_alloc&) {
    say(1, "no memory for a new peer; it will ask again");
  }
}

int add_procs(mca_btl_base_module_t* btl, std::size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints, opal_bitmap_t* reachable) noexcept {
  Runtime& rt = *runtime();
  try {
    for (std::size_t i = 0; i < count; ++i) {
      endpoints[i] = endpoint_for(rt, module_of(btl), *procs[i]);
      // ob1 adds single processes without a bitmap; the endpoint is the answer then.
      if (endpoints[i] != nullptr && reachable != nullptr) {
        opal_bitmap_set_bit(reachable, static_cast<int>(i));
      }
    }
  } catch (const std::bad_alloc&) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  believe_ends(rt);  // one of them may have ended before it was known here
  return OPAL_SUCCESS;
}

int del_procs(mca_btl_base_module_t* btl, std::size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** /*endpoints*/) noexcept {
  Runtime& rt = *runtime();
  // What was accepted is still delivered: here to this process itself, by the transport's close to
  // others.
  while (rt.self.pending()) progress();
  for (std::size_t i = 0; i < count; ++i) {
    conn::Peer* last = retire_endpoint(rt, module_of(btl), procs[i]->proc_name);
    if (last != nullptr) rt.transport->remove_peer(last);
  }
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
