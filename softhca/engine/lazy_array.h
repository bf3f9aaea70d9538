// LazyArray: a large array whose pages cost nothing until they are written: queues are sized for
// the worst case that never comes.
//
// Thread contract: none of its own. Elements start as zero bytes, which T must accept as its first
// value.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace softhca {

template <typename T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  LazyArray() = default;
  // Empty (false) if there is no memory.
  explicit LazyArray(std::size_t count) noexcept : bytes_(count * sizeof(T)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) data_ = static_cast<T*>(at);
  }
  ~LazyArray() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;
  LazyArray(LazyArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  LazyArray& operator=(LazyArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  explicit operator bool() const noexcept { return data_ != nullptr; }
  T& operator[](std::size_t index) noexcept { return data_[index]; }
  const T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace softhca
