// Two nodes with a queue pair each, connected or of datagrams, on a fabric with a fault schedule.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace kit {

struct FaultyPair {
  explicit FaultyPair(World& w, bool with_srq = false)
      : world(w),
        a(w.open(), {.srq_wr = with_srq ? 16U : 0U}),
        b(w.open(), {.srq_wr = with_srq ? 16U : 0U}),
        qa(a, QpOptions{.srq = a.srq}),
        qb(b, QpOptions{.srq = b.srq}) {
    connect(qa, qb);
  }
  ~FaultyPair() { EXPECT_FALSE(world.sim().fault_log().empty()) << "no fault happened"; }
  FaultyPair(const FaultyPair&) = delete;
  FaultyPair& operator=(const FaultyPair&) = delete;

  void faults(const std::string& text) { ASSERT_TRUE(world.sim().add_faults(text)); }
  uint64_t hits() const { return world.sim().fault_hits(); }

  int send(uint64_t wr_id, size_t offset = 0) {
    return post(qa, {.wr_id = wr_id, .offset = offset, .length = 64});
  }
  int write(uint64_t wr_id, size_t from, size_t to, uint32_t length = 64) {
    return post(qa, {.wr_id = wr_id,
                     .offset = from,
                     .length = length,
                     .opcode = IBV_WR_RDMA_WRITE,
                     .remote_addr = b.at(to),
                     .rkey = b.mr->rkey});
  }
  // `to` holds the counter.
  int fetch_add(uint64_t wr_id, size_t result, size_t to, uint64_t add) {
    return post(qa, {.wr_id = wr_id,
                     .offset = result,
                     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                     .remote_addr = b.at(to),
                     .rkey = b.mr->rkey,
                     .compare_add = add});
  }
  void receive(int n, size_t offset = 32768) {
    for (int i = 0; i < n; ++i)
      ASSERT_EQ(post_recv(qb, 100 + static_cast<uint64_t>(i), offset, 64), 0);
  }
  // "1:0 2:5": wr_id and status of the next n completions of the sender.
  std::string completions(size_t n) { return describe(poll(a.cq, n, world.wait())); }
  // Of the receiver, as far as they are there by now.
  std::string received() { return describe(poll(b.cq, 64, world.wait(), 0)); }

  static std::string describe(const std::vector<ibv_wc>& all) {
    std::string text;
    for (const ibv_wc& wc : all) {
      text += (text.empty() ? "" : " ") + std::to_string(wc.wr_id) + ":" +
              std::to_string(static_cast<int>(wc.status));
    }
    return text;
  }
  // How often the device executed the request.
  long executed(uint64_t wr_id) const {
    const auto& log = world.sim().log();
    return std::count_if(log.begin(), log.end(), [&](const softhca::WrLogEntry& entry) {
      return entry.wr_id == wr_id && entry.executed;
    });
  }

  World& world;
  Node a, b;
  Qp qa, qb;
};

// Two nodes with a datagram queue pair each; the second has eight receives posted.
struct Datagrams {
  explicit Datagrams(World& w)
      : world(w),
        a(w.open()),
        b(w.open()),
        qa(a, {.type = IBV_QPT_UD}),
        qb(b, {.type = IBV_QPT_UD}) {
    bring_up_ud(qa);
    bring_up_ud(qb);
    ah = make_ah(a, b);
    EXPECT_NE(ah, nullptr);
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(post_recv(qb, i, i * 256, 256), 0);
  }
  ~Datagrams() { EXPECT_EQ(ibv_destroy_ah(ah), 0); }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  // Sends one byte `tag`, and takes the buffer back when it has completed.
  void send(char tag) {
    post(tag);
    complete();
  }
  void post(char tag) {
    a.buf[0] = static_cast<unsigned char>(tag);
    EXPECT_EQ(kit::post(qa, {.length = 1, .ah = ah, .dest_qpn = qb.num()}), 0);
  }
  void complete() {
    EXPECT_EQ(poll_one(a.cq, world.wait()).status, IBV_WC_SUCCESS);
    a.buf[0] = '!';
  }
  // The tags that have arrived since.
  std::string arrived() {
    std::string tags;
    for (const ibv_wc& wc : poll(b.cq, 64, world.wait(), 0))
      tags += static_cast<char>(b.buf[wc.wr_id * 256 + 40]);
    return tags;
  }
  World& world;
  Node a, b;
  Qp qa, qb;
  ibv_ah* ah = nullptr;
};

inline uint64_t value_at(const Node& node, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, node.buf.data() + offset, sizeof(value));
  return value;
}

}  // namespace kit
