// One message of more than 4 GiB from rank 0 to rank 1. The sender's 4 GiB are 61 MiB + 4 KiB of
// memory mapped again and again, so the job needs little more than the receiver's copy; the period
// is no multiple of any power of two above a page, so a fragment that lands in the wrong place does
// not match.
#include <sys/mman.h>
#include <unistd.h>

#include "mpi-tests/programs/check.h"

namespace {

using namespace mpitest;

constexpr std::size_t kPeriod = (61U << 20U) + 4096U;
constexpr std::size_t kUnit = 1U << 20U;
constexpr std::size_t kUnits = 4099;  // 4 GiB + 3 MiB
constexpr std::size_t kTotal = kUnit * kUnits;

std::byte* repeated_memory() {
  const int fd = memfd_create("mpi-test-big", MFD_CLOEXEC);
  require(fd >= 0 && ftruncate(fd, kPeriod) == 0, "big", "memfd");
  const std::size_t span = (kTotal / kPeriod + 1) * kPeriod;
  void* base = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(base != MAP_FAILED, "big", "reserve");
  auto* bytes = static_cast<std::byte*>(base);
  for (std::size_t at = 0; at < span; at += kPeriod)
    require(mmap(bytes + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
                MAP_FAILED,
            "big", "mmap");
  close(fd);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  MPI_Datatype unit = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(as_int(kUnit), MPI_BYTE, &unit);
  MPI_Type_commit(&unit);
  if (session.rank == 0) {
    std::byte* buffer = repeated_memory();
    fill({buffer, kPeriod}, seed_of(4));
    MPI_Send(buffer, as_int(kUnits), unit, 1, 4, MPI_COMM_WORLD);
    session.sent(kTotal);
  } else if (session.rank == 1) {
    void* base = mmap(nullptr, kTotal, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(base != MAP_FAILED, "big", "no memory for the receive buffer");
    MPI_Status status;
    MPI_Recv(base, as_int(kUnits), unit, 0, 4, MPI_COMM_WORLD, &status);
    int count = 0;
    MPI_Get_count(&status, unit, &count);
    require_eq(count, as_int(kUnits), "big count");
    const auto* bytes = static_cast<const std::byte*>(base);
    for (std::size_t at = 0; at < kTotal; at += kPeriod)
      verify({bytes + at, std::min(kPeriod, kTotal - at)}, seed_of(4),
             "big at " + std::to_string(at));
  }
  MPI_Type_free(&unit);
  return session.finish();
}
