#include "plugin/conn/chunk_memory.h"

#include "plugin/verbs/log.h"

namespace mend::conn {

ChunkMemory::~ChunkMemory() {
  for (auto& [base, region] : regions_) registry_.remove(region);
}

ops::MemoryHooks ChunkMemory::hooks() {
  ops::MemoryHooks hooks;
  hooks.context = this;
  hooks.register_chunk = [](void* self, void* base, std::size_t bytes, ops::LocalKeys& keys) {
    return static_cast<ChunkMemory*>(self)->add(base, bytes, keys);
  };
  hooks.unregister_chunk = [](void* self, void* base) {
    static_cast<ChunkMemory*>(self)->remove(base);
  };
  return hooks;
}

bool ChunkMemory::add(void* base, std::size_t bytes, ops::LocalKeys& keys) {
  Region region;
  if (auto added = registry_.add(base, bytes, kLocalWrite, region); !added) {
    log(LogLevel::Error, "registering fragments: " + added.error().message);
    return false;
  }
  keys = region.local;
  const std::lock_guard guard(mutex_);
  regions_[base] = region;
  return true;
}

void ChunkMemory::remove(void* base) {
  const std::lock_guard guard(mutex_);
  const auto it = regions_.find(base);
  if (it == regions_.end()) return;
  registry_.remove(it->second);
  regions_.erase(it);
}

}  // namespace mend::conn
