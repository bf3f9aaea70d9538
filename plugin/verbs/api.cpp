#include "plugin/verbs/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace mend::verbs {
namespace {

struct Loaded {
  std::string path;
  std::unique_ptr<Api> api;
};

// Never destroyed: objects made through a table may outlive static destruction.
struct Registry {
  std::mutex mutex;
  std::vector<Loaded> loaded;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

class Binder {
 public:
  explicit Binder(void* handle) : handle_(handle) {}

  template <typename Function>
  void required(Function& slot, const char* symbol) {
    optional(slot, symbol);
    if (slot == nullptr && missing_ == nullptr) missing_ = symbol;
  }
  template <typename Function>
  void optional(Function& slot, const char* symbol) {
    slot = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }
  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

void bind_device_calls(Binder& binder, Api& api) {
  binder.required(api.get_device_list, "ibv_get_device_list");
  binder.required(api.free_device_list, "ibv_free_device_list");
  binder.required(api.get_device_name, "ibv_get_device_name");
  binder.required(api.open_device, "ibv_open_device");
  binder.required(api.close_device, "ibv_close_device");
  binder.required(api.query_device, "ibv_query_device");
  binder.required(api.query_port, "ibv_query_port");
  binder.required(api.query_gid, "ibv_query_gid");
  binder.required(api.query_pkey, "ibv_query_pkey");
  binder.required(api.get_async_event, "ibv_get_async_event");
  binder.required(api.ack_async_event, "ibv_ack_async_event");
  binder.optional(api.fork_init, "ibv_fork_init");
  binder.optional(api.is_fork_initialized, "ibv_is_fork_initialized");
  binder.optional(api.query_gid_ex, "_ibv_query_gid_ex");
}

void bind_object_calls(Binder& binder, Api& api) {
  binder.required(api.alloc_pd, "ibv_alloc_pd");
  binder.required(api.dealloc_pd, "ibv_dealloc_pd");
  binder.required(api.reg_mr, "ibv_reg_mr");
  binder.required(api.dereg_mr, "ibv_dereg_mr");
  binder.required(api.create_comp_channel, "ibv_create_comp_channel");
  binder.required(api.destroy_comp_channel, "ibv_destroy_comp_channel");
  binder.required(api.create_cq, "ibv_create_cq");
  binder.required(api.resize_cq, "ibv_resize_cq");
  binder.required(api.destroy_cq, "ibv_destroy_cq");
  binder.required(api.get_cq_event, "ibv_get_cq_event");
  binder.required(api.ack_cq_events, "ibv_ack_cq_events");
  binder.required(api.create_srq, "ibv_create_srq");
  binder.required(api.modify_srq, "ibv_modify_srq");
  binder.required(api.destroy_srq, "ibv_destroy_srq");
  binder.required(api.create_qp, "ibv_create_qp");
  binder.required(api.modify_qp, "ibv_modify_qp");
  binder.required(api.query_qp, "ibv_query_qp");
  binder.required(api.destroy_qp, "ibv_destroy_qp");
  binder.required(api.create_ah, "ibv_create_ah");
  binder.required(api.destroy_ah, "ibv_destroy_ah");
}

}  // namespace

Result<const Api*> load(const std::string& path) {
  Registry& known = registry();
  const std::scoped_lock lock(known.mutex);
  for (const Loaded& entry : known.loaded) {
    if (entry.path == path) return entry.api.get();
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return fail(ENOENT, "verbs library",
                fmt::format("cannot load the verbs library '{}': {}", path,
                            reason != nullptr ? reason : "unknown reason"));
  }
  auto api = std::make_unique<Api>();
  api->library = path;
  Binder binder(handle);
  bind_device_calls(binder, *api);
  bind_object_calls(binder, *api);
  if (binder.missing() != nullptr) {
    const std::string symbol = binder.missing();
    dlclose(handle);
    return fail(ENOSYS, "verbs library",
                fmt::format("'{}' is no usable verbs library: it has no symbol {}", path, symbol));
  }
  const Api* result = api.get();
  known.loaded.push_back({path, std::move(api)});
  return result;
}

Result<void> make_fork_safe(const Api& api) {
  if (api.is_fork_initialized != nullptr && api.is_fork_initialized() != IBV_FORK_DISABLED) {
    return {};
  }
  if (api.fork_init == nullptr) return {};
  if (const int rc = api.fork_init(); rc != 0) {
    const int code = rc > 0 ? rc : errno;
    return fail(
        code, "fork_init",
        fmt::format("ibv_fork_init: {}; memory was registered before mend was loaded, and a "
                    "process that forks may corrupt its messages (RDMAV_FORK_SAFE=1 helps)",
                    std::strerror(code)));
  }
  return {};
}

}  // namespace mend::verbs
