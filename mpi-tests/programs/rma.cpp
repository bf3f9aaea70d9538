// One-sided operations on MPI_Win_create windows: put, get, accumulate, fetch_and_op and
// compare_and_swap under fence, post-start-complete-wait, lock/unlock, lock_all and flush; every
// byte of every window is checked. Windows come from MPI_Win_create on purpose and there is no
// MPI_Get_accumulate: Open MPI 4.1.4 crashes in compare_and_swap on MPI_Win_allocate windows of one
// node and returns wrong data from get_accumulate, with any BTL.
#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kSizes[] = {1, 7, 8, 64, 1000, 4096, 4099, 65536, 300001};

// A window in which every rank owns one slot of `slot` bytes per peer.
class Window {
 public:
  Window(const Session& s, std::size_t slot) : slot_(slot), memory_(slot * uz(s.size)) {
    MPI_Win_create(memory_.data(), static_cast<MPI_Aint>(memory_.size()), 1, MPI_INFO_NULL,
                   MPI_COMM_WORLD, &win);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() { MPI_Win_free(&win); }

  std::span<std::byte> slot(int of) { return std::span(memory_).subspan(uz(of) * slot_, slot_); }
  MPI_Aint at(int of) const { return static_cast<MPI_Aint>(uz(of) * slot_); }
  void wipe() { std::fill(memory_.begin(), memory_.end(), std::byte{0x33}); }

  MPI_Win win = MPI_WIN_NULL;

 private:
  std::size_t slot_;
  Bytes memory_;
};

std::string at(const char* what, std::size_t size) {
  return std::string("rma/") + what + " size " + std::to_string(size);
}

void put_all(Session& s, Window& w, Bytes& source, std::size_t size, std::uint64_t salt) {
  source.resize(size * uz(s.size));
  for (int peer = 0; peer < s.size; ++peer) {
    const auto part = std::span(source).subspan(uz(peer) * size, size);
    fill(part, seed_of(salt, u64(s.rank), u64(peer)));
    MPI_Put(part.data(), as_int(size), MPI_BYTE, peer, w.at(s.rank), as_int(size), MPI_BYTE, w.win);
    if (peer != s.rank) s.sent(size);
  }
}

void check_puts(const Session& s, Window& w, std::size_t size, std::uint64_t salt,
                const char* what) {
  for (int peer = 0; peer < s.size; ++peer)
    verify(w.slot(peer).first(size), seed_of(salt, u64(peer), u64(s.rank)), at(what, size));
}

void fenced(Session& s, std::size_t size) {
  Window w(s, size);
  w.wipe();
  Bytes source;
  MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win);
  put_all(s, w, source, size, 1);
  MPI_Win_fence(0, w.win);
  check_puts(s, w, size, 1, "fence put");
  Bytes back(size * uz(s.size));
  MPI_Win_fence(0, w.win);
  for (int peer = 0; peer < s.size; ++peer)
    MPI_Get(&back[uz(peer) * size], as_int(size), MPI_BYTE, peer, w.at((s.rank + 1) % s.size),
            as_int(size), MPI_BYTE, w.win);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win);
  for (int peer = 0; peer < s.size; ++peer)
    verify(std::span(back).subspan(uz(peer) * size, size),
           seed_of(1, u64((s.rank + 1) % s.size), u64(peer)), at("fence get", size));
}

// Access epoch to the right neighbour, exposure epoch for the left one.
void post_start(Session& s, std::size_t size) {
  Window w(s, size);
  const int right = (s.rank + 1) % s.size;
  const int left = (s.rank + s.size - 1) % s.size;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group to = MPI_GROUP_NULL;
  MPI_Group from = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &right, &to);
  MPI_Group_incl(world, 1, &left, &from);
  for (int round = 0; round < 4; ++round) {
    Bytes out(size);
    fill(out, seed_of(2, u64(s.rank), u64(round)));
    MPI_Win_post(from, 0, w.win);
    MPI_Win_start(to, 0, w.win);
    MPI_Put(out.data(), as_int(size), MPI_BYTE, right, w.at(s.rank), as_int(size), MPI_BYTE, w.win);
    s.sent(size);
    MPI_Win_complete(w.win);
    MPI_Win_wait(w.win);
    verify(w.slot(left), seed_of(2, u64(left), u64(round)), at("pscw put", size));
  }
  MPI_Group_free(&from);
  MPI_Group_free(&to);
  MPI_Group_free(&world);
}

