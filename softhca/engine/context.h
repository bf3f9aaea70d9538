// The private objects behind ibv_context, ibv_pd, ibv_mr, ibv_ah and ibv_comp_channel. Each starts
// with its public struct, so the public pointer is the object. Counts (users) decide EBUSY.
// Thread safe through the atomics and mutexes named at the fields.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "softhca/conf/conf.h"
#include "softhca/engine/process.h"
#include "softhca/engine/shm_layout.h"
#include "softhca/engine/wake.h"

namespace softhca {

struct Cq;

// One device as ibv_get_device_list shows it. `dev` must come first and be followed by zeroes:
// vendor libraries look behind the public struct.
struct Device {
  ibv_device dev{};
  unsigned char vendor_sees_nothing[256]{};
  unsigned index = 0;
  const DeviceConf* conf = nullptr;
};

struct Context {
  verbs_context vctx{};  // the application holds &vctx.context
  Device* device = nullptr;
  Process* proc = nullptr;
  const DeviceConf* conf = nullptr;
  Off wake = 0;
  WakeSocket async;
  std::mutex events_mutex;
  std::deque<ibv_async_event> events;  // not yet fetched
  uint32_t port_changes_seen[kMaxPorts]{};
  uint32_t gid_changes_seen[kMaxPorts]{};
  std::atomic<bool> fatal{false};  // fault schedule: the device is dead
  bool fatal_done = false;         // and everybody was told; under the registry

  std::atomic<uint32_t> pds{0};
  std::atomic<uint32_t> mrs{0};
  std::atomic<uint32_t> cqs{0};
  std::atomic<uint32_t> srqs{0};
  std::atomic<uint32_t> qps{0};
  std::atomic<uint32_t> ahs{0};
  std::atomic<uint32_t> channels{0};

  const Limits& limits() const noexcept { return conf->limits; }
};

struct Pd {
  ibv_pd pd{};
  Context* ctx = nullptr;
  std::atomic<uint32_t> users{0};
  uint32_t id = 0;  // unique in the process: what keys are checked against
};

struct Mr {
  ibv_mr mr{};
  Pd* owner = nullptr;
  MrShared* sh = nullptr;
  uint32_t access = 0;
  uint64_t locked_bytes = 0;
};

struct Ah {
  ibv_ah ah{};
  Pd* owner = nullptr;
  ibv_ah_attr attr{};
};

struct Channel {
  ibv_comp_channel channel{};
  Context* ctx = nullptr;
  Off wake = 0;
  WakeSocket socket;
  std::mutex mutex;
  std::vector<Cq*> cqs;  // that report here
};

inline Context* context_of(ibv_context* context) noexcept {
  return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) -
                                    offsetof(verbs_context, context));
}
inline Pd* pd_of(ibv_pd* pd) noexcept { return reinterpret_cast<Pd*>(pd); }
inline Mr* mr_of(ibv_mr* mr) noexcept { return reinterpret_cast<Mr*>(mr); }
inline Ah* ah_of(ibv_ah* ah) noexcept { return reinterpret_cast<Ah*>(ah); }
inline Channel* channel_of(ibv_comp_channel* c) noexcept { return reinterpret_cast<Channel*>(c); }

// Opens `device` in `proc`; the operation tables are filled by the ABI layer. nullptr sets errno.
Context* open_context(Process& proc, Device& device);
int close_context(Context* ctx);

int query_device(Context& ctx, ibv_device_attr* attr);
int query_port(Context& ctx, unsigned port, ibv_port_attr* attr);
// Exists and is up.
bool port_works(const Process& proc, unsigned device, unsigned port) noexcept;
bool port_is_down(const Process& proc, unsigned device, unsigned port) noexcept;

Pd* alloc_pd(Context& ctx);
int dealloc_pd(Pd* pd);
Ah* create_ah(Pd& pd, const ibv_ah_attr& attr);
int destroy_ah(Ah* ah);
// Whether the address vector names port `port` of device `device` of the fabric's configuration.
bool address_matches(const FabricConf& conf, const ibv_ah_attr& av, unsigned device, unsigned port);

}  // namespace softhca
