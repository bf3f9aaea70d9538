// Preloaded into one rank: gives the address it publishes another wire version, as a process of
// another release of mend would. PMIx_Put is what Open MPI's component publishes through; the value
// is a byte object whose first byte is mend's version.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

// pmix_value_t, as far as a byte object needs it (stable ABI of PMIx 2 to 5).
struct Value {
  std::uint16_t type;
  struct {
    char* bytes;
    std::size_t size;
  } object;
};
constexpr std::uint16_t kByteObject = 27;

}  // namespace

extern "C" __attribute__((visibility("default"))) int PMIx_Put(std::uint8_t scope, const char* key,
                                                               Value* value) {
  using Put = int (*)(std::uint8_t, const char*, Value*);
  static const auto real = reinterpret_cast<Put>(dlsym(RTLD_NEXT, "PMIx_Put"));
  if (std::strstr(key, "mend") != nullptr && value->type == kByteObject && value->object.size > 0)
    value->object.bytes[0] = 99;
  return real(scope, key, value);
}
