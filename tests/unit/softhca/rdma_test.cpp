// RDMA write, read and atomics: data, bounds, keys and rights, and what a violation does to both
// sides.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::Send;
using kit::World;

struct Pair {
  explicit Pair(World& world, const QpOptions& target = {}, const Node::Options& node = {})
      : a(world.open()), b(world.open(), node), qa(a), qb(b, target) {
    kit::connect(qa, qb);
  }
  Node a, b;
  Qp qa, qb;
};

TEST(Rdma, WriteAndReadBack) {
  World world;
  Pair p(world);
  for (const uint32_t n : {0U, 1U, 8U, 9U, 64U, 192U, 193U, 4096U, 30000U}) {
    p.a.fill(0, n, n);
    ASSERT_EQ(kit::post(p.qa, {.wr_id = n,
                               .length = n,
                               .opcode = IBV_WR_RDMA_WRITE,
                               .remote_addr = p.b.at(5),
                               .rkey = p.b.mr->rkey}),
              0);
    const ibv_wc wrote = kit::poll_one(p.a.cq, world.wait());
    ASSERT_EQ(wrote.status, IBV_WC_SUCCESS) << n;
    EXPECT_EQ(wrote.opcode, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(p.b.holds(5, n, n)) << n;
    ASSERT_EQ(kit::post(p.qa, {.offset = 32768,
                               .length = n,
                               .opcode = IBV_WR_RDMA_READ,
                               .remote_addr = p.b.at(5),
                               .rkey = p.b.mr->rkey}),
              0);
    const ibv_wc read = kit::poll_one(p.a.cq, world.wait());
    ASSERT_EQ(read.status, IBV_WC_SUCCESS) << n;
    EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
    if (n != 0) {
      EXPECT_EQ(read.byte_len, n);
    }
    EXPECT_TRUE(p.a.holds(32768, n, n)) << n;
  }
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 100'000)) << "the target sees nothing";
}

TEST(Rdma, WriteWithImmediateConsumesAReceive) {
  World world;
  Pair p(world);
  p.a.fill(0, 100, 3);
  ASSERT_EQ(kit::post_recv(p.qb, 42, 40000, 16), 0);
  ASSERT_EQ(kit::post(p.qa, {.length = 100,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .remote_addr = p.b.at(0),
                             .rkey = p.b.mr->rkey,
                             .imm = 17}),
            0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(got.wr_id, 42U);
  EXPECT_EQ(got.byte_len, 100U);
  EXPECT_EQ(got.imm_data, 17U);
  EXPECT_TRUE(p.b.holds(0, 100, 3));
}

TEST(Rdma, Atomics) {
  World world;
  Pair p(world);
  uint64_t value = 40;
  std::memcpy(p.b.buf.data() + 64, &value, 8);
  ASSERT_EQ(kit::post(p.qa, {.length = 8,
                             .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .remote_addr = p.b.at(64),
                             .rkey = p.b.mr->rkey,
                             .compare_add = 2}),
            0);
  const ibv_wc added = kit::poll_one(p.a.cq, world.wait());
  EXPECT_EQ(added.status, IBV_WC_SUCCESS);
  EXPECT_EQ(added.opcode, IBV_WC_FETCH_ADD);
  uint64_t old = 0;
  std::memcpy(&old, p.a.buf.data(), 8);
  EXPECT_EQ(old, 40U);
  for (const uint64_t compare : {41U, 42U}) {
    ASSERT_EQ(kit::post(p.qa, {.length = 8,
                               .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                               .remote_addr = p.b.at(64),
                               .rkey = p.b.mr->rkey,
                               .compare_add = compare,
                               .swap = 7}),
              0);
    EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).opcode, IBV_WC_COMP_SWAP);
    std::memcpy(&old, p.a.buf.data(), 8);
    EXPECT_EQ(old, 42U);
    std::memcpy(&value, p.b.buf.data() + 64, 8);
    EXPECT_EQ(value, compare == 42 ? 7U : 42U);
  }
  ASSERT_EQ(kit::post(p.qa, {.length = 8,
                             .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .remote_addr = p.b.at(65),
                             .rkey = p.b.mr->rkey}),
            0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_INV_REQ_ERR) << "misaligned";
}

struct Violation {
  const char* what;
  int64_t addr;  // relative to the target's buffer of 65536
  uint32_t length;
  int64_t rkey_off;
  ibv_wr_opcode opcode;
};

