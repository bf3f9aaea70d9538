// Every rank adds to a counter on every rank with MPI_Fetch_and_op; the counters must end at the
// exact sum and every value handed out must be unique: a replayed or lost atomic shows as a gap or
// a double.
#include <algorithm>

#include "mpi-tests/programs/check.h"

using namespace mpitest;

int main(int argc, char** argv) {
  Session s(argc, argv);
  const int adds = s.pick(500, 5000);
  std::int64_t counter = 0;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create(&counter, sizeof counter, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  std::vector<std::int64_t> tickets(uz(adds) * uz(s.size), -1);
  const std::int64_t one = 1;
  MPI_Win_lock_all(0, win);
  for (int i = 0; i < adds; ++i) {
    for (int owner = 0; owner < s.size; ++owner)
      MPI_Fetch_and_op(&one, &tickets[uz(owner) * uz(adds) + uz(i)], MPI_INT64_T, owner, 0, MPI_SUM,
                       win);
    if (i % 8 == 7) MPI_Win_flush_all(win);
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, s.rank, 0, win);
  require_eq(counter, std::int64_t{adds} * s.size, "fetch_sum/sum");
  MPI_Win_unlock(s.rank, win);
  for (int owner = 0; owner < s.size; ++owner) {
    std::vector<std::int64_t> all(s.rank == owner ? uz(adds) * uz(s.size) : 0);
    MPI_Gather(&tickets[uz(owner) * uz(adds)], adds, MPI_INT64_T, all.data(), adds, MPI_INT64_T,
               owner, MPI_COMM_WORLD);
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i)
      require_eq(all[i], static_cast<std::int64_t>(i), "fetch_sum/ticket");
  }
  MPI_Win_free(&win);
  return s.finish();
}
