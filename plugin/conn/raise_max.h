// Raises a high-water mark. Any thread; lock-free.
#pragma once

#include <atomic>
#include <cstdint>

namespace mend::conn {

inline void raise_max(std::atomic<std::uint64_t>& max, std::uint64_t value) {
  std::uint64_t seen = max.load(std::memory_order_relaxed);
  while (seen < value && !max.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace mend::conn
