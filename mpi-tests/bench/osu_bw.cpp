// Streaming bandwidth from rank 0 to rank 1: windows of non-blocking sends, one short answer per
// window.
#include "mpi-tests/bench/osu_style.h"

namespace {

// Seconds for `count` windows.
double stream(int rank, int size, int count, int window, const bench::Buffer& buffer) {
  std::vector<MPI_Request> requests(static_cast<std::size_t>(window));
  char answer = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < count && rank < 2; ++i) {
    for (MPI_Request& request : requests) {
      if (rank == 0)
        MPI_Isend(buffer.get(), size, MPI_CHAR, 1, 100, MPI_COMM_WORLD, &request);
      else
        MPI_Irecv(buffer.get(), size, MPI_CHAR, 0, 100, MPI_COMM_WORLD, &request);
    }
    MPI_Waitall(window, requests.data(), MPI_STATUSES_IGNORE);
    if (rank == 0)
      MPI_Recv(&answer, 1, MPI_CHAR, 1, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
      MPI_Send(&answer, 1, MPI_CHAR, 0, 101, MPI_COMM_WORLD);
  }
  return MPI_Wtime() - start;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bench::Options options = bench::parse(argc, argv);
  {
    const bench::Buffer buffer(options.largest);
    if (rank == 0)
      std::printf("# OSU-style MPI Bandwidth Test\n%-10s%20s\n", "# Size", "Bandwidth (MB/s)");
    for (const std::size_t size : bench::sizes(options, 1)) {
      const double seconds = bench::seconds_per_repetition(options, [&](int count) {
        return stream(rank, static_cast<int>(size), count, options.window, buffer);
      });
      const double rate = static_cast<double>(size) * options.window / seconds / 1e6;
      if (rank == 0) std::printf("%-10zu%20.2f\n", size, rate);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
