// Two-way traffic between every pair in turn, 0 B to 64 MiB, every byte checked both ways, odd
// alignments, and all sizes next to the limits at which the transport changes its protocol.
#include "mpi-tests/programs/check.h"
#include "mpi-tests/programs/limits.h"

namespace {

using namespace mpitest;

struct Pair {
  int ping;
  int pong;
};

// Round robin tournament: in each round every rank has at most one partner, so pairs run side by
// side.
std::vector<Pair> pairs_of_round(int round, int size) {
  const int seats = size + size % 2;
  std::vector<Pair> pairs;
  auto seat = [&](int i) { return i == 0 ? 0 : 1 + (i - 1 + round) % (seats - 1); };
  for (int i = 0; i < seats / 2; ++i) {
    const int a = seat(i);
    const int b = seat(seats - 1 - i);
    if (a < size && b < size) pairs.push_back(a < b ? Pair{a, b} : Pair{b, a});
  }
  return pairs;
}

void bounce(Session& session, const Pair& pair, std::size_t size, int turn) {
  const bool first = session.rank == pair.ping;
  const int peer = first ? pair.pong : pair.ping;
  const std::string where = "pingpong " + std::to_string(pair.ping) + "<->" +
                            std::to_string(pair.pong) + " size " + std::to_string(size);
  const std::size_t misalign = (size + uz(turn)) % 8;
  Guarded out(size, misalign);
  Guarded in(size, 7 - misalign);
  in.clear();
  fill(out.bytes(), seed_of(size, u64(session.rank), u64(turn)));
  MPI_Status status;
  auto send = [&] { MPI_Send(out.data(), as_int(size), MPI_BYTE, peer, turn, MPI_COMM_WORLD); };
  auto recv = [&] {
    MPI_Recv(in.data(), as_int(size), MPI_BYTE, peer, turn, MPI_COMM_WORLD, &status);
  };
  if (first) send();
  recv();
  if (!first) send();
  session.sent(size);
  int count = -1;
  MPI_Get_count(&status, MPI_BYTE, &count);
  require_eq(count, as_int(size), where + " count");
  verify(in.bytes(), seed_of(size, u64(peer), u64(turn)), where);
  in.check_canaries(where);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  const std::size_t top = session.pick<std::size_t>(4U << 20U, 64U << 20U);
  std::vector<std::size_t> sizes = edge_sizes("mend", top);
  for (std::size_t s = 0; s <= 72; ++s) sizes.push_back(s);
  for (std::size_t s = 128; s <= top; s *= 2) {
    sizes.push_back(s);
    if (s < top && !session.quick) sizes.push_back(s + s / 3 + 1);
  }
  const int seats = session.size + session.size % 2;
  const int rounds = session.quick && session.size > 4 ? 2 : seats - 1;
  for (int round = 0; round < rounds; ++round)
    for (const Pair& pair : pairs_of_round(round, session.size))
      if (session.rank == pair.ping || session.rank == pair.pong)
        for (const std::size_t size : sizes)
          for (int turn = 0; turn < (size <= session.pick<std::size_t>(2048, 65536) ? 3 : 1);
               ++turn)
            bounce(session, pair, size, turn);
  return session.finish();
}
