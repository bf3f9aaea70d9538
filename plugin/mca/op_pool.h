// A pool of small request objects that are taken by one thread and given back by another.
//
// Thread contract: take and give from any thread; one leaf spin lock, held for a few instructions.
// Invariant: an object is in the free list or with its taker; all are freed with the pool.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "ops/spin_lock.h"

namespace mend::mca {

template <typename T>
class OpPool {
 public:
  // Null when memory is exhausted.
  T* take() noexcept {
    const std::lock_guard guard(lock_);
    if (free_.empty() && !grow()) return nullptr;
    T* op = free_.back();
    free_.pop_back();
    return op;
  }
  void give(T* op) noexcept {
    const std::lock_guard guard(lock_);
    free_.push_back(op);  // never allocates: grow() reserved room for every object there is
  }

 private:
  bool grow() noexcept {
    try {
      auto chunk = std::make_unique<T[]>(kChunk);
      free_.reserve((chunks_.size() + 1) * kChunk);
      chunks_.push_back(std::move(chunk));
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (std::size_t i = 0; i < kChunk; ++i) free_.push_back(&chunks_.back()[i]);
    return true;
  }

  static constexpr std::size_t kChunk = 32;
  ops::SpinLock lock_;
  std::vector<T*> free_;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace mend::mca
