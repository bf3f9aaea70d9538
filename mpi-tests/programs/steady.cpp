// Verified traffic for a given time (--seconds N, default 5): every rank exchanges messages of
// mixed sizes with every other, byte for byte checked, and adds to a counter on rank 0 with
// MPI_Fetch_and_op, whose sum must come out exactly. What a test of broken links runs underneath.
// --until FILE: rank 0 ends it earlier, a second after this file has appeared.
// --messages: nothing one-sided, for transports without it.
// --stalls MS: rank 0 prints every round that took longer, "stall BEGIN END" in seconds of
// CLOCK_MONOTONIC, so that whoever broke the link can tell what each break cost.
// Rank 0 prints "under way" after the first rounds.
#include <chrono>
#include <string>

#include "mpi-tests/programs/check.h"
#include "mpi-tests/programs/curfew.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {8, 300, 5000, 40000, 300000};

double clock_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Remembers when the last round ended, and tells of a round that took too long.
class StallWatch {
 public:
  explicit StallWatch(int limit_ms) : limit_(limit_ms / 1e3) {}
  void round_done() {
    const double now = clock_now();
    if (limit_ > 0 && now - last_ > limit_) std::printf("stall %.6f %.6f\n", last_, now);
    last_ = now;
  }

 private:
  double limit_;
  double last_ = clock_now();
};

void exchange(Session& s, int peer, std::uint64_t round, Bytes& out, Bytes& in) {
  const std::size_t bytes = kSizes[round % std::size(kSizes)];
  fill({out.data(), bytes}, seed_of(u64(s.rank), u64(peer), round));
  MPI_Sendrecv(out.data(), as_int(bytes), MPI_BYTE, peer, 3, in.data(), as_int(bytes), MPI_BYTE,
               peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  verify({in.data(), bytes}, seed_of(u64(peer), u64(s.rank), round),
         "steady round " + std::to_string(round));
  s.sent(bytes);
}

// A counter on rank 0 to which every rank adds one in each round. Without one-sided operations it
// does nothing.
class Counter {
 public:
  Counter(const Session& s, bool wanted) : session_(s) {
    if (wanted)
      MPI_Win_create(&value_, s.rank == 0 ? sizeof value_ : 0, sizeof value_, MPI_INFO_NULL,
                     MPI_COMM_WORLD, &window_);
  }
  void add_one() {
    if (window_ == MPI_WIN_NULL) return;
    const std::uint64_t one = 1;
    std::uint64_t before = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window_);
    MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, 0, MPI_SUM, window_);
    MPI_Win_unlock(0, window_);
  }
  void check(std::uint64_t rounds) {
    if (window_ == MPI_WIN_NULL) return;
    MPI_Win_free(&window_);
    if (session_.rank == 0) require_eq(value_, rounds * u64(session_.size), "fetch-and-add sum");
  }

 private:
  const Session& session_;
  std::uint64_t value_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  Bytes out(300000);
  Bytes in(300000);
  Counter counter(s, !flag(s, "--messages"));
  Curfew curfew(option(s, "--seconds", 5), s.rank == 0 ? text_option(s, "--until") : "");
  StallWatch stalls(s.rank == 0 ? option(s, "--stalls", 0) : 0);
  std::uint64_t rounds = 0;
  for (int go = 1; go != 0; ++rounds) {
    for (int step = 1; step < s.size; ++step) {
      // Pairs meet in the same round: the one whose rank, exclusive-ored with the step, is the
      // other.
      const int peer = s.rank ^ step;
      if (peer < s.size) exchange(s, peer, rounds, out, in);
    }
    counter.add_one();
    go = curfew.over() ? 0 : 1;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    tell_under_way(s, rounds);
    stalls.round_done();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  counter.check(rounds);
  return s.finish();
}
