// Communicators: dup, idup, split, split by type, create_group, inter-communicators (create,
// traffic, merge) and the isolation of contexts: equal tags on different communicators may not
// meet.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

// Moves one patterned message round the ring of `comm` and checks it.
void ring(Session& s, MPI_Comm comm, std::size_t bytes, std::uint64_t salt, const char* where) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  Bytes out(bytes);
  Bytes in(bytes);
  fill(out, seed_of(salt, u64(rank), bytes));
  const int left = (rank + size - 1) % size;
  MPI_Sendrecv(out.data(), as_int(bytes), MPI_BYTE, (rank + 1) % size, 1, in.data(), as_int(bytes),
               MPI_BYTE, left, 1, comm, MPI_STATUS_IGNORE);
  verify(in, seed_of(salt, u64(left), bytes), std::string("comms/") + where);
  if (size > 1) s.sent(bytes);
}

void contexts_do_not_mix(Session& s) {
  MPI_Comm first = MPI_COMM_NULL;
  MPI_Comm second = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &first);
  MPI_Comm_idup(MPI_COMM_WORLD, &second, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  int values[] = {1000 + s.rank, 2000 + s.rank};
  MPI_Request sends[2];
  MPI_Isend(&values[0], 1, MPI_INT, right, 7, first, &sends[0]);
  MPI_Isend(&values[1], 1, MPI_INT, right, 7, second, &sends[1]);
  int got = 0;
  MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, second, MPI_STATUS_IGNORE);
  require_eq(got, 2000 + left, "comms/contexts second");
  MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, first, MPI_STATUS_IGNORE);
  require_eq(got, 1000 + left, "comms/contexts first");
  MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
  ring(s, first, 100000, 1, "dup");
  MPI_Comm_free(&first);
  ring(s, second, 5000, 2, "idup after the first was freed");
  MPI_Comm_free(&second);
}

void splits(Session& s) {
  for (const int colours : {1, 2, 3}) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, s.rank % colours, -s.rank, &part);
    int rank = -1;
    int size = 0;
    MPI_Comm_rank(part, &rank);
    MPI_Comm_size(part, &size);
    int world = s.rank;
    std::vector<int> members(uz(size));
    MPI_Allgather(&world, 1, MPI_INT, members.data(), 1, MPI_INT, part);
    for (int i = 0; i < size; ++i) {
      require_eq(members[uz(i)] % colours, s.rank % colours, "comms/split colour");
      if (i > 0) require(members[uz(i - 1)] > members[uz(i)], "comms/split", "key order broken");
    }
    ring(s, part, 70000, u64(colours), "split");
    MPI_Comm_free(&part);
  }
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  ring(s, node, 3000, 9, "split_type");
  MPI_Comm_free(&node);
}

void groups(Session& s) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group most = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  const int excluded = 0;
  MPI_Group_excl(world, 1, &excluded, &most);
  if (s.rank != 0) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_create_group(MPI_COMM_WORLD, most, 3, &comm);
    ring(s, comm, 20000, 4, "create_group");
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&most);
  MPI_Group_free(&world);
}

void inter(Session& s) {
  MPI_Comm half = MPI_COMM_NULL;
  const bool low = s.rank < s.size / 2;
  MPI_Comm_split(MPI_COMM_WORLD, low ? 0 : 1, s.rank, &half);
  MPI_Comm bridge = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? s.size / 2 : 0, 5, &bridge);
  int remote = 0;
  int rank = 0;
  MPI_Comm_remote_size(bridge, &remote);
  MPI_Comm_rank(bridge, &rank);
  require_eq(remote, low ? s.size - s.size / 2 : s.size / 2, "comms/inter remote size");
  if (rank < std::min(s.size / 2, s.size - s.size / 2)) {
    Bytes out(50000);
    Bytes in(50000);
    fill(out, seed_of(6, u64(s.rank)));
    MPI_Sendrecv(out.data(), 50000, MPI_BYTE, rank, 6, in.data(), 50000, MPI_BYTE, rank, 6, bridge,
                 MPI_STATUS_IGNORE);
    verify(in, seed_of(6, u64(low ? s.size / 2 + rank : rank)), "comms/inter traffic");
    s.sent(50000);
  }
  int value = low ? 1 : 10;
  int sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, bridge);
  require_eq(sum, low ? 10 * remote : remote, "comms/inter allreduce");
  MPI_Comm merged = MPI_COMM_NULL;
  MPI_Intercomm_merge(bridge, low ? 1 : 0, &merged);
  ring(s, merged, 9000, 7, "merged");
  MPI_Comm_free(&merged);
  MPI_Comm_free(&bridge);
  MPI_Comm_free(&half);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  const int rounds = session.pick(3, 40);
  for (int i = 0; i < rounds; ++i) {
    contexts_do_not_mix(session);
    splits(session);
    groups(session);
    inter(session);
  }
  return session.finish();
}
