#include "ops/ucs_version.h"

#include <dlfcn.h>

#include "ops/ucs_compat.h"

namespace mend::ops {
namespace {

std::string text(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// libucp comes with libucs and knows its version, but loading it would start more of UCX.
void* version_call() {
  constexpr const char* kName = "ucp_get_version";
  if (void* call = dlsym(RTLD_DEFAULT, kName); call != nullptr) return call;
  void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* call = dlsym(library, kName);
  dlclose(library);  // it stays: somebody else has it
  return call;
}

}  // namespace

UcsFound find_ucs() {
  UcsFound found;
  found.pool_takes_params = dlsym(RTLD_DEFAULT, "ucs_mpool_params_reset") != nullptr;
  if (void* call = version_call(); call != nullptr) {
    unsigned release = 0;
    reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(call)(&found.major, &found.minor,
                                                                      &release);
  }
  return found;
}

std::string built_ucs() { return text(ucs_compat::kBuiltMajor, ucs_compat::kBuiltMinor); }

std::string ucs_mismatch(const UcsFound& found) {
  const bool known = found.major != 0 || found.minor != 0;
  const bool same =
      !known || (found.major == ucs_compat::kBuiltMajor && found.minor == ucs_compat::kBuiltMinor);
  if (same && found.pool_takes_params == ucs_compat::kPoolTakesParams) return "";
  if (known && !same) return text(found.major, found.minor);
  return found.pool_takes_params ? "1.14 or later" : "older than 1.14";
}

}  // namespace mend::ops
