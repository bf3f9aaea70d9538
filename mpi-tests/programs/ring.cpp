// Verified ring traffic: a stream of messages whose sizes and contents follow from a hash that is
// chained through every message received, so one lost, doubled, reordered or altered message breaks
// the chain of every rank behind it. At the end each rank proves its chain against one it computes
// without communication.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kLargest = 1U << 20U;

std::size_t size_for(std::uint64_t chain) {
  switch (chain % 16) {
    case 0:
      return 0;
    case 1:
      return 1 + (chain >> 8U) % kLargest;
    case 2:
    case 3:
      return 1 + (chain >> 8U) % 70000;
    default:
      return 1 + (chain >> 8U) % 600;
  }
}

// The chain of the message that `rank` sends in `round`: the hash of what it was sent the round
// before.
std::uint64_t chain_of(int rank, int round, int size) {
  const int origin = (rank - round % size + size) % size;
  std::uint64_t chain = seed_of(u64(origin), 11);
  for (int i = 0; i < round; ++i) chain = mix(chain + u64(i));
  return chain;
}

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int rounds = s.pick(300, 3000);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  Bytes out(kLargest + 1);
  Bytes in(kLargest + 1);
  std::uint64_t chain = seed_of(u64(s.rank), 11);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t bytes = size_for(chain);
    fill({out.data(), bytes}, chain);
    std::uint64_t next = 0;
    MPI_Request requests[4];
    MPI_Irecv(&next, 1, MPI_UINT64_T, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in.data(), as_int(in.size()), MPI_BYTE, left, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&chain, 1, MPI_UINT64_T, right, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(out.data(), as_int(bytes), MPI_BYTE, right, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Status statuses[4];
    MPI_Waitall(4, requests, statuses);
    s.sent(bytes + 8);
    int count = -1;
    MPI_Get_count(&statuses[1], MPI_BYTE, &count);
    const std::string where = "ring round " + std::to_string(round);
    require_eq(next, chain_of(left, round, s.size), where + " chain");
    require_eq(uz(count), size_for(next), where + " size");
    verify({in.data(), uz(count)}, next, where);
    chain = mix(next + u64(round));
  }
  require_eq(chain, chain_of(s.rank, rounds, s.size), "ring end of chain");
  return s.finish();
}
