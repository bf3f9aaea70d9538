// A mapped range of shared memory. Owned segments hand out pieces from a single-owner allocator;
// pages are committed (posix_fallocate) before a piece is handed out, so a full /dev/shm is ENOMEM
// here and never SIGBUS later. Peers map the whole sparse range once, so growth needs no remap.
// alloc/free are thread safe within the owner; the bookkeeping is private memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "softhca/engine/shm_layout.h"

namespace softhca {

class Segment {
 public:
  Segment() = default;
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Unmaps and closes; the object is as new.
  void reset() noexcept;

  // All return 0 or an errno. `fd` is taken over.
  int create_anonymous(std::size_t bytes);
  int map_file(int fd, std::size_t bytes);

  // First `bytes` of the file, zeroed and committed.
  int commit(std::size_t bytes);
  // Starts the allocator behind what is committed so far.
  void start_allocator(std::size_t first_free);

  // Zeroed, aligned to a cache line (pairs of lines for >= 128 bytes); 0 = out of memory.
  Off alloc(std::size_t bytes);
  void free(Off off, std::size_t bytes);

  char* base() const noexcept { return base_; }
  int fd() const noexcept { return fd_; }
  // Gives the descriptor up without closing it (a close would drop this process's record locks).
  int release_fd() noexcept;
  std::size_t bytes_committed() const noexcept { return committed_; }

  template <typename T>
  T* at(Off off) const noexcept {
    return reinterpret_cast<T*>(base_ + off);
  }
  template <typename T>
  Off offset_of(const T* p) const noexcept {
    return static_cast<Off>(reinterpret_cast<const char*>(p) - base_);
  }

 private:
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t committed_ = 0;
  int fd_ = -1;
  std::mutex mutex_;
  std::size_t top_ = 0;                       // everything above is untouched
  std::map<std::size_t, std::size_t> holes_;  // freed ranges below top_: start -> length
};

}  // namespace softhca
