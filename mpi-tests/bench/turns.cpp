// Two ranks take turns in sending a batch of 8-byte messages, and a rank enters MPI only when its
// batch has arrived: the turn is passed through a shared file, outside MPI. So no instruction is
// spent on waiting, and what callgrind counts per batch is what sending and receiving cost. Used by
// instructions.py.
//   turns BATCH ROUNDS FILE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "mpi-tests/bench/osu_style.h"

namespace {

class Turn {
 public:
  explicit Turn(const char* path) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    void* base = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    word_ = static_cast<std::uint64_t*>(base);
  }
  void pass() { std::atomic_ref(*word_).fetch_add(1); }
  void wait_for(std::uint64_t value) {
    while (std::atomic_ref(*word_).load() < value) usleep(50);
  }

 private:
  std::uint64_t* word_;
};

void one_turn(int batch, int peer, bool receive) {
  std::uint64_t word = 0;
  for (int m = 0; receive && m < batch; ++m)
    MPI_Recv(&word, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int m = 0; m < batch; ++m) MPI_Send(&word, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

}  // namespace

// callgrind counts while this function runs (--toggle-collect) and at no other time.
extern "C" __attribute__((noinline, visibility("default"))) void measured_turn(int batch,
                                                                               int peer) {
  one_turn(batch, peer, true);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int batch = std::atoi(argv[1]);
  const int rounds = std::atoi(argv[2]);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  Turn turn(argv[3]);
  // The first turns connect, fill pools and caches; then `rounds` turns are measured in each rank.
  constexpr int kWarmup = 30;
  for (int i = 0; i < kWarmup + rounds; ++i) {
    turn.wait_for(2 * static_cast<std::uint64_t>(i) + static_cast<std::uint64_t>(rank));
    if (i < kWarmup)
      one_turn(batch, 1 - rank, i > 0 || rank == 1);
    else
      measured_turn(batch, 1 - rank);
    turn.pass();
  }
  std::uint64_t word = 0;
  for (int m = 0; rank == 0 && m < batch; ++m)
    MPI_Recv(&word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
