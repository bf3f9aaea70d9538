// The objects of FakeDevice; only its two source files include this.
// Thread contract: under FakeDevice's mutex.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <utility>

#include "tests/unit/verbs/fake_device.h"

namespace mend::test {

extern FakeDevice* current_fake;  // the one FakeDevice that exists
void fill_fake_table(verbs::Api& api);

struct FakeDevice::Channel {
  ibv_comp_channel channel{};
  int write_fd = -1;
  std::deque<ibv_cq*> ready;
};
struct FakeDevice::Cq {
  ibv_cq cq{};
  std::deque<ibv_wc> entries;
  bool armed = false;
  int users = 0;
};
struct FakeDevice::Srq {
  ibv_srq srq{};
  std::uint32_t max_wr = 0;
  std::deque<std::pair<std::uint64_t, ibv_sge>> posted;
  int users = 0;
};
struct FakeDevice::Qp {
  ibv_qp qp{};
  ibv_qp_cap cap{};
  ibv_qp_state state = IBV_QPS_RESET;
  std::uint32_t dest = 0;
  std::uint32_t sends_unpolled = 0;
  std::deque<std::uint64_t> stuck_sends;  // no one answers: they stay until ERR
  std::deque<std::pair<std::uint64_t, ibv_sge>> posted;

  std::deque<std::pair<std::uint64_t, ibv_sge>>& receives() {
    return qp.srq != nullptr ? reinterpret_cast<Srq*>(qp.srq)->posted : posted;
  }
};

inline void poke(int fd) {
  const char byte = 0;
  if (write(fd, &byte, 1) != 1) errno = EAGAIN;
}

inline bool take(int fd) {
  char byte = 0;
  return read(fd, &byte, 1) == 1;
}

void set_nonblocking_pipe(int (&fds)[2]);

}  // namespace mend::test
