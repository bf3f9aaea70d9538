// One rank computes for seconds (--seconds N) without entering MPI while all others send to it and
// put into its memory; when it comes back everything must be there. Small sends must complete
// meanwhile (they are buffered), nobody may declare it dead. --fork: it runs other programs too.
#include <algorithm>
#include <chrono>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {8, 1000, 4000, 100000, 2000000};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double compute_for(double seconds, bool forking) {
  double x = 1.0;
  const double until = now() + seconds;
  double next_fork = now();
  while (now() < until) {
    for (int i = 0; i < 10000; ++i) x = x * 1.0000001 + 1e-9;
    if (!forking || now() < next_fork) continue;
    require_eq(std::system("exit 7"), 7 << 8, "compute: exit status of a program it ran");
    next_fork = now() + 0.1;
  }
  return x;
}

double seconds_of(const Session& s) {
  for (std::size_t i = 0; i + 1 < s.args.size(); ++i)
    if (s.args[i] == "--seconds") return std::atof(s.args[i + 1].c_str());
  return s.pick(2.0, 10.0);
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const double seconds = seconds_of(s);
  const bool forking = std::find(s.args.begin(), s.args.end(), "--fork") != s.args.end();
  const int per_size = 20;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (s.rank == 0) {
    require(compute_for(seconds, forking) > 0, "compute", "no result");
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
