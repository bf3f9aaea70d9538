// MPI_THREAD_MULTIPLE with four threads per rank, all inside MPI at once: ring traffic of every
// size class on a communicator per thread and on one that all threads share (told apart by tags),
// any-source receives, and collectives in two threads at the same time.
#include <thread>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr int kThreads = 4;
constexpr std::size_t kSizes[] = {0, 8, 200, 4096, 30000, 140000, 600000};

struct Worker {
  Session& session;
  int id;
  MPI_Comm own;
  MPI_Comm shared;
};

std::string at(const Worker& w, const char* what, int round) {
  return std::string("threads/") + what + " thread " + std::to_string(w.id) + " round " +
         std::to_string(round);
}

void ring_step(const Worker& w, MPI_Comm comm, int tag, std::size_t size, int round,
               bool any_source) {
  Session& s = w.session;
  const int left = (s.rank + s.size - 1) % s.size;
  Bytes out(size);
  Bytes in(size);
  fill(out, seed_of(u64(w.id), u64(s.rank), u64(round)));
  MPI_Request requests[2];
  MPI_Irecv(in.data(), as_int(size), MPI_BYTE, any_source ? MPI_ANY_SOURCE : left, tag, comm,
            &requests[0]);
  MPI_Isend(out.data(), as_int(size), MPI_BYTE, (s.rank + 1) % s.size, tag, comm, &requests[1]);
  if (round % 2 == 0) {
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  } else {
    for (int done = 0; done == 0;) MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
  }
  verify(in, seed_of(u64(w.id), u64(left), u64(round)), at(w, "ring", round));
  s.sent(size);
}

void work(const Worker& w) {
  const int rounds = w.session.pick(40, 800);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t size = kSizes[uz(round + w.id) % std::size(kSizes)];
    ring_step(w, w.own, 1, size, round, true);
    ring_step(w, w.shared, 10 + w.id, size, round, false);
    if (w.id >= 2 && round % 4 == 0) {
      std::int64_t value = w.session.rank + w.id;
      std::int64_t sum = 0;
      MPI_Allreduce(&value, &sum, 1, MPI_INT64_T, MPI_SUM, w.own);
      const std::int64_t n = w.session.size;
      require_eq(sum, n * (n - 1) / 2 + n * w.id, at(w, "allreduce", round));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv, MPI_THREAD_MULTIPLE);
  MPI_Comm own[kThreads];
  MPI_Comm shared = MPI_COMM_NULL;
  for (MPI_Comm& comm : own) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &shared);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&session, i, &own, shared] {
        work(Worker{session, i, own[i], shared});
      });
  }
  MPI_Comm_free(&shared);
  for (MPI_Comm& comm : own) MPI_Comm_free(&comm);
  return session.finish();
}
