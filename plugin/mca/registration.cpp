#include "plugin/mca/registration.h"

#include <malloc.h>

#include <cerrno>
#include <new>

#include "plugin/mca/component.h"
#include "plugin/mca/tell_user.h"

namespace mend::mca {
namespace {

// grdma's record, with ours behind it.
struct Registration {
  mca_rcache_base_registration_t base;  // first: grdma's pointer is ours
  mca_btl_base_registration_handle_t handle;
  std::list<conn::Region>::iterator region;
};

Registration& registration_of(const mca_btl_base_registration_handle_t& handle) {
  auto* bytes =
      reinterpret_cast<std::byte*>(const_cast<mca_btl_base_registration_handle_t*>(&handle));
  return *reinterpret_cast<Registration*>(bytes - offsetof(Registration, handle));
}

constexpr std::uint32_t kWriteFlags =
    MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE | MCA_BTL_REG_FLAG_REMOTE_ATOMIC;

// What the caller asked for. grdma adds the access of older registrations of the same memory, which
// may be more than a mapping that has become read-only allows.
thread_local std::uint32_t t_wanted = 0;

void fill_handle(mca_btl_base_registration_handle_t& handle, const conn::Region& region,
                 std::size_t nrails) {
  handle.reg_id = region.reg_id;
  handle.generation = region.generation;
  handle.nrails = static_cast<std::uint32_t>(nrails);
  handle.unused = 0;
  for (unsigned rail = 0; rail < kMaxRails; ++rail) {
    handle.rkey[rail] = rail < nrails ? region.remote.rkey[rail].value : 0;
  }
}

}  // namespace

unsigned access_of(std::uint32_t flags) {
  unsigned access = 0;
  if ((flags & kWriteFlags) != 0) access |= conn::kLocalWrite;
  if ((flags & MCA_BTL_REG_FLAG_REMOTE_READ) != 0) access |= conn::kRemoteRead;
  if ((flags & MCA_BTL_REG_FLAG_REMOTE_WRITE) != 0) access |= conn::kRemoteWrite;
  return access;
}

const ops::LocalKeys& local_keys_of(const mca_btl_base_registration_handle_t& handle) {
  return registration_of(handle).region->local;
}

std::unique_ptr<RegistrationCache> RegistrationCache::create() {
  std::unique_ptr<RegistrationCache> cache(new RegistrationCache);
  mca_rcache_base_resources_t resources{};
  resources.cache_name = const_cast<char*>("mend");
  resources.reg_data = cache.get();
  resources.sizeof_reg = sizeof(Registration);
  resources.register_mem = &RegistrationCache::register_call;
  resources.deregister_mem = &RegistrationCache::deregister_call;
  cache->grdma_ = mca_rcache_base_module_create("grdma", cache.get(), &resources);
  if (cache->grdma_ == nullptr) return nullptr;
  return cache;
}

void RegistrationCache::serve(conn::Transport& transport) {
  transport_ = &transport;
  // Open MPI's hooks see munmap, but not a heap that glibc trims. The cache would keep the pages it
  // had, and the device deliver into them what nobody sees when the heap has grown again.
  mallopt(M_TRIM_THRESHOLD, -1);
}

RegistrationCache::~RegistrationCache() {
  if (grdma_ != nullptr) mca_rcache_base_module_destroy(grdma_);
  // Registrations that were in use when grdma went stay with us.
  for (conn::Region& region : regions_) transport_->deregister_region(region);
}

mca_btl_base_registration_handle_t* RegistrationCache::add(void* base, std::size_t size,
                                                           std::uint32_t flags) {
  t_wanted = flags & MCA_BTL_REG_FLAG_ACCESS_ANY;
  mca_rcache_base_registration_t* registration = nullptr;
  const int rc =
      grdma_->rcache_register(grdma_, base, size, 0, static_cast<int32_t>(t_wanted), &registration);
  if (rc != OPAL_SUCCESS || registration == nullptr) {
    complain(size);
    return nullptr;
  }
  return &reinterpret_cast<Registration*>(registration)->handle;
}

void RegistrationCache::remove(mca_btl_base_registration_handle_t& handle) {
  grdma_->rcache_deregister(grdma_, &registration_of(handle).base);
}

int RegistrationCache::register_call(void* self, void* base, std::size_t size,
                                     mca_rcache_base_registration_t* registration) noexcept {
  try {
    return static_cast<RegistrationCache*>(self)->register_region(base, size, *registration);
  } catch (const std::bad_alloc&) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
}

// Tries what grdma asks for, then what the caller asked for, then, where the caller asked for
// everything, reading only: a read-only mapping can be sent from although it cannot be written.
int RegistrationCache::register_region(void* base, std::size_t size,
                                       mca_rcache_base_registration_t& registration) {
  const auto merged = static_cast<std::uint32_t>(registration.access_flags);
  const std::uint32_t reading = t_wanted == MCA_BTL_REG_FLAG_ACCESS_ANY
                                    ? std::uint32_t{MCA_BTL_REG_FLAG_REMOTE_READ}
                                    : t_wanted;
  conn::Region region;
  Result<void> result;
  for (const std::uint32_t flags : {merged, t_wanted, reading}) {
    result = transport_->register_region(base, size, access_of(flags), region);
    if (result) {
      registration.access_flags = static_cast<int32_t>(flags);
      break;
    }
    // More memory than may be pinned: grdma gives up an unused registration and asks again.
    if (result.error().code == ENOMEM) break;
  }
  if (!result) {
    const std::lock_guard lock(mutex_);
    last_error_ = result.error().message;
    return result.error().code == ENOMEM ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_ERROR;
  }
  auto& ours = reinterpret_cast<Registration&>(registration);
  const std::lock_guard lock(mutex_);
  regions_.push_front(region);
  new (&ours.region) std::list<conn::Region>::iterator(regions_.begin());
  fill_handle(ours.handle, region, transport_->rails().size());
  return OPAL_SUCCESS;
}

int RegistrationCache::deregister_call(void* self,
                                       mca_rcache_base_registration_t* registration) noexcept {
  auto& cache = *static_cast<RegistrationCache*>(self);
  auto& ours = *reinterpret_cast<Registration*>(registration);
  std::list<conn::Region> gone;
  {
    const std::lock_guard lock(cache.mutex_);
    gone.splice(gone.begin(), cache.regions_, ours.region);
  }
  cache.transport_->deregister_region(gone.front());
  return OPAL_SUCCESS;
}

// Once: the limit that was hit, and what to do. ob1 goes on with copies.
void RegistrationCache::complain(std::size_t size) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (complained_) return;
    complained_ = true;
    reason = last_error_;
  }
  tell_user("registration failed", opal_process_info.nodename, size, reason.c_str());
}

mca_btl_base_registration_handle_t* register_mem(mca_btl_base_module_t* /*btl*/,
                                                 mca_btl_base_endpoint_t* /*endpoint*/, void* base,
                                                 std::size_t size, std::uint32_t flags) noexcept {
  return runtime()->registrations->add(base, size, flags);
}

int deregister_mem(mca_btl_base_module_t* /*btl*/,
                   mca_btl_base_registration_handle_t* handle) noexcept {
  runtime()->registrations->remove(*handle);
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
