// Many-to-one floods of unexpected messages: every other rank sends to rank 0 while that rank does
// not receive; then it takes them in an order that no arrival order matches. Per sender and tag the
// messages must stay in order. A second phase turns the flood round (one to many), a third lets
// everybody flood everybody.
#include <chrono>
#include <thread>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr int kTags = 4;
constexpr std::size_t kSizes[] = {0, 1, 8, 100, 1024, 4000, 9000, 70000};

std::size_t size_of(int src, int index) {
  // Mostly small: a flood of rendezvous messages is not a flood of unexpected data.
  const std::uint64_t dice = seed_of(77, u64(src), u64(index)) % 64;
  return kSizes[dice < 56 ? dice % 5 : 5 + dice % 3];
}

std::uint64_t seed(int src, int dst, int index) {
  return seed_of(u64(src) * 1000 + u64(dst), u64(index), 5);
}

void send_all(Session& session, int dst, int messages) {
  std::vector<Bytes> kept(uz(messages));
  std::vector<MPI_Request> requests(uz(messages));
  for (int i = 0; i < messages; ++i) {
    Bytes& buffer = kept[uz(i)];
    buffer.resize(size_of(session.rank, i));
    fill(buffer, seed(session.rank, dst, i));
    MPI_Isend(buffer.data(), as_int(buffer.size()), MPI_BYTE, dst, i % kTags, MPI_COMM_WORLD,
              &requests[uz(i)]);
    session.sent(buffer.size());
  }
  MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
}

// Highest tag first and the sources interleaved backwards: nearly every message has to be found in
// the unexpected queue.
void receive_all(const Session& session, const std::vector<int>& sources, int messages) {
  Bytes buffer(100000);
  for (int tag = kTags - 1; tag >= 0; --tag)
    for (int i = tag; i < messages; i += kTags)
      for (auto src = sources.rbegin(); src != sources.rend(); ++src) {
        MPI_Status status;
        MPI_Recv(buffer.data(), as_int(buffer.size()), MPI_BYTE, *src, tag, MPI_COMM_WORLD,
                 &status);
        int count = -1;
        MPI_Get_count(&status, MPI_BYTE, &count);
        const std::string where =
            "flood from " + std::to_string(*src) + " message " + std::to_string(i);
        require_eq(count, as_int(size_of(*src, i)), where + " size (order broken?)");
        verify({buffer.data(), uz(count)}, seed(*src, session.rank, i), where);
      }
}

std::vector<int> others(const Session& session) {
  std::vector<int> ranks;
  for (int r = 0; r < session.size; ++r)
    if (r != session.rank) ranks.push_back(r);
  return ranks;
}

void everybody(Session& session, int messages) {
  std::vector<MPI_Request> requests;
  std::vector<Bytes> kept;
  for (const int dst : others(session))
    for (int i = 0; i < messages; ++i) {
      Bytes& buffer = kept.emplace_back(size_of(session.rank, i));
      fill(buffer, seed(session.rank, dst, i));
      session.sent(buffer.size());
      MPI_Isend(buffer.data(), as_int(buffer.size()), MPI_BYTE, dst, i % kTags, MPI_COMM_WORLD,
                &requests.emplace_back());
    }
  receive_all(session, others(session), messages);
  MPI_Waitall(as_int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  const int messages = session.pick(1500, 12000) / (session.size - 1);
  if (session.rank == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(session.pick(100, 1000)));
    receive_all(session, others(session), messages);
  } else {
    send_all(session, 0, messages);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (session.rank == 0) {
    for (const int dst : others(session)) send_all(session, dst, messages);
  } else {
    receive_all(session, {0}, messages);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  everybody(session, messages / 2);
  return session.finish();
}
