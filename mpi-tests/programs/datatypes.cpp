// Derived datatypes: vector, hvector, indexed, hindexed, struct, resized, subarray, contiguous of
// vector and negative strides. The reference is MPI-free: the elements are collected and spread by
// plain loops from a list of (offset, length) pieces. Sent typed and received packed, packed and
// received typed, and typed both ways; bytes between the pieces must stay untouched.
#include <algorithm>
#include <functional>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

struct Piece {
  std::size_t offset;
  std::size_t length;
};

// One type with `count` elements, laid out inside a memory of `span` bytes whose address `origin`
// is given to MPI.
struct Layout {
  std::string name;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int count = 1;
  std::size_t span = 0;
  std::size_t origin = 0;
  std::vector<Piece> pieces;
};

void add_pieces(Layout& layout, std::size_t base, std::size_t step, std::size_t length, int n) {
  for (int i = 0; i < n; ++i) layout.pieces.push_back({base + uz(i) * step, length});
}

Layout vector_of(int blocks, int length, int stride) {
  Layout l;
  l.name = "vector " + std::to_string(blocks) + "x" + std::to_string(length);
  MPI_Type_vector(blocks, length, stride, MPI_DOUBLE, &l.type);
  add_pieces(l, 0, uz(stride) * 8, uz(length) * 8, blocks);
  l.span = uz(blocks) * uz(stride) * 8;
  return l;
}

Layout backwards(int blocks) {
  Layout l;
  l.name = "hvector backwards";
  MPI_Type_create_hvector(blocks, 3, -40, MPI_INT, &l.type);
  l.span = uz(blocks) * 40;
  l.origin = uz(blocks - 1) * 40;
  for (int i = 0; i < blocks; ++i) l.pieces.push_back({l.origin - uz(i) * 40, 12});
  return l;
}

Layout indexed(int blocks) {
  Layout l;
  l.name = "indexed";
  std::vector<int> lengths;
  std::vector<int> offsets;
  int next = 1;
  for (int i = 0; i < blocks; ++i) {
    lengths.push_back(1 + i % 5);
    offsets.push_back(next);
    l.pieces.push_back({uz(next) * 4, uz(lengths.back()) * 4});
    next += lengths.back() + 1 + i % 3;
  }
  MPI_Type_indexed(blocks, lengths.data(), offsets.data(), MPI_INT, &l.type);
  l.span = uz(next) * 4;
  return l;
}

Layout hindexed_descending(int blocks) {
  Layout l;
  l.name = "hindexed descending";
  std::vector<int> lengths(uz(blocks), 7);
  std::vector<MPI_Aint> offsets;
  for (int i = 0; i < blocks; ++i) {
    offsets.push_back(MPI_Aint{13} * (blocks - 1 - i));
    l.pieces.push_back({uz(13 * (blocks - 1 - i)), 7});
  }
  MPI_Type_create_hindexed(blocks, lengths.data(), offsets.data(), MPI_CHAR, &l.type);
  l.span = uz(blocks) * 13;
  return l;
}

struct Record {
  char tag;
  double value;
  short parts[3];
  int id;
};

Layout records(int count) {
  Layout l;
  l.name = "struct resized";
  int lengths[] = {1, 1, 3, 1};
  MPI_Aint offsets[] = {offsetof(Record, tag), offsetof(Record, value), offsetof(Record, parts),
                        offsetof(Record, id)};
  MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT};
  MPI_Datatype bare = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(4, lengths, offsets, types, &bare);
  MPI_Type_create_resized(bare, 0, sizeof(Record), &l.type);
  MPI_Type_free(&bare);
  l.count = count;
  l.span = uz(count) * sizeof(Record);
  for (int i = 0; i < count; ++i) {
    const std::size_t base = uz(i) * sizeof(Record);
    l.pieces.push_back({base + offsetof(Record, tag), 1});
    l.pieces.push_back({base + offsetof(Record, value), 8});
    l.pieces.push_back({base + offsetof(Record, parts), 6});
    l.pieces.push_back({base + offsetof(Record, id), 4});
  }
  return l;
}

