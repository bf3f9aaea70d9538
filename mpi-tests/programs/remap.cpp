// munmap and mmap of the same address between transfers: a registration cache that misses it sends
// the old pages or writes into them. Sender and receiver both remap, also by MAP_FIXED over the old
// mapping, by mremap and by madvise(MADV_DONTNEED).
#include <sys/mman.h>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

enum class Renewal { Munmap, FixedOver, DontNeed, MoveAway };
constexpr Renewal kRenewals[] = {Renewal::Munmap, Renewal::FixedOver, Renewal::DontNeed,
                                 Renewal::MoveAway};

std::byte* map_at(void* where, std::size_t size) {
  const int fixed = where == nullptr ? 0 : MAP_FIXED;
  void* base =
      mmap(where, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  require(base != MAP_FAILED, "remap", "mmap");
  return static_cast<std::byte*>(base);
}

// Gives the range fresh pages at the same address.
void renew(std::byte* base, std::size_t size, Renewal how) {
  switch (how) {
    case Renewal::Munmap:
      require(munmap(base, size) == 0, "remap", "munmap");
      map_at(base, size);
      return;
    case Renewal::FixedOver:
      map_at(base, size);
      return;
    case Renewal::DontNeed:
      require(madvise(base, size, MADV_DONTNEED) == 0, "remap", "madvise");
      return;
    case Renewal::MoveAway: {
      void* moved = mremap(base, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, map_at(nullptr, size));
      require(moved != MAP_FAILED, "remap", "mremap");
      map_at(base, size);
      std::memset(moved, 0xbd, size);
      munmap(moved, size);
      return;
    }
  }
}

// No address comes twice: what was unmapped is kept free of other mappings.
void pass_buffers_of_one_use(Session& s, int right, int left) {
  constexpr std::size_t kSize = 262144;
  Bytes in(kSize);
  for (int i = 0; i < 64; ++i) {
    std::byte* out = map_at(nullptr, kSize);
    fill({out, kSize}, seed_of(u64(s.rank), u64(i), 77));
    MPI_Sendrecv(out, as_int(kSize), MPI_BYTE, right, 2, in.data(), as_int(kSize), MPI_BYTE, left,
                 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    s.sent(kSize);
    verify(in, seed_of(u64(left), u64(i), 77), "remap once " + std::to_string(i));
    MPI_Barrier(MPI_COMM_WORLD);
    require(munmap(out, kSize) == 0, "remap once", "munmap");
    require(mmap(out, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == out,
            "remap once", "mmap");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  const int rounds = s.pick(6, 60);
  for (const std::size_t size : {std::size_t{8192}, std::size_t{131072}, std::size_t{2} << 20U}) {
    std::byte* out = map_at(nullptr, size);
    std::byte* in = map_at(nullptr, size);
    for (const Renewal how : kRenewals)
      for (int round = 0; round < rounds; ++round) {
        const auto salt = static_cast<std::uint64_t>(how) * 1000 + u64(round);
        fill({out, size}, seed_of(u64(s.rank), size, salt));
        MPI_Sendrecv(out, as_int(size), MPI_BYTE, right, 1, in, as_int(size), MPI_BYTE, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        s.sent(size);
        verify({in, size}, seed_of(u64(left), size, salt),
               "remap kind " + std::to_string(static_cast<int>(how)) + " round " +
                   std::to_string(round) + " size " + std::to_string(size));
        // The neighbour may still be reading `out` only until its receive completed; the token says
        // it has.
        MPI_Barrier(MPI_COMM_WORLD);
        renew(out, size, how);
        renew(in, size, how);
      }
    munmap(out, size);
    munmap(in, size);
  }
  pass_buffers_of_one_use(s, right, left);
  return s.finish();
}
