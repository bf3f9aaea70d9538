// What every MPI test program shares: start-up, byte patterns, checks that name rank, place and
// values, and the closing line the runner reads ("mpi-test ok payload=BYTES", BYTES = what the
// ranks sent to other ranks). A failed check prints one line and aborts the job: a broken run must
// end at once, with a non-zero status. Thread contract: pattern and check functions may be called
// from any thread; Session belongs to main().
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpitest {

using Bytes = std::vector<std::byte>;

inline int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

[[noreturn]] inline void fail(const std::string& where, const std::string& what) {
  std::fprintf(stderr, "mpi-test FAILED rank %d: %s: %s\n", world_rank(), where.c_str(),
               what.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

inline void require(bool ok, const std::string& where, std::string_view what) {
  if (!ok) fail(where, std::string(what));
}

template <typename A, typename B>
void require_eq(const A& got, const B& want, const std::string& where) {
  if (!(got == static_cast<A>(want)))
    fail(where, "got " + std::to_string(got) + ", want " + std::to_string(want));
}

// splitmix64: every 8-byte word of a pattern depends on the seed and on its place, so a byte that
// is lost, doubled or delivered elsewhere is seen.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

inline std::uint64_t seed_of(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  return mix(a + (mix(b + mix(c)) << 1U));
}

// Fills `out` with the pattern of `seed`, starting `skip` bytes (a multiple of 8) into it.
inline void fill(std::span<std::byte> out, std::uint64_t seed, std::size_t skip = 0) {
  std::size_t at = 0;
  std::uint64_t word = skip / 8;
  for (; at + 8 <= out.size(); at += 8, ++word) {
    const std::uint64_t value = mix(seed + word);
    std::memcpy(&out[at], &value, 8);
  }
  if (at < out.size()) {
    const std::uint64_t value = mix(seed + word);
    std::memcpy(&out[at], &value, out.size() - at);
  }
}

// Checks every byte against the pattern of `seed`; names the first wrong byte.
inline void verify(std::span<const std::byte> in, std::uint64_t seed, const std::string& where,
                   std::size_t skip = 0) {
  std::size_t at = 0;
  std::uint64_t word = skip / 8;
  for (; at < in.size(); at += 8, ++word) {
    const std::uint64_t want = mix(seed + word);
    const std::size_t n = in.size() - at < 8 ? in.size() - at : 8;
    if (std::memcmp(&in[at], &want, n) == 0) continue;
    std::byte bytes[8];
    std::memcpy(bytes, &want, 8);
    std::size_t i = 0;
    while (in[at + i] == bytes[i]) ++i;
    fail(where, "byte " + std::to_string(at + i + skip) + " of " + std::to_string(in.size()) +
                    " is " + std::to_string(std::to_integer<int>(in[at + i])) + ", want " +
                    std::to_string(std::to_integer<int>(bytes[i])));
  }
}

// A buffer whose neighbourhood is checked too: `size` usable bytes between two canaries, at an odd
// alignment if asked. check_canaries() fails if a transfer wrote outside.
class Guarded {
 public:
  explicit Guarded(std::size_t size, std::size_t misalign = 0)
      : store_(size + misalign + 2 * kCanary, kMark), offset_(kCanary + misalign), size_(size) {}
  std::span<std::byte> bytes() { return {store_.data() + offset_, size_}; }
  void* data() { return store_.data() + offset_; }
  void clear() { std::memset(store_.data() + offset_, 0x5a, size_); }
  void check_canaries(const std::string& where) const {
    for (std::size_t i = 0; i < offset_; ++i)
      require(store_[i] == kMark, where, "written before the buffer");
    for (std::size_t i = offset_ + size_; i < store_.size(); ++i)
      require(store_[i] == kMark, where, "written behind the buffer");
  }

 private:
  static constexpr std::size_t kCanary = 64;
  static constexpr std::byte kMark{0xc7};
  std::vector<std::byte> store_;
  std::size_t offset_;
  std::size_t size_;
};

class Session {
 public:
  Session(int argc, char** argv, int threads = MPI_THREAD_SINGLE) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, threads, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    require(provided >= threads, "MPI_Init_thread", "thread level refused");
    for (int i = 1; i < argc; ++i) {
      const std::string_view arg = argv[i];
      if (arg == "--quick")
        quick = true;
      else
        args.emplace_back(arg);
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() = default;

  // What this rank sent to other ranks; the runner demands that mend moved at least the total.
  void sent(std::size_t bytes) { payload_.fetch_add(bytes, std::memory_order_relaxed); }

  template <typename T>
  T pick(T quick_value, T full_value) const {
    return quick ? quick_value : full_value;
  }

  // Sums the payload, prints the closing line on rank 0 and finalises. Returns main()'s exit
  // status.
  int finish() {
    std::uint64_t mine = payload_.load();
    std::uint64_t total = 0;
    MPI_Reduce(&mine, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("mpi-test ok payload=%llu\n", static_cast<unsigned long long>(total));
      std::fflush(stdout);
    }
    MPI_Finalize();
    return 0;
  }

  int rank = -1;
  int size = 0;
  bool quick = false;
  std::vector<std::string> args;

 private:
  std::atomic<std::uint64_t> payload_{0};
};

inline std::uint64_t u64(int value) { return static_cast<std::uint64_t>(value); }
inline std::size_t uz(int value) { return static_cast<std::size_t>(value); }
inline int as_int(std::size_t value) { return static_cast<int>(value); }

}  // namespace mpitest
