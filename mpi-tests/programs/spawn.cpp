// MPI_Comm_spawn of one more process: it may be refused (the error is reported and the job goes on)
// or it must work, with traffic both ways between parents and child; it must never hang (the
// runner's time-out) and never crash.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kBytes = 200000;

// Parents are 0..n-1 on their side, the child is 0 on its side.
void talk(MPI_Comm bridge, bool child) {
  int peers = 0;
  int rank = 0;
  MPI_Comm_remote_size(bridge, &peers);
  MPI_Comm_rank(bridge, &rank);
  Bytes out(kBytes);
  Bytes in(kBytes);
  for (int i = 0; i < peers; ++i) {
    const int parent = child ? i : rank;
    fill(out, seed_of(child ? 1 : 2, u64(parent)));
    MPI_Sendrecv(out.data(), as_int(kBytes), MPI_BYTE, i, 1, in.data(), as_int(kBytes), MPI_BYTE, i,
                 1, bridge, MPI_STATUS_IGNORE);
    verify(in, seed_of(child ? 2 : 1, u64(parent)), child ? "spawn/child" : "spawn/parent");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) {
    talk(parent, true);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm child = MPI_COMM_NULL;
  int code = MPI_SUCCESS;
  const int rc =
      MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, &code);
  if (rc != MPI_SUCCESS) {
    if (session.rank == 0) std::printf("spawn: refused\n");
    std::fflush(stdout);
  } else {
    if (session.rank == 0) std::printf("spawn: working\n");
    std::fflush(stdout);
    talk(child, false);
    session.sent(kBytes);
    MPI_Comm_disconnect(&child);
  }
  return session.finish();
}
