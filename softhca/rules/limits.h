// What one soft device allows: the numbers ibv_query_device reports and every create/post/register
// call checks. Plain data, shared by the configuration (which may lower or raise them) and the
// engine (which stores them in the fabric segment), hence trivially copyable and without pointers.
// Defaults are those of a small HCA: large enough for 64 processes, small enough to meet a limit in
// a test.
#pragma once

#include <cstdint>
#include <type_traits>

namespace softhca {

struct Limits {
  uint32_t max_qp = 16384;
  uint32_t max_qp_wr = 16384;
  uint32_t max_sge = 16;
  uint32_t max_sge_rd = 16;
  uint32_t max_cq = 16384;
  uint32_t max_cqe = 131071;
  uint32_t max_mr = 65536;
  uint64_t max_mr_size = uint64_t{1} << 46;
  uint32_t max_pd = 4096;
  uint32_t max_ah = 65536;
  uint32_t max_srq = 4096;  // 0: the device has no shared receive queues
  uint32_t max_srq_wr = 32767;
  uint32_t max_srq_sge = 16;
  uint32_t max_inline = 256;
  uint32_t max_rd_atomic = 16;  // as initiator and as responder
  uint32_t max_msg_size = uint32_t{1} << 30;
  uint32_t max_pkeys = 16;  // entries of a port's P_Key table
  bool atomics = true;
};
static_assert(std::is_trivially_copyable_v<Limits>);

}  // namespace softhca
