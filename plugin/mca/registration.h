// User memory: OPAL's grdma cache, one for the process, over regions that carry keys for every open
// device; and the handle that Open MPI sends to peers.
//
// Thread contract: register and deregister from any application thread (grdma locks); create and
// destroy from init and finalize. Created before mend has a thread: with the first cache of a
// process Open MPI writes its memory hooks over the first bytes of munmap and its like, and a
// thread that is in there meanwhile (the first malloc of a new thread is) dies of SIGILL. Destroyed
// before the transport, or grdma would call into an unloaded component. Invariant: a handle stays
// valid, and its bytes unchanged, from register to deregister.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "plugin/conn/transport.h"
#include "plugin/conn/wire_version.h"
#include "plugin/mca/ompi_compat.h"

// The handle, as peers receive it: little endian, no padding. The key of each rail of the owner;
// failing over needs no new one.
struct mca_btl_base_registration_handle_t {
  std::uint32_t reg_id;      // names the registration in key refreshes
  std::uint32_t generation;  // changes when its keys do
  std::uint32_t nrails;      // valid entries of rkey
  std::uint32_t unused;      // 0
  std::uint32_t rkey[mend::kMaxRails];
};
static_assert(sizeof(mca_btl_base_registration_handle_t) == 16 + 4 * mend::kMaxRails);
static_assert(sizeof(mca_btl_base_registration_handle_t) == mend::conn::kWire.handle,
              "append a line to kWires");
// osc/rdma lays the 64-bit counters of a window right behind a handle, and peers on other hosts
// reach them with atomics, which want them aligned.
static_assert(sizeof(mca_btl_base_registration_handle_t) % 8 == 0);
static_assert(sizeof(mca_btl_base_registration_handle_t) <= 256);  // MCA_BTL_REG_HANDLE_MAX_SIZE

namespace mend::mca {

class RegistrationCache {
 public:
  // Null when grdma is not available.
  static std::unique_ptr<RegistrationCache> create();
  // Where memory is registered; once, before the first add().
  void serve(conn::Transport& transport);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // Null when the memory cannot be registered; ob1 copies then.
  mca_btl_base_registration_handle_t* add(void* base, std::size_t size, std::uint32_t flags);
  void remove(mca_btl_base_registration_handle_t& handle);

 private:
  RegistrationCache() = default;
  static int register_call(void* self, void* base, std::size_t size,
                           mca_rcache_base_registration_t* registration) noexcept;
  static int deregister_call(void* self, mca_rcache_base_registration_t* registration) noexcept;
  int register_region(void* base, std::size_t size, mca_rcache_base_registration_t& registration);
  void complain(std::size_t size);

  conn::Transport* transport_ = nullptr;
  mca_rcache_base_module_t* grdma_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::list<conn::Region>
      regions_;  // stable addresses; what grdma leaves behind is released at the end
  std::string last_error_;
  bool complained_ = false;
};

// BTL access flags as the transport's.
unsigned access_of(std::uint32_t flags);

// Of a handle that this process registered itself.
const ops::LocalKeys& local_keys_of(const mca_btl_base_registration_handle_t& handle);

// Of a peer's handle.
inline void copy_remote_keys(const mca_btl_base_registration_handle_t& handle,
                             ops::RemoteKeys& keys) {
  for (unsigned rail = 0; rail < kMaxRails; ++rail) keys.rkey[rail] = Rkey{handle.rkey[rail]};
  keys.reg_id = handle.reg_id;
  keys.generation = handle.generation;
}
inline Rkey first_remote_key(const mca_btl_base_registration_handle_t& handle) {
  return Rkey{handle.rkey[0]};
}

}  // namespace mend::mca
