// How ops gets memory registered without knowing protection domains: the owner (plugin/conn)
// registers a chunk with every open domain and answers with one local key per rail. Called rarely
// (when a pool grows), never with a channel lock held.
#pragma once

#include <cstddef>

#include "ops/request.h"

namespace mend::ops {

struct MemoryHooks {
  void* context = nullptr;
  // Local access is enough for both fragments and receive buffers (IBV_ACCESS_LOCAL_WRITE). False:
  // not possible, the pool does not grow; the owner has said why.
  bool (*register_chunk)(void* context, void* base, std::size_t bytes, LocalKeys& keys) = nullptr;
  // Before the chunk's memory is unmapped; base as given to register_chunk.
  void (*unregister_chunk)(void* context, void* base) = nullptr;
};

}  // namespace mend::ops
