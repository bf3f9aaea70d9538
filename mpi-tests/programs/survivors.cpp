// A program that goes on when a process is lost (Open MPI with --with-ft ulfm): verified traffic
// among all ranks until MPI reports that one has failed, then revoke, shrink, and the same traffic
// among the survivors. A rank that finds itself without the majority ends: it is the one that was
// cut off.
//   --seconds N   of traffic among the survivors (default 3)
//   --listen      until then rank 0 only receives, and the others only send to it
//   --patience N  seconds until it fails because nobody is lost (default 60)
// Prints "under way" after the first rounds, "survivors N" and the closing line of all test
// programs.
#include <unistd.h>

#include <chrono>

#include "mpi-tests/programs/check.h"
#include "mpi-tests/programs/curfew.h"

#include <mpi-ext.h>

namespace {

using namespace mpitest;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSizes[] = {8, 300, 5000, 40000, 300000};

// What an application may see of a lost process: anything else is a defect.
bool is_loss(int code) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  return kind == MPIX_ERR_PROC_FAILED || kind == MPIX_ERR_REVOKED ||
         kind == MPIX_ERR_PROC_FAILED_PENDING;
}

struct Group {
  explicit Group(MPI_Comm c) : comm(c) {
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
  MPI_Comm comm;
  int rank = -1;
  int size = 0;
};

// Every rank with every other, all at once, checked byte for byte. False: somebody was lost.
bool exchange(Session& s, const Group& g, std::uint64_t round, Bytes& out, Bytes& in) {
  const std::size_t bytes = kSizes[round % std::size(kSizes)];
  for (int step = 1; step < g.size; ++step) {
    const int to = (g.rank + step) % g.size;
    const int from = (g.rank + g.size - step) % g.size;
    fill({out.data(), bytes}, seed_of(u64(g.rank), u64(to), round));
    const int code = MPI_Sendrecv(out.data(), as_int(bytes), MPI_BYTE, to, 3, in.data(),
                                  as_int(bytes), MPI_BYTE, from, 3, g.comm, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
      require(is_loss(code), "exchange", "an error that is no lost process");
      return false;
    }
    verify({in.data(), bytes}, seed_of(u64(from), u64(g.rank), round),
           "survivors round " + std::to_string(round));
    s.sent(bytes);
  }
  return true;
}

// A small message from everybody to rank 0, which never sends: it has no way to them that MPI
// could have told it about. False: somebody was lost.
bool listen(Session& s, const Group& g, std::uint64_t round, Bytes& out, Bytes& in) {
  constexpr std::size_t kBytes = 8;
  for (int from = 1; from < g.size; ++from) {
    int code = MPI_SUCCESS;
    const std::uint64_t seed = seed_of(u64(from), 0, round);
    if (g.rank == from) {
      fill({out.data(), kBytes}, seed);
      code = MPI_Send(out.data(), kBytes, MPI_BYTE, 0, 4, g.comm);
      s.sent(kBytes);
      usleep(1000);
      int any = 0;  // a short MPI_Send alone lets MPI take in nothing
      if (code == MPI_SUCCESS) code = MPI_Iprobe(0, 4, g.comm, &any, MPI_STATUS_IGNORE);
    } else if (g.rank == 0) {
      code = MPI_Recv(in.data(), kBytes, MPI_BYTE, from, 4, g.comm, MPI_STATUS_IGNORE);
      if (code == MPI_SUCCESS) verify({in.data(), kBytes}, seed, "listen");
    }
    if (code == MPI_SUCCESS) continue;
    require(is_loss(code), "listen", "an error that is no lost process");
    return false;
  }
  return true;
}

void until_somebody_is_lost(Session& s, const Group& g, Bytes& out, Bytes& in) {
  const auto limit = Clock::now() + std::chrono::seconds(option(s, "--patience", 60));
  const auto one_round = flag(s, "--listen") ? listen : exchange;
  for (std::uint64_t round = 0; one_round(s, g, round, out, in); ++round) {
    tell_under_way(s, round);
    require(Clock::now() < limit, "survivors", "nobody was lost");
  }
}

MPI_Comm shrink(const Group& all) {
  MPIX_Comm_revoke(all.comm);
  MPI_Comm survivors = MPI_COMM_NULL;
  const int code = MPIX_Comm_shrink(all.comm, &survivors);
  require(code == MPI_SUCCESS, "MPIX_Comm_shrink", "failed");
  MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
  return survivors;
}

// All of them for so long, by agreement: nobody leaves a round that another has entered.
void go_on(Session& s, const Group& g, int seconds, Bytes& out, Bytes& in) {
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  int more = 1;
  for (std::uint64_t round = 0; more != 0; ++round) {
    require(exchange(s, g, round, out, in), "survivors", "another process was lost");
    const int mine = Clock::now() < end ? 1 : 0;
    MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, g.comm);
  }
}

int finish(const Group& g) {
  if (g.rank == 0) {
    std::printf("survivors %d\nmpi-test ok payload=0\n", g.size);
    std::fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Bytes out(300000);
  Bytes in(300000);
  const Group all(MPI_COMM_WORLD);
  until_somebody_is_lost(s, all, out, in);

  const Group survivors(shrink(all));
  if (2 * survivors.size <= all.size) {
    std::printf("rank %d is cut off and ends\n", all.rank);
    std::fflush(stdout);
    _exit(3);
  }
  require_eq(survivors.size, all.size - 1, "survivors");
  go_on(s, survivors, option(s, "--seconds", 3), out, in);
  return finish(survivors);
}
