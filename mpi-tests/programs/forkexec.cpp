// fork + exec, system() and a plain fork in a rank while traffic is under way: the parent's
// transfers must stay intact and the child's exit must not take down what the parent owns.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kBytes = 400000;

int wait_for(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int fork_exec() {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", "exit 7", static_cast<char*>(nullptr));
    _exit(99);
  }
  return wait_for(child);
}

// The child touches the pages that are being sent (copy on write) and leaves without cleaning up.
int fork_and_write(Bytes& buffer) {
  const pid_t child = fork();
  if (child == 0) {
    std::memset(buffer.data(), 0xdd, buffer.size());
    _exit(7);
  }
  return wait_for(child);
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  const int rounds = s.pick(8, 60);
  Bytes out(kBytes);
  Bytes in(kBytes);
  for (int round = 0; round < rounds; ++round) {
    fill(out, seed_of(u64(s.rank), u64(round)));
    MPI_Request requests[2];
    MPI_Irecv(in.data(), as_int(kBytes), MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out.data(), as_int(kBytes), MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
    int code = 7;
    if (round % 4 == 0) code = fork_exec();
    if (round % 4 == 1) code = WEXITSTATUS(std::system("exit 7"));
    if (round % 4 == 2) code = fork_and_write(out);
    require_eq(code, 7, "forkexec exit status, round " + std::to_string(round));
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    verify(in, seed_of(u64(left), u64(round)), "forkexec round " + std::to_string(round));
    s.sent(kBytes);
  }
  return s.finish();
}