// Passive target: put, flush, get back, all while the target computes or sits in the barrier.
void locked(Session& s, std::size_t size) {
  Window w(s, size);
  Bytes source;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, w.win);
  put_all(s, w, source, size, 3);
  MPI_Win_flush_all(w.win);
  Bytes back(size);
  for (int peer = 0; peer < s.size; ++peer) {
    MPI_Get(back.data(), as_int(size), MPI_BYTE, peer, w.at(s.rank), as_int(size), MPI_BYTE, w.win);
    MPI_Win_flush(peer, w.win);
    verify(back, seed_of(3, u64(s.rank), u64(peer)), at("lock_all get", size));
  }
  MPI_Win_unlock_all(w.win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, s.rank, 0, w.win);
  check_puts(s, w, size, 3, "lock_all put");
  MPI_Win_unlock(s.rank, w.win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int peer = 0; peer < s.size; ++peer) {
    Bytes out(size);
    fill(out, seed_of(4, u64(s.rank), u64(peer)));
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, w.win);
    MPI_Put(out.data(), as_int(size), MPI_BYTE, peer, w.at(s.rank), as_int(size), MPI_BYTE, w.win);
    MPI_Win_unlock(peer, w.win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, s.rank, 0, w.win);
  check_puts(s, w, size, 4, "lock put");
  MPI_Win_unlock(s.rank, w.win);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Everybody adds to the same words of every rank: the sum tells a lost or doubled update.
void accumulate(Session& s, int words) {
  std::vector<std::int64_t> memory(uz(words), 0);
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create(memory.data(), static_cast<MPI_Aint>(words) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD,
                 &win);
  std::vector<std::int64_t> add(uz(words));
  for (int i = 0; i < words; ++i) add[uz(i)] = 1000 * i + s.rank;
  const int rounds = 5;
  MPI_Win_fence(0, win);
  for (int round = 0; round < rounds; ++round)
    for (int peer = 0; peer < s.size; ++peer)
      MPI_Accumulate(add.data(), words, MPI_INT64_T, peer, 0, words, MPI_INT64_T, MPI_SUM, win);
  MPI_Win_fence(0, win);
  const std::int64_t n = s.size;
  for (int i = 0; i < words; ++i)
    require_eq(memory[uz(i)], rounds * (n * 1000 * i + n * (n - 1) / 2), "rma/accumulate");
  MPI_Win_free(&win);
}

// One turn under a spin lock (word 1, compare_and_swap) around an unprotected read-modify-write of
// word 2.
void locked_turn(MPI_Win win, int owner) {
  const std::int64_t one = 1;
  const std::int64_t zero = 0;
  for (std::int64_t held = 1; held != 0;) {
    MPI_Compare_and_swap(&one, &zero, &held, MPI_INT64_T, owner, 1, win);
    MPI_Win_flush(owner, win);
  }
  std::int64_t value = -1;
  MPI_Get(&value, 1, MPI_INT64_T, owner, 2, 1, MPI_INT64_T, win);
  MPI_Win_flush(owner, win);
  value += 3;
  MPI_Put(&value, 1, MPI_INT64_T, owner, 2, 1, MPI_INT64_T, win);
  MPI_Win_flush(owner, win);
  std::int64_t unlocked = -1;
  MPI_Fetch_and_op(&zero, &unlocked, MPI_INT64_T, owner, 1, MPI_REPLACE, win);
  MPI_Win_flush(owner, win);
  require_eq(unlocked, 1, "rma/compare_and_swap lock word");
}

// A ticket counter (fetch_and_op) and a spin lock (compare_and_swap) on the last rank. The owner
// takes part in the lock only if `self_swap`: Open MPI 4.1.4 crashes in compare_and_swap on the own
// rank with a BTL that does not reach it.
void atomics(Session& s, bool self_swap) {
  struct Shared {
    std::int64_t counter = 0;
    std::int64_t lock = 0;
    std::int64_t guarded = 0;
  } shared;
  const int owner = s.size - 1;
  const int rounds = s.pick(40, 400);
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create(&shared, sizeof shared, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_lock_all(0, win);
  std::int64_t last = -1;
  const std::int64_t one = 1;
  for (int i = 0; i < rounds; ++i) {
    std::int64_t before = -1;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, owner, 0, MPI_SUM, win);
    MPI_Win_flush(owner, win);
    require(before > last, "rma/fetch_and_op", "the counter went back");
    last = before;
    if (s.rank != owner || self_swap) locked_turn(win, owner);
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (s.rank == owner) {
    MPI_Win_lock(MPI_LOCK_SHARED, owner, 0, win);
    require_eq(shared.counter, std::int64_t{rounds} * s.size, "rma/fetch_and_op sum");
    const int users = self_swap ? s.size : s.size - 1;
    require_eq(shared.guarded, std::int64_t{3} * rounds * users, "rma/compare_and_swap sum");
    MPI_Win_unlock(owner, win);
  }
  MPI_Win_free(&win);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  const bool self_swap = !session.args.empty() && session.args.front() == "self-swap";
  const int rounds = session.pick(1, 8);
  for (int round = 0; round < rounds; ++round) {
    for (const std::size_t size : kSizes) {
      fenced(session, size);
      post_start(session, size);
      locked(session, size);
    }
    for (const int words : {1, 3, 500, 20000}) accumulate(session, words);
    atomics(session, self_swap);
  }
  return session.finish();
}
