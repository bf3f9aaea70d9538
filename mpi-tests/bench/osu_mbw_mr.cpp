// Bandwidth and message rate of pairs: rank i of the lower half streams to rank i of the upper half
// in windows.
#include "mpi-tests/bench/osu_style.h"

namespace {

struct Pairing {
  int rank;
  int pairs;
  bool sender() const { return rank < pairs; }
  int peer() const { return sender() ? rank + pairs : rank - pairs; }
  bool idle() const { return rank >= 2 * pairs; }
};

// Seconds for count * window messages of every pair (the slowest one counts).
double stream(const Pairing& pairing, int size, int count, int window,
              const bench::Buffer& buffer) {
  std::vector<MPI_Request> requests(static_cast<std::size_t>(window));
  char answer = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < count && !pairing.idle(); ++i) {
    const int peer = pairing.peer();
    for (MPI_Request& request : requests) {
      if (pairing.sender())
        MPI_Isend(buffer.get(), size, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &request);
      else
        MPI_Irecv(buffer.get(), size, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &request);
    }
    MPI_Waitall(window, requests.data(), MPI_STATUSES_IGNORE);
    if (pairing.sender())
      MPI_Recv(&answer, 1, MPI_CHAR, peer, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
      MPI_Send(&answer, 1, MPI_CHAR, peer, 101, MPI_COMM_WORLD);
  }
  double seconds = MPI_Wtime() - start;
  double slowest = 0;
  MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return slowest;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Pairing pairing{};
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &pairing.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  pairing.pairs = size / 2;
  const bench::Options options = bench::parse(argc, argv);
  {
    const bench::Buffer buffer(options.largest);
    if (pairing.rank == 0)
      std::printf(
          "# OSU-style MPI Multiple Bandwidth / Message Rate Test\n"
          "# [ pairs: %d ] [ window size: %d ]\n%-10s%20s%20s\n",
          pairing.pairs, options.window, "# Size", "MB/s", "Messages/s");
    for (const std::size_t bytes : bench::sizes(options, 1)) {
      const double seconds = bench::seconds_per_repetition(options, [&](int count) {
        return stream(pairing, static_cast<int>(bytes), count, options.window, buffer);
      });
      const double messages = static_cast<double>(pairing.pairs) * options.window;
      if (pairing.rank == 0)
        std::printf("%-10zu%20.2f%20.2f\n", bytes,
                    messages * static_cast<double>(bytes) / seconds / 1e6, messages / seconds);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