Layout subarray(int n) {
  Layout l;
  l.name = "subarray " + std::to_string(n);
  int sizes[] = {n, n + 1, n + 2};
  int subsizes[] = {n / 2, n / 2 + 1, n - 1};
  int starts[] = {n / 4, 1, 2};
  MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_FLOAT, &l.type);
  l.span = uz(n) * uz(n + 1) * uz(n + 2) * 4;
  for (int i = 0; i < subsizes[0]; ++i)
    for (int j = 0; j < subsizes[1]; ++j)
      l.pieces.push_back(
          {uz(((starts[0] + i) * sizes[1] + starts[1] + j) * sizes[2] + starts[2]) * 4,
           uz(subsizes[2]) * 4});
  return l;
}

Layout nested(int outer) {
  Layout l;
  l.name = "contiguous of vector";
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  MPI_Datatype wide = MPI_DATATYPE_NULL;
  MPI_Type_vector(4, 2, 3, MPI_SHORT, &inner);
  MPI_Type_create_resized(inner, 0, 32, &wide);
  MPI_Type_contiguous(outer, wide, &l.type);
  MPI_Type_free(&inner);
  MPI_Type_free(&wide);
  l.span = uz(outer) * 32;
  for (int i = 0; i < outer; ++i) add_pieces(l, uz(i) * 32, 6, 4, 4);
  return l;
}

Bytes packed(const Layout& layout, const Bytes& memory) {
  Bytes flat;
  for (const Piece& piece : layout.pieces)
    flat.insert(flat.end(), memory.begin() + static_cast<std::ptrdiff_t>(piece.offset),
                memory.begin() + static_cast<std::ptrdiff_t>(piece.offset + piece.length));
  return flat;
}

// What the receiver's memory must hold: the pieces replaced, everything else as it was.
Bytes spread(const Layout& layout, const Bytes& flat, Bytes memory) {
  std::size_t at = 0;
  for (const Piece& piece : layout.pieces) {
    std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(at), piece.length,
                memory.begin() + static_cast<std::ptrdiff_t>(piece.offset));
    at += piece.length;
  }
  return memory;
}

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  fill(bytes, seed);
  return bytes;
}

void exchange(Session& s, Layout layout) {
  MPI_Type_commit(&layout.type);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  const std::string where = "datatypes/" + layout.name;
  const Bytes mine = pattern(layout.span, seed_of(1, u64(s.rank), layout.span));
  const Bytes theirs = pattern(layout.span, seed_of(1, u64(left), layout.span));
  const Bytes untouched = pattern(layout.span, seed_of(99));
  Bytes my_flat = packed(layout, mine);
  const Bytes their_flat = packed(layout, theirs);
  const Bytes want = spread(layout, their_flat, untouched);
  const int flat_bytes = as_int(my_flat.size());

  Bytes typed = untouched;
  MPI_Sendrecv(mine.data() + layout.origin, layout.count, layout.type, right, 1,
               typed.data() + layout.origin, layout.count, layout.type, left, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  require(typed == want, where, "typed to typed: wrong bytes");

  Bytes flat(my_flat.size());
  MPI_Sendrecv(mine.data() + layout.origin, layout.count, layout.type, right, 2, flat.data(),
               flat_bytes, MPI_BYTE, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  require(flat == their_flat, where, "typed to bytes: wrong bytes");

  typed = untouched;
  MPI_Sendrecv(my_flat.data(), flat_bytes, MPI_BYTE, right, 3, typed.data() + layout.origin,
               layout.count, layout.type, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  require(typed == want, where, "bytes to typed: wrong bytes");
  s.sent(3 * my_flat.size());
  MPI_Type_free(&layout.type);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  // Small ones are eager, the larger ones cross the eager and the pipeline limits.
  for (const int scale : {1, 10, 200, session.pick(5000, 60000)}) {
    exchange(session, vector_of(4 * scale, 1, 2));
    exchange(session, vector_of(scale, 16, 17));
    exchange(session, backwards(3 * scale));
    exchange(session, indexed(10 * scale));
    exchange(session, hindexed_descending(9 * scale));
    exchange(session, records(4 * scale));
    exchange(session, nested(3 * scale));
  }
  for (const int n : {5, 12, 40, session.pick(64, 160)}) exchange(session, subarray(n));
  return session.finish();
}
