// What every device test needs: one object per verbs object group, a connected pair, bounded
// polling. Only public verbs calls, so the same tests could run on any device. Failures are
// reported to GoogleTest where they happen. Not thread safe; objects are destroyed in reverse order
// of creation.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

namespace kit {

// How a test waits: real time for devices in real use, steps of the virtual clock in simulation.
using Wait = std::function<void(uint64_t ns)>;

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// A context with a PD, one CQ for both directions, and one registered buffer.
struct Node {
  ibv_context* ctx = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::vector<unsigned char> buf;
  ibv_mr* mr = nullptr;

  struct Options {
    int cqe = 64;
    size_t bytes = 65536;
    int access = kAllAccess;
    bool channel = false;
    uint32_t srq_wr = 0;  // 0: no SRQ
  };
  Node(ibv_context* context, const Options& options);
  explicit Node(ibv_context* context) : Node(context, Options{}) {}
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(buf.data() + offset); }
  void fill(size_t offset, size_t n, unsigned seed);
  // Whether buf[offset, offset+n) holds what fill(_, n, seed) writes.
  bool holds(size_t offset, size_t n, unsigned seed) const;
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t send_wr = 16;
  uint32_t recv_wr = 16;
  uint32_t sge = 1;
  uint32_t inline_data = 0;
  bool sig_all = false;
  ibv_srq* srq = nullptr;
  ibv_cq* recv_cq = nullptr;  // null: the node's
  unsigned access = kAllAccess;
  uint8_t timeout = 8;  // 1 ms
  uint8_t retry_cnt = 1;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint32_t qkey = 0x11111111;
  uint32_t sq_psn = 0x123456;
  uint32_t rq_psn = 0x123456;
  uint8_t rd_atomic = 4;
};

class Qp {
 public:
  Qp(Node& node, const QpOptions& options);
  explicit Qp(Node& node) : Qp(node, QpOptions{}) {}
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  ibv_qp* get() const { return qp_; }
  uint32_t num() const { return qp_->qp_num; }
  Node& node() const { return node_; }
  const QpOptions& options() const { return options_; }

  int to_init();
  int to_rtr(uint32_t dest_qpn, const ibv_gid& dest_gid);
  int to_rts();
  int to(ibv_qp_state state);  // RESET or ERR
  ibv_qp_state state() const;
  void forget() { qp_ = nullptr; }  // the test destroys it itself

 private:
  Node& node_;
  QpOptions options_;
  ibv_qp* qp_ = nullptr;
};

ibv_gid gid_of(ibv_context* ctx, int index);
// RESET -> RTS on both sides, or UD to RTS.
void connect(Qp& a, Qp& b);
void bring_up_ud(Qp& qp);
// For datagrams to the first port of a device; null as ibv_create_ah.
ibv_ah* make_ah(Node& from, const Node& to);

// Work requests over a node's buffer. Each returns the verbs result.
struct Send {
  uint64_t wr_id = 1;
  size_t offset = 0;
  uint32_t length = 8;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;
  ibv_ah* ah = nullptr;
  uint32_t dest_qpn = 0;
  uint32_t dest_qkey = 0x11111111;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  uint32_t lkey = 0;  // 0: the node's MR
};
int post(Qp& qp, const Send& send);
int post_recv(Qp& qp, uint64_t wr_id, size_t offset, uint32_t length, uint32_t lkey = 0);
int post_srq(Node& node, uint64_t wr_id, size_t offset, uint32_t length);

// Polls until n completions or the time is over; what came.
inline constexpr uint64_t kStep = 50'000;
std::vector<ibv_wc> poll(ibv_cq* cq, size_t n, const Wait& wait, uint64_t limit_ns = 2'000'000'000,
                         uint64_t step_ns = kStep);
// The next completion; its status is WC 255 ("none") and a failure is reported when none comes.
ibv_wc poll_one(ibv_cq* cq, const Wait& wait, uint64_t limit_ns = 2'000'000'000,
                uint64_t step_ns = kStep);
// True if nothing completes although `ns` pass.
bool quiet(ibv_cq* cq, const Wait& wait, uint64_t ns);

// One async event, acked; -1 if none within the limit.
int next_event(ibv_context* ctx, const Wait& wait, uint64_t limit_ns = 1'000'000'000,
               void** element = nullptr);

inline void real_wait(uint64_t ns) {
  const timespec ts{static_cast<time_t>(ns / 1'000'000'000U),
                    static_cast<long>(ns % 1'000'000'000U)};
  nanosleep(&ts, nullptr);
}

}  // namespace kit
