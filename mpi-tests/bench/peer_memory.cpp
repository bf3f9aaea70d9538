// What one more connected peer costs: rank 0 exchanges a few messages of every kind with one peer
// after the other and reads its own anonymous memory in between. Prints "peer-memory PEERS KIB"
// lines; used by peer_memory.py.
#include <fstream>
#include <string>

#include "mpi-tests/bench/osu_style.h"

namespace {

// Anonymous memory of this process in KiB, swapped-out pages included; files and shared memory (the
// device) are not in. From smaps: the totals in status are allowed to be behind.
long anonymous_kib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string line;
  long total = 0;
  while (std::getline(rollup, line))
    for (const char* key : {"Anonymous:", "Swap:"})
      if (line.starts_with(key)) total += std::atol(line.c_str() + std::strlen(key));
  return total;
}

void exchange(int peer, const bench::Buffer& buffer) {
  for (int round = 0; round < 20; ++round)
    for (const int bytes : {8, 2000, 20000})
      MPI_Sendrecv_replace(buffer.get(), bytes, MPI_BYTE, peer, 1, peer, 1, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  {
    const bench::Buffer buffer(65536);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) {
      exchange(0, buffer);
    } else {
      for (int peer = 1; peer < size; ++peer) {
        exchange(peer, buffer);
        std::printf("peer-memory %d %ld\n", peer, anonymous_kib());
      }
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
