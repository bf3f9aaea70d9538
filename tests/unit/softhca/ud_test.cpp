// Unreliable datagrams: the 40 bytes of GRH, Q_Keys, MTU, loss without a buffer.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::Send;
using kit::World;

constexpr uint32_t kGrh = 40;

struct UdPair {
  explicit UdPair(World& world, uint32_t target_qkey = 0x11111111)
      : a(world.open()),
        b(world.open()),
        qa(a, {.type = IBV_QPT_UD}),
        qb(b, {.type = IBV_QPT_UD, .qkey = target_qkey}) {
    kit::bring_up_ud(qa);
    kit::bring_up_ud(qb);
    ah = kit::make_ah(a, b);
    EXPECT_NE(ah, nullptr);
  }
  ~UdPair() { EXPECT_EQ(ibv_destroy_ah(ah), 0); }
  UdPair(const UdPair&) = delete;
  UdPair& operator=(const UdPair&) = delete;
  int send(uint32_t length, uint32_t qkey = 0x11111111) {
    return kit::post(qa, {.length = length, .ah = ah, .dest_qpn = qb.num(), .dest_qkey = qkey});
  }
  Node a, b;
  Qp qa, qb;
  ibv_ah* ah = nullptr;
};

TEST(Ud, DataFollowsTheGrh) {
  World world;
  UdPair p(world);
  for (const uint32_t n : {0U, 1U, 64U, 256U, 1024U, 4096U}) {
    p.a.fill(0, n, n + 1);
    ASSERT_EQ(kit::post_recv(p.qb, n, 0, 4096 + kGrh), 0);
    ASSERT_EQ(p.send(n), 0);
    EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
    const ibv_wc got = kit::poll_one(p.b.cq, world.wait());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS) << n;
    EXPECT_EQ(got.byte_len, n + kGrh);
    EXPECT_EQ(got.src_qp, p.qa.num());
    EXPECT_NE(got.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_TRUE(p.b.holds(kGrh, n, n + 1)) << n;
  }
}

TEST(Ud, ReplyGoesByTheCompletion) {
  World world;
  UdPair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  ASSERT_EQ(p.send(8), 0);
  ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  ASSERT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  ibv_ah* back = ibv_create_ah_from_wc(p.b.pd, &got, reinterpret_cast<ibv_grh*>(p.b.buf.data()), 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(kit::post_recv(p.qa, 2, 4096, 4096), 0);
  p.b.fill(8192, 32, 6);
  ASSERT_EQ(kit::post(p.qb, {.offset = 8192, .length = 32, .ah = back, .dest_qpn = got.src_qp}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).wr_id, 2U);
  EXPECT_TRUE(p.a.holds(4096 + kGrh, 32, 6));
  EXPECT_EQ(ibv_destroy_ah(back), 0);
}

// RoCE v2 over IPv4 has an IPv4 header where others have a GRH: in the last 20 of the 40 bytes.
TEST(Ud, Ipv4GidsComeAsAnIpv4Header) {
  World world;
  UdPair p(world);
  ibv_gid own{};
  ASSERT_EQ(ibv_query_gid(p.a.ctx, 1, 1, &own), 0);
  ASSERT_EQ(own.raw[11], 0xff) << "index 1 is the one of an IPv4 address";
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.dgid = own;
  attr.grh.sgid_index = 1;
  attr.grh.hop_limit = 64;
  ibv_ah* to_ipv4 = ibv_create_ah(p.a.pd, &attr);
  ASSERT_NE(to_ipv4, nullptr);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  ASSERT_EQ(kit::post(p.qa, {.offset = 0, .length = 8, .ah = to_ipv4, .dest_qpn = p.qb.num()}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  ibv_wc got = kit::poll_one(p.b.cq, world.wait());
  ASSERT_NE(got.wc_flags & IBV_WC_GRH, 0U);
  const auto* grh = reinterpret_cast<const uint8_t*>(p.b.buf.data());
  EXPECT_NE(grh[0] >> 4, 6);
  EXPECT_EQ(grh[20], 0x45);
  EXPECT_EQ(std::memcmp(grh + 32, own.raw + 12, 4), 0) << "source";
  EXPECT_EQ(std::memcmp(grh + 36, own.raw + 12, 4), 0) << "destination";
  ibv_ah_attr back{};
  ASSERT_EQ(
      ibv_init_ah_from_wc(p.b.ctx, 1, &got, reinterpret_cast<ibv_grh*>(p.b.buf.data()), &back), 0);
  EXPECT_EQ(std::memcmp(back.grh.dgid.raw, own.raw, sizeof(own.raw)), 0);
  EXPECT_EQ(back.grh.sgid_index, 1);
  EXPECT_EQ(back.grh.hop_limit, 64);
  EXPECT_EQ(ibv_destroy_ah(to_ipv4), 0);
}

TEST(Ud, WrongQkeyIsDropped) {
  World world;
  UdPair p(world, 0x22222222);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  ASSERT_EQ(p.send(8), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS) << "the sender never knows";
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 1'000'000));
  ASSERT_EQ(p.send(8, 0x22222222), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Ud, HighBitMeansTheQueuePairsOwnQkey) {
  World world;
  UdPair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  ASSERT_EQ(p.send(8, 0x80000001), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Ud, NoBufferNoDatagram) {
  World world;
  UdPair p(world);
  ASSERT_EQ(p.send(8), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  EXPECT_TRUE(kit::quiet(p.b.cq, world.wait(), 1'000'000)) << "it is gone";
}

TEST(Ud, SmallBufferDropsAndStaysUsable) {
  World world;
  UdPair p(world);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, kGrh + 4), 0);
  ASSERT_EQ(p.send(8), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.qb.state(), IBV_QPS_RTS);
}

TEST(Ud, LongerThanTheMtuIsRefused) {
  World world;
  UdPair p(world);
  ASSERT_EQ(p.send(4097), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_LOC_LEN_ERR);
}

TEST(Ud, NobodyThere) {
  World world;
  UdPair p(world);
  ASSERT_EQ(kit::post(p.qa, {.ah = p.ah, .dest_qpn = 0xfffff0}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Ud, SendErrorStopsSendingOnly) {
  World world;
  UdPair p(world);
  ASSERT_EQ(kit::post(p.qa, {.wr_id = 1, .ah = p.ah, .dest_qpn = p.qb.num(), .lkey = 0xffffff}), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(p.qa.state(), IBV_QPS_SQE);
  ASSERT_EQ(p.send(8), 0);
  EXPECT_EQ(kit::poll_one(p.a.cq, world.wait()).status, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(p.qa.get(), &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(kit::post_recv(p.qb, 1, 0, 4096), 0);
  ASSERT_EQ(p.send(8), 0);
  EXPECT_EQ(kit::poll_one(p.b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

TEST(Ud, RdmaIsNotForDatagrams) {
  World world;
  UdPair p(world);
  EXPECT_EQ(kit::post(p.qa, {.opcode = IBV_WR_RDMA_WRITE, .ah = p.ah, .dest_qpn = p.qb.num()}),
            EINVAL);
}

}  // namespace
