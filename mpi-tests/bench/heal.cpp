// Two ranks exchange numbered 8-byte messages for a given time; rank 0 prints every round trip that
// took longer than a limit. What is printed is what a break of the queue pair cost the application:
// heal.py lays it beside the device's log of the breaks.
//   heal SECONDS LIMIT_US      -> lines "stall BEGIN END", nanoseconds of CLOCK_MONOTONIC
#include <chrono>
#include <cstdint>
#include <utility>

#include "mpi-tests/bench/osu_style.h"

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void expect(std::uint64_t got, std::uint64_t want) {
  if (got == want) return;
  std::fprintf(stderr, "heal: message %llu arrived where %llu was due\n",
               static_cast<unsigned long long>(got), static_cast<unsigned long long>(want));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Rank 0 sends the number of the round, 0 ends it.
void lead(std::int64_t end, std::int64_t limit) {
  std::vector<std::pair<std::int64_t, std::int64_t>> stalls;
  std::uint64_t round = 1;
  for (std::int64_t begin = now_ns(); begin < end; ++round) {
    std::uint64_t back = 0;
    MPI_Send(&round, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(&back, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(back, round);
    const std::int64_t done = now_ns();
    if (done - begin > limit) stalls.emplace_back(begin, done);
    begin = done;
  }
  const std::uint64_t stop = 0;
  MPI_Send(&stop, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
  for (const auto& [begin, done] : stalls)
    std::printf("stall %lld %lld\n", static_cast<long long>(begin), static_cast<long long>(done));
  std::printf("rounds %llu\n", static_cast<unsigned long long>(round - 1));
}

void follow() {
  for (std::uint64_t round = 1;; ++round) {
    std::uint64_t got = 0;
    MPI_Recv(&got, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (got == 0) return;
    expect(got, round);
    MPI_Send(&got, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    lead(now_ns() + std::atoll(argv[1]) * 1'000'000'000, std::atoll(argv[2]) * 1000);
  else if (rank == 1)
    follow();
  MPI_Finalize();
  return 0;
}
