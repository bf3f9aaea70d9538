// One rank computes for seconds without entering MPI while all others send to it and put into its
// memory; when it comes back everything must be there. Small sends must complete meanwhile (they
// are buffered), nobody may declare it dead.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {8, 1000, 4000, 100000, 2000000};

double compute_for(double seconds) {
  double x = 1.0;
  const double until = MPI_Wtime() + seconds;
  while (MPI_Wtime() < until)
    for (int i = 0; i < 10000; ++i) x = x * 1.0000001 + 1e-9;
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const double seconds = s.pick(2.0, 10.0);
  const int per_size = 20;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (s.rank == 0) {
    require(compute_for(seconds) > 0, "compute", "no result");
    Bytes in(kSizes[std::size(kSizes) - 1]);
    for (int src = 1; src < s.size; ++src)
      for (const std::size_t size : kSizes)
        for (int i = 0; i < per_size; ++i) {
          MPI_Recv(in.data(), as_int(size), MPI_BYTE, src, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          verify({in.data(), size}, seed_of(u64(src), size, u64(i)),
                 "compute from " + std::to_string(src) + " size " + std::to_string(size));
        }
  } else {
    std::vector<Bytes> kept;
    std::vector<MPI_Request> requests;
    for (const std::size_t size : kSizes)
      for (int i = 0; i < per_size; ++i) {
        Bytes& out = kept.emplace_back(size);
        fill(out, seed_of(u64(s.rank), size, u64(i)));
        MPI_Isend(out.data(), as_int(size), MPI_BYTE, 0, 1, MPI_COMM_WORLD,
                  &requests.emplace_back());
        s.sent(size);
      }
    MPI_Waitall(per_size, requests.data(), MPI_STATUSES_IGNORE);
    require(MPI_Wtime() - start < seconds, "compute",
            "small sends did not complete while the receiver computed");
    MPI_Waitall(as_int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return s.finish();
}
