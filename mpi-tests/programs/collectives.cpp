// Every collective of MPI-3 that moves data one to all, all to one or all to all, blocking and
// non-blocking, at odd counts and every root that matters, against a reference computed locally.
// The reductions and scans are in reductions.cpp.
#include "mpi-tests/programs/collectives.h"

namespace {

using namespace mpitest;

const MPI_Datatype kType = MPI_INT64_T;

struct Shape {
  int rank;
  int size;
  std::size_t n;  // elements per rank
  std::string at(const char* name) const {
    return std::string("collectives/") + name + " n=" + std::to_string(n);
  }
};

// Counts that differ from rank to rank, zero among them.
std::vector<int> ragged(const Shape& s, int salt) {
  std::vector<int> counts(uz(s.size), 0);
  for (int r = 0; r < s.size; ++r)
    if ((r + salt) % 3 != 0) counts[uz(r)] = as_int(s.n) + r;
  return counts;
}

std::vector<int> offsets(const std::vector<int>& counts) {
  std::vector<int> out(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, out.begin() + 1);
  return out;
}

std::size_t total(const std::vector<int>& counts) {
  return uz(std::accumulate(counts.begin(), counts.end(), 0));
}

void append(Ints& out, const Ints& more) { out.insert(out.end(), more.begin(), more.end()); }

void barrier_and_bcast(const Shape& s, int root) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  const Ints before = s.rank == root ? inputs(root, s.n) : Ints(s.n, -1);
  both_ways(s.at("bcast"), before, inputs(root, s.n), [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Bcast(out.data(), as_int(s.n), kType, root, MPI_COMM_WORLD);
    else
      MPI_Ibcast(out.data(), as_int(s.n), kType, root, MPI_COMM_WORLD, r);
  });
}

void gather_scatter(const Shape& s, int root) {
  Ints all;
  for (int r = 0; r < s.size; ++r) append(all, inputs(r, s.n));
  const Ints mine = inputs(s.rank, s.n);
  const int n = as_int(s.n);
  const Ints empty(s.rank == root ? all.size() : 0, -1);
  both_ways(s.at("gather"), empty, s.rank == root ? all : Ints{}, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Gather(mine.data(), n, kType, out.data(), n, kType, root, MPI_COMM_WORLD);
    else
      MPI_Igather(mine.data(), n, kType, out.data(), n, kType, root, MPI_COMM_WORLD, r);
  });
  both_ways(s.at("scatter"), Ints(s.n, -1), mine, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Scatter(all.data(), n, kType, out.data(), n, kType, root, MPI_COMM_WORLD);
    else
      MPI_Iscatter(all.data(), n, kType, out.data(), n, kType, root, MPI_COMM_WORLD, r);
  });
  both_ways(s.at("allgather"), Ints(all.size(), -1), all, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Allgather(mine.data(), n, kType, out.data(), n, kType, MPI_COMM_WORLD);
    else
      MPI_Iallgather(mine.data(), n, kType, out.data(), n, kType, MPI_COMM_WORLD, r);
  });
}

void ragged_gather_scatter(const Shape& s, int root) {
  const std::vector<int> counts = ragged(s, root);
  const std::vector<int> at = offsets(counts);
  Ints all;
  for (int r = 0; r < s.size; ++r) append(all, inputs(r, uz(counts[uz(r)])));
  const int n = counts[uz(s.rank)];
  const Ints mine = inputs(s.rank, uz(n));
  const Ints empty(s.rank == root ? all.size() : 0, -1);
  both_ways(s.at("gatherv"), empty, s.rank == root ? all : Ints{}, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Gatherv(mine.data(), n, kType, out.data(), counts.data(), at.data(), kType, root,
                  MPI_COMM_WORLD);
    else
      MPI_Igatherv(mine.data(), n, kType, out.data(), counts.data(), at.data(), kType, root,
                   MPI_COMM_WORLD, r);
  });
  both_ways(s.at("scatterv"), Ints(uz(n), -1), mine, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Scatterv(all.data(), counts.data(), at.data(), kType, out.data(), n, kType, root,
                   MPI_COMM_WORLD);
    else
      MPI_Iscatterv(all.data(), counts.data(), at.data(), kType, out.data(), n, kType, root,
                    MPI_COMM_WORLD, r);
  });
  both_ways(s.at("allgatherv"), Ints(all.size(), -1), all, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Allgatherv(mine.data(), n, kType, out.data(), counts.data(), at.data(), kType,
                     MPI_COMM_WORLD);
    else
      MPI_Iallgatherv(mine.data(), n, kType, out.data(), counts.data(), at.data(), kType,
                      MPI_COMM_WORLD, r);
  });
}

