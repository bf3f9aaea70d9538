// Sends from memory that the process may only read: a PROT_READ mapping of a file, a constant in
// .rodata, and a buffer made read-only after it was filled. Registering it for remote writing would
// be refused.
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {8, 4096, 70000, 1000000, 5000001};
constexpr std::size_t kLargest = 5000001;

constexpr std::array<std::uint64_t, 20000> make_constant() {
  std::array<std::uint64_t, 20000> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 2654435761U;
  return words;
}
constexpr std::array<std::uint64_t, 20000> kConstant = make_constant();

const std::byte* file_mapping(std::uint64_t seed) {
  const int fd = memfd_create("mpi-test-readonly", MFD_CLOEXEC);
  Bytes content(kLargest);
  fill(content, seed);
  require(fd >= 0 && write(fd, content.data(), content.size()) == static_cast<ssize_t>(kLargest),
          "readonly", "memfd");
  void* base = mmap(nullptr, kLargest, PROT_READ, MAP_PRIVATE, fd, 0);
  require(base != MAP_FAILED, "readonly", "mmap");
  close(fd);
  return static_cast<const std::byte*>(base);
}

const std::byte* protected_memory(std::uint64_t seed) {
  void* base = mmap(nullptr, kLargest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(base != MAP_FAILED, "readonly", "mmap");
  fill({static_cast<std::byte*>(base), kLargest}, seed);
  require(mprotect(base, kLargest, PROT_READ) == 0, "readonly", "mprotect");
  return static_cast<const std::byte*>(base);
}

void pass_on(Session& s, const void* source, std::size_t size, std::uint64_t left_seed,
             const char* where) {
  Bytes in(size);
  MPI_Sendrecv(source, as_int(size), MPI_BYTE, (s.rank + 1) % s.size, 1, in.data(), as_int(size),
               MPI_BYTE, (s.rank + s.size - 1) % s.size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  s.sent(size);
  if (left_seed != 0)
    verify(in, left_seed, std::string(where) + " size " + std::to_string(size));
  else
    require(std::memcmp(in.data(), kConstant.data(), size) == 0, where, "wrong bytes");
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int left = (s.rank + s.size - 1) % s.size;
  const std::byte* file = file_mapping(seed_of(1, u64(s.rank)));
  const std::byte* guarded = protected_memory(seed_of(2, u64(s.rank)));
  const int rounds = s.pick(3, 30);
  for (int round = 0; round < rounds; ++round) {
    for (const std::size_t size : kSizes) {
      pass_on(s, file, size, seed_of(1, u64(left)), "readonly/file mapping");
      pass_on(s, guarded, size, seed_of(2, u64(left)), "readonly/mprotect");
    }
    pass_on(s, kConstant.data(), sizeof kConstant, 0, "readonly/constant");
  }
  return s.finish();
}
