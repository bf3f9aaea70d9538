// Put, then notify with a message, then reuse the buffer: after the flush the source belongs to the
// program again and the notification may not arrive before the data. The consumer answers and the
// slot is used again with new content.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {8, 100, 4096, 50000, 1000003};
constexpr std::size_t kLargest = 1000003;

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  const int rounds = s.pick(20, 200);
  Bytes memory(kLargest);
  Bytes source(kLargest);
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size()), 1, MPI_INFO_NULL,
                 MPI_COMM_WORLD, &win);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  for (int round = 0; round < rounds; ++round)
    for (const std::size_t size : kSizes) {
      fill({source.data(), size}, seed_of(u64(s.rank), size, u64(round)));
      MPI_Put(source.data(), as_int(size), MPI_BYTE, right, 0, as_int(size), MPI_BYTE, win);
      MPI_Win_flush(right, win);
      int note = round;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(&note, 1, MPI_INT, right, 1, MPI_COMM_WORLD, &request);
      std::memset(source.data(), 0xaa, size);  // reused at once
      int heard = -1;
      MPI_Recv(&heard, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      require_eq(heard, round, "put_notify/note");
      MPI_Win_sync(win);
      verify({memory.data(), size}, seed_of(u64(left), size, u64(round)),
             "put_notify round " + std::to_string(round) + " size " + std::to_string(size));
      s.sent(size);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Send(nullptr, 0, MPI_BYTE, left, 2, MPI_COMM_WORLD);  // slot free again
      MPI_Recv(nullptr, 0, MPI_BYTE, right, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
  return s.finish();
}
