// Verified ring traffic: a stream of messages whose sizes and contents follow from a hash that is
// chained through every message received, so one lost, doubled, reordered or altered message breaks
// the chain of every rank behind it. Each rank proves its chain against one it computes without
// communication, in every round and at the end.
// --until FILE: as many rounds as it takes until rank 0 sees this file (--seconds N at most).
#include "mpi-tests/programs/check.h"
#include "mpi-tests/programs/curfew.h"

namespace {

using namespace mpitest;

constexpr std::size_t kLargest = 1U << 20U;
constexpr int kRoundsPerLook = 20;  // rank 0 tells the others so often whether to go on

std::size_t size_for(std::uint64_t chain) {
  switch (chain % 16) {
    case 0:
      return 0;
    case 1:
      return 1 + (chain >> 8U) % kLargest;
    case 2:
    case 3:
      return 1 + (chain >> 8U) % 70000;
    default:
      return 1 + (chain >> 8U) % 600;
  }
}

// The chains of all ranks, computed without communication. In each round a chain moves on to the
// next rank.
class Chains {
 public:
  explicit Chains(int size) {
    for (int rank = 0; rank < size; ++rank) chains_.push_back(seed_of(u64(rank), 11));
  }
  std::uint64_t at(int rank) const {
    const int size = as_int(chains_.size());
    return chains_[uz((rank - round_ % size + size) % size)];
  }
  void next_round() {
    for (std::uint64_t& chain : chains_) chain = mix(chain + u64(round_));
    ++round_;
  }
  int round() const { return round_; }

 private:
  std::vector<std::uint64_t> chains_;  // by the rank at which they began
  int round_ = 0;
};

class Ring {
 public:
  explicit Ring(Session& s)
      : s_(s), right_((s.rank + 1) % s.size), left_((s.rank + s.size - 1) % s.size) {}

  void round() {
    const std::size_t bytes = size_for(chain_);
    fill({out_.data(), bytes}, chain_);
    std::uint64_t next = 0;
    MPI_Request requests[4];
    MPI_Irecv(&next, 1, MPI_UINT64_T, left_, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in_.data(), as_int(in_.size()), MPI_BYTE, left_, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&chain_, 1, MPI_UINT64_T, right_, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(out_.data(), as_int(bytes), MPI_BYTE, right_, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Status statuses[4];
    MPI_Waitall(4, requests, statuses);
    s_.sent(bytes + 8);
    int count = -1;
    MPI_Get_count(&statuses[1], MPI_BYTE, &count);
    const std::string where = "ring round " + std::to_string(expected_.round());
    require_eq(next, expected_.at(left_), where + " chain");
    require_eq(uz(count), size_for(next), where + " size");
    verify({in_.data(), uz(count)}, next, where);
    chain_ = mix(next + u64(expected_.round()));
    expected_.next_round();
  }

  void check() const { require_eq(chain_, expected_.at(s_.rank), "ring end of chain"); }

 private:
  Session& s_;
  const int right_;
  const int left_;
  Bytes out_ = Bytes(kLargest + 1);
  Bytes in_ = Bytes(kLargest + 1);
  std::uint64_t chain_ = seed_of(u64(s_.rank), 11);
  Chains expected_{s_.size};
};

}  // namespace

int main(int argc, char** argv) {
  Session s(argc, argv);
  Ring ring(s);
  if (const std::string until = text_option(s, "--until"); !until.empty()) {
    Curfew curfew(option(s, "--seconds", 60), until);
    for (int go = 1; go != 0;) {
      for (int round = 0; round < kRoundsPerLook; ++round) ring.round();
      go = curfew.over() ? 0 : 1;
      MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
  } else {
    const int rounds = s.pick(300, 3000);
    for (int round = 0; round < rounds; ++round) ring.round();
  }
  ring.check();
  return s.finish();
}
