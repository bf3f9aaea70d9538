// MPI_Finalize with the last message barely sent. The variant decides who says the last word and
// how; the receiver has to get all of it although the sender is already leaving. Run once per
// variant:
//   small | burst | large | late | allto0 | ssend | self | none
// And for a link that goes down meanwhile, between "lastword finalizing" and the appearance of
// FILE:
//   cut FILE (rank 0 says something after that, and finalizes) | parting FILE (nobody does)
#include <chrono>
#include <filesystem>
#include <thread>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

void say(int dst, std::size_t size, int count) {
  for (int i = 0; i < count; ++i) {
    Bytes out(size);
    fill(out, seed_of(u64(world_rank()), size, u64(i)));
    MPI_Send(out.data(), as_int(size), MPI_BYTE, dst, 1, MPI_COMM_WORLD);
  }
}

void hear(int src, std::size_t size, int count) {
  Bytes in(size);
  for (int i = 0; i < count; ++i) {
    MPI_Recv(in.data(), as_int(size), MPI_BYTE, src, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verify(in, seed_of(u64(src), size, u64(i)), "lastword message " + std::to_string(i));
  }
}

void nap(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Neighbours in a ring of one-way words: every rank but the last sends to the next one.
void chain(const Session& s, std::size_t size, int count, int receiver_delay_ms) {
  if (s.rank > 0) {
    nap(receiver_delay_ms);
    hear(s.rank - 1, size, count);
  }
  if (s.rank + 1 < s.size) say(s.rank + 1, size, count);
}

void all_to_first(const Session& s) {
  if (s.rank != 0) return say(0, 64, 50);
  nap(200);
  for (int src = s.size - 1; src > 0; --src) hear(src, 64, 50);
}

void synchronous(const Session& s) {
  std::int64_t word = s.rank;
  if (s.rank + 1 < s.size) MPI_Ssend(&word, 1, MPI_INT64_T, s.rank + 1, 1, MPI_COMM_WORLD);
  if (s.rank > 0) {
    MPI_Recv(&word, 1, MPI_INT64_T, s.rank - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    require_eq(word, s.rank - 1, "lastword/ssend");
  }
}

// Two ranks that know each other, and are about to finalize once the file is there.
void await_the_end(const Session& s) {
  require(s.args.size() == 2, "lastword", "which file?");
  for (int step = 0; step < 2; ++step) {
    if (s.rank == step) say(1 - step, 300, 20);
    if (s.rank == 1 - step) hear(step, 300, 20);
  }
  if (s.rank == 0) {
    std::printf("lastword finalizing\n");
    std::fflush(stdout);
  }
  while (!std::filesystem::exists(s.args[1])) nap(50);
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const std::string variant = s.args.empty() ? "small" : s.args.front();
  if (variant == "small")
    chain(s, 8, 1, 0);
  else if (variant == "burst")
    chain(s, 2000, 200, 50);
  else if (variant == "large")
    chain(s, 3000000, 2, 0);
  else if (variant == "late")
    chain(s, 4000, 20, 500);
  else if (variant == "allto0")
    all_to_first(s);
  else if (variant == "ssend")
    synchronous(s);
  else if (variant == "self")
    say(s.rank, 8, 1), hear(s.rank, 8, 1);
  else if (variant == "cut")
    await_the_end(s), chain(s, 2000, 20, 0);
  else if (variant == "parting")
    await_the_end(s);
  else
    require(variant == "none", "lastword", "unknown variant");
  // No closing reduction here: it would be the last word. Only the receiver of the last one speaks.
  if (s.rank == s.size - 1) std::printf("mpi-test ok payload=0\n");
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
