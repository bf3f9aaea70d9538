// A record of executed work requests, for tests that ask what the device did rather than what the
// application saw. Off (a null pointer) unless a simulation asks for it. Not thread safe:
// in-process mode has one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace softhca {

struct WrLogEntry {
  uint64_t time = 0;  // of the attempt
  uint64_t wr_id = 0;
  uint32_t src_qpn = 0;
  uint32_t dest_qpn = 0;
  uint32_t length = 0;
  uint32_t psn = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint8_t outcome = 0;  // softhca::Outcome of this attempt
};

using WrLog = std::vector<WrLogEntry>;

}  // namespace softhca
