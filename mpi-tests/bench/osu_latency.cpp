// Half round trip time of a ping-pong between ranks 0 and 1, by message size.
#include "mpi-tests/bench/osu_style.h"

namespace {

constexpr int kMedianOf = 1000;  // round trips, as perftest

void round_trip(int rank, int size, const bench::Buffer& out, const bench::Buffer& in) {
  if (rank == 0) {
    MPI_Send(out.get(), size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(in.get(), size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    MPI_Recv(in.get(), size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out.get(), size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
  }
}

// Seconds for so many round trips.
double round_trips(int rank, int size, int count, const bench::Buffer& out,
                   const bench::Buffer& in) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < count; ++i) round_trip(rank, size, out, in);
  return MPI_Wtime() - start;
}

// The median of so many round trips, each timed by itself, in seconds: what perftest calls typical.
// A mean also counts every time that a virtual machine was stopped.
double median_round_trip(int rank, int size, int count, const bench::Buffer& out,
                         const bench::Buffer& in) {
  std::vector<double> took(static_cast<std::size_t>(count));
  MPI_Barrier(MPI_COMM_WORLD);
  for (double& one : took) {
    const double start = MPI_Wtime();
    round_trip(rank, size, out, in);
    one = MPI_Wtime() - start;
  }
  std::nth_element(took.begin(), took.begin() + count / 2, took.end());
  return took[static_cast<std::size_t>(count / 2)];
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
      std::printf("# OSU-style MPI Latency Test\n%-10s%20s%s\n", "# Size", "Latency (us)",
                  options.median ? "            P50 (us)" : "");
    for (const std::size_t size : bench::sizes(options, 0)) {
      const double us = bench::seconds_per_repetition(
                            options,
                            [&](int count) {
                              return round_trips(rank, static_cast<int>(size), count, out, in);
                            }) *
                        1e6 / 2;
      if (rank == 0) std::printf("%-10zu%20.3f", size, us);
      if (options.median) {
        const int count = options.iterations > 0 ? options.iterations : kMedianOf;
        const double median = median_round_trip(rank, static_cast<int>(size), count, out, in);
        if (rank == 0) std::printf("%20.3f", median * 1e6 / 2);
      }
      if (rank == 0) std::printf("\n");
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
