// Reductions and scans, blocking and non-blocking, with a commutative operation (sum), one with
// position (maxloc), a user's non-commutative one (composition of affine maps: a swapped pair of
// ranks changes the result), in place and at odd counts, against references computed locally from
// the known inputs of all ranks.
#include <algorithm>

#include "mpi-tests/programs/collectives.h"

namespace {

using namespace mpitest;

struct Op {
  const char* name;
  MPI_Op op;
  MPI_Datatype type;
  std::size_t width;                                      // int64 per element
  Ints (*reference)(int first, int last, std::size_t n);  // reduction over ranks first..last
};

Ints summed(int first, int last, std::size_t n) {
  Ints acc(n, 0);
  for (int r = first; r <= last; ++r)
    for (std::size_t i = 0; i < n; ++i) acc[i] += input(r, i);
  return acc;
}

struct Shape {
  int rank;
  int size;
  std::size_t n;
};

std::string at(const Op& op, const char* what, const Shape& s) {
  return std::string("reductions/") + what + " " + op.name + " n=" + std::to_string(s.n);
}

Ints slice(const Ints& all, std::size_t from, std::size_t n) {
  return {all.begin() + static_cast<std::ptrdiff_t>(from),
          all.begin() + static_cast<std::ptrdiff_t>(from + n)};
}

void reduce(const Op& op, const Shape& s, int root) {
  const Ints mine = inputs(s.rank, s.n * op.width);
  const Ints want = op.reference(0, s.size - 1, s.n);
  const int n = as_int(s.n);
  const Ints nothing(s.rank == root ? want.size() : 0, -1);
  both_ways(at(op, "reduce", s), nothing, s.rank == root ? want : Ints{},
            [&](Ints& out, MPI_Request* r) {
              if (r == nullptr)
                MPI_Reduce(mine.data(), out.data(), n, op.type, op.op, root, MPI_COMM_WORLD);
              else
                MPI_Ireduce(mine.data(), out.data(), n, op.type, op.op, root, MPI_COMM_WORLD, r);
            });
  both_ways(at(op, "allreduce", s), Ints(want.size(), -1), want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Allreduce(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD);
    else
      MPI_Iallreduce(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD, r);
  });
  both_ways(at(op, "allreduce in place", s), mine, want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Allreduce(MPI_IN_PLACE, out.data(), n, op.type, op.op, MPI_COMM_WORLD);
    else
      MPI_Iallreduce(MPI_IN_PLACE, out.data(), n, op.type, op.op, MPI_COMM_WORLD, r);
  });
}

void scans(const Op& op, const Shape& s) {
  const Ints mine = inputs(s.rank, s.n * op.width);
  const int n = as_int(s.n);
  both_ways(at(op, "scan", s), Ints(mine.size(), -1), op.reference(0, s.rank, s.n),
            [&](Ints& out, MPI_Request* r) {
              if (r == nullptr)
                MPI_Scan(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD);
              else
                MPI_Iscan(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD, r);
            });
  const Ints before(
      mine.size(),
      -1);  // rank 0's result is undefined: it must stay what MPI leaves, not be compared
  const Ints want = s.rank == 0 ? before : op.reference(0, s.rank - 1, s.n);
  both_ways(at(op, "exscan", s), before, want, [&](Ints& out, MPI_Request* r) {
    if (r == nullptr)
      MPI_Exscan(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD);
    else
      MPI_Iexscan(mine.data(), out.data(), n, op.type, op.op, MPI_COMM_WORLD, r);
    if (s.rank == 0) {
      if (r != nullptr) MPI_Wait(r, MPI_STATUS_IGNORE);
      out = before;
    }
  });
}

// The result is cut into pieces, equal ones for reduce_scatter_block and ragged ones (zero among
// them) otherwise.
void reduce_scatter(const Op& op, const Shape& s) {
  const std::size_t all = s.n * uz(s.size);
  const Ints mine = inputs(s.rank, all * op.width);
  const Ints want = op.reference(0, s.size - 1, all);
  const std::size_t piece = s.n * op.width;
  both_ways(at(op, "reduce_scatter_block", s), Ints(piece, -1),
            slice(want, uz(s.rank) * piece, piece), [&](Ints& out, MPI_Request* r) {
              if (r == nullptr)
                MPI_Reduce_scatter_block(mine.data(), out.data(), as_int(s.n), op.type, op.op,
                                         MPI_COMM_WORLD);
              else
                MPI_Ireduce_scatter_block(mine.data(), out.data(), as_int(s.n), op.type, op.op,
                                          MPI_COMM_WORLD, r);
            });
  std::vector<int> counts(uz(s.size), 0);
  std::size_t left = all;
  for (int r = 0; r + 1 < s.size; ++r) {
    counts[uz(r)] = r % 2 == 0 ? 0 : as_int(std::min(left, s.n + left % 3));
    left -= uz(counts[uz(r)]);
  }
  counts.back() = as_int(left);
  std::size_t from = 0;
  for (int r = 0; r < s.rank; ++r) from += uz(counts[uz(r)]) * op.width;
  const std::size_t mine_n = uz(counts[uz(s.rank)]) * op.width;
  both_ways(at(op, "reduce_scatter", s), Ints(mine_n, -1), slice(want, from, mine_n),
            [&](Ints& out, MPI_Request* r) {
              if (r == nullptr)
                MPI_Reduce_scatter(mine.data(), out.data(), counts.data(), op.type, op.op,
                                   MPI_COMM_WORLD);
              else
                MPI_Ireduce_scatter(mine.data(), out.data(), counts.data(), op.type, op.op,
                                    MPI_COMM_WORLD, r);
            });
}

void maxloc(const Shape& s) {
  struct Pair {
    double value;
    int rank;
  };
  auto value = [](int rank, std::size_t i) { return static_cast<double>(input(rank, i) % 11); };
  std::vector<Pair> mine(s.n);
  for (std::size_t i = 0; i < s.n; ++i) mine[i] = {value(s.rank, i), s.rank};
  std::vector<Pair> out(s.n, Pair{-1.0, -1});
  MPI_Allreduce(mine.data(), out.data(), as_int(s.n), MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < s.n; ++i) {
    int best = 0;
    for (int r = 1; r < s.size; ++r)
      if (value(r, i) > value(best, i)) best = r;
    require_eq(out[i].rank, best, "reductions/maxloc rank");
    require(out[i].value == value(best, i), "reductions/maxloc", "wrong value");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  MPI_Datatype map = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT64_T, &map);
  MPI_Type_commit(&map);
  MPI_Op composition = MPI_OP_NULL;
  MPI_Op_create(compose, 0, &composition);
  const Op ops[] = {{"sum", MPI_SUM, MPI_INT64_T, 1, summed},
                    {"non-commutative", composition, map, 2, composed}};
  for (const std::size_t n : {std::size_t{1}, std::size_t{3}, std::size_t{17}, std::size_t{1021},
                              session.pick<std::size_t>(8191, 65537)}) {
    const Shape shape{session.rank, session.size, n};
    for (const Op& op : ops) {
      for (const int root : {0, session.size - 1}) reduce(op, shape, root);
      scans(op, shape);
      reduce_scatter(op, shape);
    }
    maxloc(shape);
    session.sent(2 * n * 8);
  }
  MPI_Op_free(&composition);
  MPI_Type_free(&map);
  return session.finish();
}
