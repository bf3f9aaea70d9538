// A program that misbehaves on demand, for the test of the runner itself: it must be told from a
// good one.
//   corrupt: a check fails | hang: never ends | orphan: leaves a child process behind | idle: moves
//   no message crash: dies of a signal | liar: claims more payload than it sent | good: one clean
//   exchange
#include <unistd.h>

#include <csignal>

#include "mpi-tests/programs/check.h"

using namespace mpitest;

int main(int argc, char** argv) {
  Session s(argc, argv);
  const std::string mode = s.args.empty() ? "good" : s.args.front();
  if (mode == "hang" && s.rank == 0)
    for (;;) pause();
  if (mode == "crash" && s.rank == 1) std::raise(SIGSEGV);
  if (mode == "orphan" && s.rank == 0 && fork() == 0) {
    for (int fd = 0; fd < 3; ++fd) close(fd);
    sleep(60);
    _exit(0);
  }
  if (mode == "idle") {
    if (s.rank == 0) std::printf("mpi-test ok payload=0\n");
    std::fflush(stdout);
    MPI_Finalize();
    return 0;
  }
  Bytes out(1000);
  Bytes in(1000);
  fill(out, seed_of(u64(s.rank)));
  const int left = (s.rank + s.size - 1) % s.size;
  MPI_Sendrecv(out.data(), 1000, MPI_BYTE, (s.rank + 1) % s.size, 1, in.data(), 1000, MPI_BYTE,
               left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (mode == "corrupt" && s.rank == 1) in[777] ^= std::byte{1};
  verify(in, seed_of(u64(left)), "faulty");
  s.sent(mode == "liar" ? std::size_t{1} << 40U : 1000);
  return s.finish();
}
