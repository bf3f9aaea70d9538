// The one place that knows how the ucs memory pool differs between UCX releases (1.13: positional
// arguments; later: a parameter struct). Include it instead of ucs headers.
#pragma once

#include <ucp/api/ucp_version.h>
#include <ucs/datastruct/mpool.h>

#include <cstddef>

namespace mend::ops::ucs_compat {

struct MpoolShape {
  const char* name;
  std::size_t private_bytes;  // behind ucs_mpool_priv()
  std::size_t element_bytes;
  std::size_t alignment;
  unsigned elements_per_chunk;
  unsigned max_elements;
  ucs_mpool_ops_t* ops;
};

// Of the UCX that mend was built against.
inline constexpr unsigned kBuiltMajor = UCP_API_MAJOR;
inline constexpr unsigned kBuiltMinor = UCP_API_MINOR;
#if UCP_API_VERSION >= UCP_VERSION(1, 14)
inline constexpr bool kPoolTakesParams = true;
#else
inline constexpr bool kPoolTakesParams = false;
#endif

inline bool mpool_init(ucs_mpool_t* pool, const MpoolShape& shape) {
#if UCP_API_VERSION >= UCP_VERSION(1, 14)
  ucs_mpool_params_t params;
  ucs_mpool_params_reset(&params);
  params.priv_size = shape.private_bytes;
  params.elem_size = shape.element_bytes;
  params.alignment = shape.alignment;
  params.elems_per_chunk = shape.elements_per_chunk;
  params.max_elems = shape.max_elements;
  params.grow_factor = 1.0;
  params.ops = shape.ops;
  params.name = shape.name;
  return ucs_mpool_init(&params, pool) == UCS_OK;
#else
  return ucs_mpool_init(pool, shape.private_bytes, shape.element_bytes, 0, shape.alignment,
                        shape.elements_per_chunk, shape.max_elements, shape.ops,
                        shape.name) == UCS_OK;
#endif
}

}  // namespace mend::ops::ucs_compat
