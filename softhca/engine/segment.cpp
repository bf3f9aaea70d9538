#include "softhca/engine/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softhca {

namespace {

constexpr std::size_t kCommitStep = std::size_t{32} << 10;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

Segment::~Segment() { reset(); }

void Segment::reset() noexcept {
  if (base_ != nullptr) ::munmap(base_, bytes_);
  if (fd_ >= 0) ::close(fd_);
  base_ = nullptr;
  bytes_ = 0;
  committed_ = 0;
  fd_ = -1;
  top_ = 0;
  holes_.clear();
}

int Segment::create_anonymous(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return ENOMEM;
  base_ = static_cast<char*>(p);
  bytes_ = bytes;
  return 0;
}

int Segment::map_file(int fd, std::size_t bytes) {
  fd_ = fd;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return errno;
  base_ = static_cast<char*>(p);
  bytes_ = bytes;
  // A forked child must not keep a mapping through which it could disturb its parent's device.
  ::madvise(base_, bytes, MADV_DONTFORK);
  return 0;
}

int Segment::commit(std::size_t bytes) {
  if (bytes <= committed_) return 0;
  if (bytes > bytes_) return ENOMEM;
  if (fd_ >= 0) {
    int rc = 0;
    do {
      rc = ::posix_fallocate(fd_, static_cast<off_t>(committed_),
                             static_cast<off_t>(bytes - committed_));
    } while (rc == EINTR);
    if (rc != 0) return rc == ENOSPC ? ENOMEM : rc;
  }
  committed_ = bytes;
  return 0;
}

void Segment::start_allocator(std::size_t first_free) { top_ = round_up(first_free, 2 * kLine); }

Off Segment::alloc(std::size_t bytes) {
  const std::size_t align = bytes > kLine ? 2 * kLine : kLine;
  bytes = round_up(bytes, align);
  std::lock_guard guard(mutex_);
  for (auto it = holes_.begin(); it != holes_.end(); ++it) {
    const std::size_t start = round_up(it->first, align);
    const std::size_t end = it->first + it->second;
    if (start + bytes > end) continue;
    const std::size_t before = start - it->first;
    const std::size_t hole = it->first;
    holes_.erase(it);
    if (before != 0) holes_[hole] = before;
    if (end != start + bytes) holes_[start + bytes] = end - start - bytes;
    std::memset(base_ + start, 0, bytes);
    return static_cast<Off>(start);
  }
  const std::size_t start = round_up(top_, align);
  if (start + bytes > bytes_) return 0;
  if (start + bytes > committed_ &&
      commit(std::min(bytes_, round_up(start + bytes, kCommitStep))) != 0 &&
      commit(round_up(start + bytes, 4096)) != 0) {
    return 0;
  }
  if (start != top_) holes_[top_] = start - top_;
  top_ = start + bytes;
  return static_cast<Off>(start);
}

void Segment::free(Off off, std::size_t bytes) {
  if (off == 0) return;
  bytes = round_up(bytes, bytes > kLine ? 2 * kLine : kLine);
  std::lock_guard guard(mutex_);
  auto [it, inserted] = holes_.emplace(off, bytes);
  if (const auto next = std::next(it); next != holes_.end() && off + bytes == next->first) {
    it->second += next->second;
    holes_.erase(next);
  }
  if (it != holes_.begin()) {
    const auto prev = std::prev(it);
    if (prev->first + prev->second == it->first) {
      prev->second += it->second;
      holes_.erase(it);
    }
  }
}

int Segment::release_fd() noexcept {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

}  // namespace softhca
