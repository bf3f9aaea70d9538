#include "softhca/engine/dma.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace softhca {

namespace {

constexpr uint64_t kMaxPerCall = uint64_t{1} << 30;

// A position in a list of pieces.
class Cursor {
 public:
  Cursor(const iovec* list, unsigned count) : list_(list), count_(count) { skip_empty(); }

  iovec current() const noexcept {
    return {static_cast<char*>(list_[index_].iov_base) + offset_, list_[index_].iov_len - offset_};
  }
  void advance(std::size_t bytes) noexcept {
    while (bytes != 0 && index_ < count_) {
      const std::size_t step = std::min(bytes, list_[index_].iov_len - offset_);
      offset_ += step;
      bytes -= step;
      skip_empty();
    }
  }
  // Fills `out` with at most `limit` bytes from here; the number of pieces.
  unsigned fill(iovec* out, unsigned room, uint64_t limit) const noexcept {
    unsigned used = 0;
    std::size_t offset = offset_;
    for (unsigned i = index_; i < count_ && used < room && limit != 0; ++i) {
      const std::size_t n = std::min<uint64_t>(list_[i].iov_len - offset, limit);
      if (n != 0) out[used++] = {static_cast<char*>(list_[i].iov_base) + offset, n};
      limit -= n;
      offset = 0;
    }
    return used;
  }

 private:
  void skip_empty() noexcept {
    while (index_ < count_ && offset_ == list_[index_].iov_len) {
      ++index_;
      offset_ = 0;
    }
  }

  const iovec* list_;
  unsigned count_;
  unsigned index_ = 0;
  std::size_t offset_ = 0;
};

enum class Direction { Write, Read };

constexpr unsigned kRoom = 32;

int copy_here(Direction direction, Cursor remote, Cursor local, uint64_t length) noexcept {
  while (length != 0) {
    const iovec r = remote.current();
    const iovec l = local.current();
    const std::size_t n =
        std::min({static_cast<uint64_t>(r.iov_len), static_cast<uint64_t>(l.iov_len), length});
    if (direction == Direction::Write) {
      std::memmove(r.iov_base, l.iov_base, n);
    } else {
      std::memmove(l.iov_base, r.iov_base, n);
    }
    remote.advance(n);
    local.advance(n);
    length -= n;
  }
  return 0;
}

int copy_there(const Peer& peer, Direction direction, Cursor remote, Cursor local,
               uint64_t length) noexcept {
  iovec remote_part[kRoom];
  iovec local_part[kRoom];
  while (length != 0) {
    const uint64_t limit = std::min(length, kMaxPerCall);
    const unsigned nr = remote.fill(remote_part, kRoom, limit);
    const unsigned nl = local.fill(local_part, kRoom, limit);
    const ssize_t n = direction == Direction::Write
                          ? ::process_vm_writev(peer.pid, local_part, nl, remote_part, nr, 0)
                          : ::process_vm_readv(peer.pid, local_part, nl, remote_part, nr, 0);
    if (n <= 0) return n == 0 ? EFAULT : errno;
    const auto moved = static_cast<uint64_t>(n);
    remote.advance(moved);
    local.advance(moved);
    length -= moved;
  }
  return 0;
}

int copy(const Peer& peer, Direction direction, const iovec* remote, unsigned remote_count,
         const iovec* local, unsigned local_count, uint64_t length) noexcept {
  const Cursor r(remote, remote_count);
  const Cursor l(local, local_count);
  return peer.same_address_space ? copy_here(direction, r, l, length)
                                 : copy_there(peer, direction, r, l, length);
}

}  // namespace

int dma_write(const Peer& peer, uint64_t remote, const iovec* local, unsigned count,
              uint64_t length) {
  if (length == 0) return 0;
  const uint64_t last_word = (remote + length - 1) & ~uint64_t{7};
  const uint64_t head = last_word > remote ? last_word - remote : 0;
  auto* base = reinterpret_cast<char*>(remote);
  if (peer.same_address_space && head != 0) {
    const iovec first{base, head};
    copy(peer, Direction::Write, &first, 1, local, count, head);
    std::atomic_thread_fence(std::memory_order_release);
    Cursor rest(local, count);
    rest.advance(head);
    iovec pieces[kRoom];
    const unsigned n = rest.fill(pieces, kRoom, length - head);
    const iovec last{base + head, length - head};
    return copy(peer, Direction::Write, &last, 1, pieces, n, length - head);
  }
  // Pieces of one process_vm call are stored one after the other.
  const iovec parts[2] = {{base, head}, {base + head, length - head}};
  return copy(peer, Direction::Write, head == 0 ? parts + 1 : parts, head == 0 ? 1 : 2, local,
              count, length);
}

int dma_read(const Peer& peer, uint64_t remote, const iovec* local, unsigned count,
             uint64_t length) {
  if (length == 0) return 0;
  const iovec from{reinterpret_cast<void*>(remote), length};
  return copy(peer, Direction::Read, &from, 1, local, count, length);
}

int dma_scatter(const Peer& peer, const iovec* remote, unsigned remote_count, const iovec* local,
                unsigned local_count, uint64_t length) {
  if (length == 0) return 0;
  return copy(peer, Direction::Write, remote, remote_count, local, local_count, length);
}

}  // namespace softhca