void all_to_all(const Shape& s) {
  const int n = as_int(s.n);
  const Ints out_data = inputs(s.rank, s.n * uz(s.size));
  Ints want;
  for (int r = 0; r < s.size; ++r) append(want, inputs(r, s.n, uz(s.rank) * s.n));
  both_ways(s.at("alltoall"), Ints(want.size(), -1), want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Alltoall(out_data.data(), n, kType, out.data(), n, kType, MPI_COMM_WORLD);
    else
      MPI_Ialltoall(out_data.data(), n, kType, out.data(), n, kType, MPI_COMM_WORLD, r);
  });
}

// How many elements rank a sends to rank b.
int pair_count(const Shape& s, int a, int b) {
  return (a + 2 * b) % 4 == 0 ? 0 : as_int(s.n) + a - b + s.size;
}

void ragged_all_to_all(const Shape& s) {
  std::vector<int> send;
  std::vector<int> recv;
  Ints want;
  for (int r = 0; r < s.size; ++r) {
    send.push_back(pair_count(s, s.rank, r));
    recv.push_back(pair_count(s, r, s.rank));
    std::size_t skip = 0;
    for (int b = 0; b < s.rank; ++b) skip += uz(pair_count(s, r, b));
    append(want, inputs(r, uz(recv.back()), skip));
  }
  const std::vector<int> sat = offsets(send);
  const std::vector<int> rat = offsets(recv);
  const Ints data = inputs(s.rank, total(send));
  both_ways(s.at("alltoallv"), Ints(want.size(), -1), want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Alltoallv(data.data(), send.data(), sat.data(), kType, out.data(), recv.data(),
                    rat.data(), kType, MPI_COMM_WORLD);
    else
      MPI_Ialltoallv(data.data(), send.data(), sat.data(), kType, out.data(), recv.data(),
                     rat.data(), kType, MPI_COMM_WORLD, r);
  });
  std::vector<int> sbytes = sat;
  std::vector<int> rbytes = rat;
  for (int& x : sbytes) x *= 8;
  for (int& x : rbytes) x *= 8;
  const std::vector<MPI_Datatype> types(uz(s.size), kType);
  both_ways(s.at("alltoallw"), Ints(want.size(), -1), want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Alltoallw(data.data(), send.data(), sbytes.data(), types.data(), out.data(), recv.data(),
                    rbytes.data(), types.data(), MPI_COMM_WORLD);
    else
      MPI_Ialltoallw(data.data(), send.data(), sbytes.data(), types.data(), out.data(), recv.data(),
                     rbytes.data(), types.data(), MPI_COMM_WORLD, r);
  });
}

// Neighbourhood collectives on a periodic ring: left and right neighbour.
void neighbours(const Shape& s) {
  MPI_Comm ring = MPI_COMM_NULL;
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &s.size, &periodic, 0, &ring);
  const int left = (s.rank + s.size - 1) % s.size;
  const int right = (s.rank + 1) % s.size;
  const int n = as_int(s.n);
  const Ints mine = inputs(s.rank, s.n);
  Ints want = inputs(left, s.n);
  append(want, inputs(right, s.n));
  both_ways(s.at("neighbor_allgather"), Ints(want.size(), -1), want,
            [&](Ints& out, MPI_Request* r) {
              if (r == nullptr)
                MPI_Neighbor_allgather(mine.data(), n, kType, out.data(), n, kType, ring);
              else
                MPI_Ineighbor_allgather(mine.data(), n, kType, out.data(), n, kType, ring, r);
            });
  MPI_Comm_free(&ring);
}

void count_payload(Session& session, std::size_t n) {
  // The least any algorithm must move for one allgather, twice (blocking and not).
  session.sent(2 * n * 8);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  std::vector<std::size_t> counts = {1, 3, 17, 129, 1021};
  counts.push_back(session.pick<std::size_t>(8191, 131071));
  for (const std::size_t n : counts) {
    const Shape shape{session.rank, session.size, n};
    for (const int root : {0, session.size - 1}) {
      barrier_and_bcast(shape, root);
      gather_scatter(shape, root);
      ragged_gather_scatter(shape, root);
    }
    all_to_all(shape);
    ragged_all_to_all(shape);
    neighbours(shape);
    count_payload(session, n);
  }
  return session.finish();
}
