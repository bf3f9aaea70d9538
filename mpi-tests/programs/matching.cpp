// Matching rules: any source, any tag, probe and matched probe, persistent requests, synchronous,
// buffered and ready modes, sendrecv_replace, zero-byte messages, self-messages and non-overtaking
// across protocol changes.
#include <array>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::array<std::size_t, 7> kSizes = {0, 8, 300, 4096, 5000, 70000, 300000};

std::string at(const char* theme, std::size_t size) {
  return std::string("matching/") + theme + " size " + std::to_string(size);
}

int right(const Session& s) { return (s.rank + 1) % s.size; }
int left(const Session& s) { return (s.rank + s.size - 1) % s.size; }

// Every rank sends one message per size to rank 0 with its own tag; rank 0 takes them with both
// wildcards.
void wildcards(Session& s) {
  for (const std::size_t size : kSizes) {
    Bytes buffer(size);
    if (s.rank != 0) {
      fill(buffer, seed_of(1, u64(s.rank), size));
      MPI_Send(buffer.data(), as_int(size), MPI_BYTE, 0, 100 + s.rank, MPI_COMM_WORLD);
      s.sent(size);
    } else {
      std::vector<bool> seen(uz(s.size), false);
      for (int i = 1; i < s.size; ++i) {
        MPI_Status status;
        MPI_Recv(buffer.data(), as_int(size), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                 &status);
        require_eq(status.MPI_TAG, 100 + status.MPI_SOURCE, at("any-tag", size));
        require(!seen[uz(status.MPI_SOURCE)], at("any-source", size), "message delivered twice");
        seen[uz(status.MPI_SOURCE)] = true;
        verify(buffer, seed_of(1, u64(status.MPI_SOURCE), size), at("wildcard", size));
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Probe, iprobe and mprobe tell the size before the receive; an mprobed message may not be stolen
// by a wildcard receive.
void probes(Session& s) {
  for (const std::size_t size : kSizes) {
    Bytes out(size);
    fill(out, seed_of(2, u64(s.rank), size));
    MPI_Request requests[3];
    for (int tag = 0; tag < 3; ++tag)
      MPI_Isend(out.data(), as_int(size), MPI_BYTE, right(s), tag, MPI_COMM_WORLD, &requests[tag]);
    s.sent(3 * size);
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Mprobe(left(s), 2, MPI_COMM_WORLD, &message, &status);
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    require_eq(count, as_int(size), at("mprobe", size));
    MPI_Probe(left(s), 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    require_eq(count, as_int(size), at("probe", size));
    int flag = 0;
    while (flag == 0) MPI_Iprobe(left(s), MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    require_eq(status.MPI_TAG, 0, at("iprobe order", size));
    Bytes in(size);
    for (int tag = 0; tag < 2; ++tag) {
      MPI_Recv(in.data(), as_int(size), MPI_BYTE, left(s), MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      require_eq(status.MPI_TAG, tag, at("non-overtaking", size));
      verify(in, seed_of(2, u64(left(s)), size), at("probe data", size));
    }
    std::fill(in.begin(), in.end(), std::byte{0});
    MPI_Mrecv(in.data(), as_int(size), MPI_BYTE, &message, &status);
    require_eq(status.MPI_TAG, 2, at("mrecv", size));
    verify(in, seed_of(2, u64(left(s)), size), at("mrecv data", size));
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  }
}

void persistent(Session& s) {
  for (const std::size_t size : kSizes) {
    Bytes out(size);
    Bytes in(size);
    MPI_Request requests[2];
    MPI_Recv_init(in.data(), as_int(size), MPI_BYTE, left(s), 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out.data(), as_int(size), MPI_BYTE, right(s), 3, MPI_COMM_WORLD, &requests[1]);
    const int starts = s.pick(10, 100);
    for (int i = 0; i < starts; ++i) {
      fill(out, seed_of(3, u64(s.rank), u64(i)));
      MPI_Startall(2, requests);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      verify(in, seed_of(3, u64(left(s)), u64(i)), at("persistent", size));
      s.sent(size);
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  }
}

// A synchronous send may not complete before the receive has started: the receiver tells through a
// token when it does.
void synchronous(Session& s) {
  if (s.rank > 1) return;
  for (const std::size_t size : kSizes) {
    Bytes buffer(size);
    int token = 0;
    if (s.rank == 0) {
      fill(buffer, seed_of(4, size));
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Issend(buffer.data(), as_int(size), MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request);
      int done = 0;
      const double until = MPI_Wtime() + 0.02;
      while (MPI_Wtime() < until) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        require(done == 0, at("issend", size), "completed before the receive was posted");
      }
      MPI_Send(&token, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Ssend(buffer.data(), as_int(size), MPI_BYTE, 1, 6, MPI_COMM_WORLD);
      s.sent(2 * size);
    } else {
      MPI_Recv(&token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (const int tag : {4, 6}) {
        std::fill(buffer.begin(), buffer.end(), std::byte{0});
        MPI_Recv(buffer.data(), as_int(size), MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify(buffer, seed_of(4, size), at("ssend", size));
      }
    }
  }
}

void buffered_and_ready(Session& s) {
  for (const std::size_t size : kSizes) {
    Bytes attach(2 * (size + MPI_BSEND_OVERHEAD));
    MPI_Buffer_attach(attach.data(), as_int(attach.size()));
    Bytes out(size);
    Bytes in(size);
    fill(out, seed_of(6, u64(s.rank), size));
    MPI_Bsend(out.data(), as_int(size), MPI_BYTE, right(s), 7, MPI_COMM_WORLD);
    std::fill(out.begin(), out.end(), std::byte{0xee});  // a buffered send has let go of it
    MPI_Recv(in.data(), as_int(size), MPI_BYTE, left(s), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verify(in, seed_of(6, u64(left(s)), size), at("bsend", size));
    void* base = nullptr;
    int bytes = 0;
    MPI_Buffer_detach(static_cast<void*>(&base), &bytes);

    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(in.data(), as_int(size), MPI_BYTE, left(s), 8, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    fill(out, seed_of(7, u64(s.rank), size));
    MPI_Rsend(out.data(), as_int(size), MPI_BYTE, right(s), 8, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    verify(in, seed_of(7, u64(left(s)), size), at("rsend", size));
    s.sent(2 * size);
  }
}

void replace_and_self(Session& s) {
  for (const std::size_t size : kSizes) {
    Bytes buffer(size);
    fill(buffer, seed_of(8, u64(s.rank), size));
    MPI_Sendrecv_replace(buffer.data(), as_int(size), MPI_BYTE, right(s), 9, left(s), 9,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verify(buffer, seed_of(8, u64(left(s)), size), at("sendrecv_replace", size));
    s.sent(size);
    Bytes in(size);
    MPI_Sendrecv(buffer.data(), as_int(size), MPI_BYTE, s.rank, 10, in.data(), as_int(size),
                 MPI_BYTE, s.rank, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    require(buffer == in, at("self", size), "message to itself is wrong");
  }
}

// Small behind large on one tag: the small one may not overtake although it needs no rendezvous.
void no_overtaking(Session& s) {
  const int messages = s.pick(60, 600);
  std::vector<Bytes> out;
  std::vector<MPI_Request> requests(uz(messages));
  for (int i = 0; i < messages; ++i) {
    Bytes& buffer = out.emplace_back(kSizes[uz(i * 5) % kSizes.size()]);
    fill(buffer, seed_of(9, u64(s.rank), u64(i)));
    MPI_Isend(buffer.data(), as_int(buffer.size()), MPI_BYTE, right(s), 11, MPI_COMM_WORLD,
              &requests[uz(i)]);
    s.sent(buffer.size());
  }
  Bytes in(kSizes.back());
  for (int i = 0; i < messages; ++i) {
    MPI_Status status;
    MPI_Recv(in.data(), as_int(in.size()), MPI_BYTE, MPI_ANY_SOURCE, 11, MPI_COMM_WORLD, &status);
    const std::size_t want = kSizes[uz(i * 5) % kSizes.size()];
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    require_eq(count, as_int(want), at("overtaking", want));
    verify({in.data(), want}, seed_of(9, u64(left(s)), u64(i)), at("overtaking", want));
  }
  MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  wildcards(session);
  probes(session);
  persistent(session);
  synchronous(session);
  buffered_and_ready(session);
  MPI_Barrier(MPI_COMM_WORLD);
  replace_and_self(session);
  no_overtaking(session);
  return session.finish();
}
