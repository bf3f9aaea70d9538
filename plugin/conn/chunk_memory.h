// ChunkMemory: registers the chunks of the fragment pools with every protection domain
// (ops/memory_hooks.h).
//
// Thread contract: any thread; may block on the driver.
// Invariant: every chunk is unregistered before its memory is returned.
#pragma once

#include <map>
#include <mutex>

#include "ops/memory_hooks.h"
#include "plugin/conn/memory_registry.h"

namespace mend::conn {

class ChunkMemory {
 public:
  explicit ChunkMemory(MemoryRegistry& registry) : registry_(registry) {}
  ChunkMemory(const ChunkMemory&) = delete;
  ChunkMemory& operator=(const ChunkMemory&) = delete;
  ~ChunkMemory();

  ops::MemoryHooks hooks();

 private:
  bool add(void* base, std::size_t bytes, ops::LocalKeys& keys);
  void remove(void* base);

  MemoryRegistry& registry_;
  std::mutex mutex_;
  std::map<void*, Region> regions_;
};

}  // namespace mend::conn
