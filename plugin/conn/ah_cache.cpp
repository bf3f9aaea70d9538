#include "plugin/conn/ah_cache.h"

#include <utility>

namespace mend::conn {

ibv_ah* AhCache::find(const Key& key) const {
  const auto found = handles_.find(key);
  return found != handles_.end() ? found->second.get() : nullptr;
}

void AhCache::insert(const Key& key, std::uint32_t generation, verbs::Ah ah) {
  if (generation != generation_) {
    retired_.push_back(std::move(ah));
    return;
  }
  verbs::Ah& slot = handles_[key];
  if (slot) retired_.push_back(std::move(slot));
  slot = std::move(ah);
}

void AhCache::forget(const Key& key) {
  const auto found = handles_.find(key);
  if (found == handles_.end()) return;
  retired_.push_back(std::move(found->second));
  handles_.erase(found);
}

void AhCache::next_generation() {
  for (auto& [key, handle] : handles_) retired_.push_back(std::move(handle));
  handles_.clear();
  ++generation_;
}

}  // namespace mend::conn
