// The shape of one collective test: each collective is run blocking and non-blocking on the same
// inputs, and the result of both is compared with a reference that every rank computes on its own
// from the known inputs of all ranks.
#pragma once

#include <functional>
#include <numeric>

#include "mpi-tests/programs/check.h"

namespace mpitest {

using Ints = std::vector<std::int64_t>;

inline std::int64_t input(int rank, std::size_t i) {
  return static_cast<std::int64_t>(seed_of(u64(rank), i, 42) % 100003);
}

inline Ints inputs(int rank, std::size_t n, std::size_t skip = 0) {
  Ints values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = input(rank, skip + i);
  return values;
}

inline void same(const Ints& got, const Ints& want, const std::string& where) {
  require_eq(got.size(), want.size(), where + " length");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i]) require_eq(got[i], want[i], where + " element " + std::to_string(i));
}

// Runs `call(recv, request)` twice, with a null request (blocking) and with one to wait for; both
// must give `want`.
inline void both_ways(const std::string& where, const Ints& before, const Ints& want,
                      const std::function<void(Ints&, MPI_Request*)>& call) {
  Ints out = before;
  call(out, nullptr);
  same(out, want, where + " blocking");
  out = before;
  MPI_Request request = MPI_REQUEST_NULL;
  call(out, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  same(out, want, where + " non-blocking");
}

// Affine maps x -> a x + b modulo a prime, composed left to right: associative and not commutative,
// so a reduction that swaps the order of ranks is found. One map is two int64 (a, b).
constexpr std::int64_t kPrime = 1000003;

inline void compose(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const auto* left = static_cast<const std::int64_t*>(in);
  auto* right = static_cast<std::int64_t*>(inout);
  for (int i = 0; i < *count; ++i, left += 2, right += 2) {
    const std::int64_t a = left[0] * right[0] % kPrime;
    const std::int64_t b = (left[1] * right[0] + right[1]) % kPrime;
    right[0] = a;
    right[1] = b;
  }
}

// The composition of the maps of ranks first..last, for n maps each.
inline Ints composed(int first, int last, std::size_t n) {
  Ints acc = inputs(first, 2 * n);
  for (int r = first + 1; r <= last; ++r) {
    Ints next = inputs(r, 2 * n);
    int count = as_int(n);
    compose(acc.data(), next.data(), &count, nullptr);
    acc = next;
  }
  return acc;
}

}  // namespace mpitest