TEST(Rdma, RemoteAccessViolationsBreakBothSides) {
  const std::vector<Violation> cases{
      {"before the region", -1, 8, 0, IBV_WR_RDMA_WRITE},
      {"behind the region", 65529, 8, 0, IBV_WR_RDMA_WRITE},
      {"wraps the address space", -0x1000, 0x2000, 0, IBV_WR_RDMA_READ},
      {"unknown key", 0, 8, 0x5500, IBV_WR_RDMA_WRITE},
      {"unknown key, read", 0, 8, 0x5500, IBV_WR_RDMA_READ},
      {"unknown key, atomic", 0, 8, 0x5500, IBV_WR_ATOMIC_FETCH_AND_ADD},
  };
  for (const Violation& v : cases) {
    World world;
    Pair p(world);
    p.b.fill(0, p.b.buf.size(), 1);
    ASSERT_EQ(kit::post(p.qa, {.wr_id = 8,
                               .length = v.length,
                               .opcode = v.opcode,
                               .remote_addr = p.b.at(0) + static_cast<uint64_t>(v.addr),
                               .rkey = p.b.mr->rkey + static_cast<uint32_t>(v.rkey_off)}),
              0);
    EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_ACCESS_ERR) << v.what;
    EXPECT_EQ(p.qa.state(), IBV_QPS_ERR) << v.what;
    EXPECT_EQ(p.qb.state(), IBV_QPS_ERR) << v.what;
    void* element = nullptr;
    EXPECT_EQ(kit::next_event(p.b.ctx, world.wait(), 1'000'000'000, &element),
              IBV_EVENT_QP_ACCESS_ERR)
        << v.what;
    EXPECT_EQ(element, p.qb.get());
    EXPECT_TRUE(p.b.holds(0, p.b.buf.size(), 1)) << v.what;
  }
}

TEST(Rdma, RightsOfTheRegion) {
  struct Case {
    int access;
    ibv_wr_opcode opcode;
    bool allowed;
  };
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  for (const Case& c :
       {Case{kLocal, IBV_WR_RDMA_WRITE, false}, Case{kLocal, IBV_WR_RDMA_READ, false},
        Case{kLocal | IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, true},
        Case{kLocal | IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE, false},
        Case{kLocal | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, true},
        Case{kLocal | IBV_ACCESS_REMOTE_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, false},
        Case{kLocal | IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD, true}}) {
    World world;
    Pair p(world, {}, {.access = c.access});
    ASSERT_EQ(
        kit::post(
            p.qa,
            {.length = 8, .opcode = c.opcode, .remote_addr = p.b.at(0), .rkey = p.b.mr->rkey}),
        0);
    EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status,
              c.allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR)
        << c.access << " " << c.opcode;
  }
}

TEST(Rdma, RightsOfTheQueuePair) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    World world;
    Pair p(world, {.access = IBV_ACCESS_LOCAL_WRITE});
    ASSERT_EQ(
        kit::post(p.qa,
                  {.length = 8, .opcode = opcode, .remote_addr = p.b.at(0), .rkey = p.b.mr->rkey}),
        0);
    EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_INV_REQ_ERR) << opcode;
  }
}

TEST(Rdma, RegionOfAnotherDomain) {
  World world;
  Pair p(world);
  ibv_pd* other = ibv_alloc_pd(p.b.ctx);
  ASSERT_NE(other, nullptr);
  ibv_mr* mr = ibv_reg_mr(other, p.b.buf.data(), 4096, kit::kAllAccess);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(
      kit::post(p.qa, {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = p.b.at(0), .rkey = mr->rkey}),
      0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST(Rdma, DeregisteredKeyIsDead) {
  World world;
  Pair p(world);
  ibv_mr* mr = ibv_reg_mr(p.b.pd, p.b.buf.data(), 4096, kit::kAllAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  ibv_mr* next = ibv_reg_mr(p.b.pd, p.b.buf.data(), 4096, kit::kAllAccess);
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->rkey, rkey) << "a key must not come back at once";
  ASSERT_EQ(kit::post(p.qa, {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = p.b.at(0), .rkey = rkey}),
            0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(next), 0);
}

TEST(Rdma, ZeroLengthDoesNotCheckTheKey) {
  World world;
  Pair p(world);
  ASSERT_EQ(kit::post(p.qa, {.length = 0, .opcode = IBV_WR_RDMA_WRITE, .rkey = 0x1234}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Rdma, RemoteWriteNeedsLocalWrite) {
  World world;
  Node a(world.open());
  for (const int access : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(a.pd, a.buf.data(), 64, access), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST(Rdma, ReadIntoReadOnlyRegionIsALocalError) {
  World world;
  Pair p(world);
  ibv_mr* ro = ibv_reg_mr(p.a.pd, p.a.buf.data(), 4096, 0);
  ASSERT_NE(ro, nullptr);
  ASSERT_EQ(kit::post(p.qa, {.opcode = IBV_WR_RDMA_READ,
                             .remote_addr = p.b.at(0),
                             .rkey = p.b.mr->rkey,
                             .lkey = ro->lkey}),
            0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(ro), 0);
}

}  // namespace
