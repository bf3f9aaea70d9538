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

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int batch = std::atoi(argv[1]);
  const int rounds = std::atoi(argv[2]);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  Turn turn(argv[3]);
  std::uint64_t word = 0;
  const auto total = static_cast<std::uint64_t>(rounds);
  for (std::uint64_t i = 0; i < total; ++i) {
    const std::uint64_t my_turn = 2 * i + static_cast<std::uint64_t>(rank);
    turn.wait_for(my_turn);
    if (i > 0 || rank == 1)
      for (int m = 0; m < batch; ++m)
        MPI_Recv(&word, 8, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int m = 0; m < batch; ++m) MPI_Send(&word, 8, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
    turn.pass();
  }
  if (rank == 0)
    for (int m = 0; m < batch; ++m)
      MPI_Recv(&word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
