// What the fault schedule did, hit by hit, so that tests can compare it with what the programs
// under test noticed. Simulation: a vector. Real use: one JSON object per line, appended to
// $SOFTHCA_FAULT_LOG.<rank> (<pid> without a rank) with one write each. Thread safe.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "softhca/fault/fault_rule.h"

namespace softhca {

struct FaultHit {
  uint64_t time = 0;  // of the fabric's clock
  uint32_t rule = 0;  // slot of the board
  FaultKind kind = FaultKind::None;
  int32_t rank = kAnyRank;  // that made it happen
  uint32_t qpn = 0;         // 0: no queue pair is concerned
  uint32_t dest_qpn = 0;
  int32_t opcode = -1;  // ibv_wr_opcode
  uint64_t wr_id = 0;
  FaultCall call = FaultCall::kCount;
  uint32_t victim_qpn = 0;         // kill-qp: what went to ERR
  int32_t victim_rank = kAnyRank;  // and whose it was
};

class FaultLogFile {
 public:
  FaultLogFile() = default;
  ~FaultLogFile();
  FaultLogFile(const FaultLogFile&) = delete;
  FaultLogFile& operator=(const FaultLogFile&) = delete;

  // As SOFTHCA_FAULT_LOG says; nothing happens without it. A file that cannot be opened is
  // complained about once.
  void open_from_env(int32_t rank);
  void write(const FaultHit& hit, std::string_view rule_text) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace softhca
