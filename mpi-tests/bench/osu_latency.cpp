// Half round trip time of a ping-pong between ranks 0 and 1, by message size.
#include "mpi-tests/bench/osu_style.h"

namespace {

// Microseconds of one way.
double half_round_trip(int rank, int size, int iterations, const bench::Buffer& out,
                       const bench::Buffer& in) {
  const int warmup = iterations / 10 + 5;
  double start = 0;
  for (int i = 0; i < warmup + iterations; ++i) {
    if (i == warmup) {
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
    }
    if (rank == 0) {
      MPI_Send(out.get(), size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(in.get(), size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
      MPI_Recv(in.get(), size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(out.get(), size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - start) * 1e6 / (2.0 * iterations);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bench::Options options = bench::parse(argc, argv);
  {
    const bench::Buffer out(options.largest);
    const bench::Buffer in(options.largest);
    if (rank == 0)
      std::printf("# OSU-style MPI Latency Test\n%-10s%20s\n", "# Size", "Latency (us)");
    for (const std::size_t size : bench::sizes(options, 0)) {
      const int iterations = bench::iterations(options, size, 10000, size > 262144 ? 200 : 1000);
      const double us = half_round_trip(rank, static_cast<int>(size), iterations, out, in);
      if (rank == 0) std::printf("%-10zu%20.3f\n", size, us);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
