// What a program learns about the device, and the limits it meets.
#include <gtest/gtest.h>

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::Qp;
using kit::QpOptions;
using kit::World;

TEST(Device, DescribesItself) {
  World world(
      "[nic]\nvendor_id = 0x2c9\nfw_ver = 9.8\nmax_qp = 77\nnode_guid = 0x0102030405060708\n"
      "[nic/1]\nmtu = 2048\nrate_gbps = 25\n[nic/2]\nlink_layer = infiniband\nlid = 9\n"
      "state = down\n");
  ibv_context* ctx = world.open();
  EXPECT_STREQ(ibv_get_device_name(ctx->device), "nic");
  EXPECT_EQ(be64toh(ibv_get_device_guid(ctx->device)), 0x0102030405060708U);
  EXPECT_EQ(ctx->device->node_type, IBV_NODE_CA);
  EXPECT_EQ(ctx->device->transport_type, IBV_TRANSPORT_IB);
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(ctx, &attr), 0);
  EXPECT_EQ(attr.vendor_id, 0x2c9U);
  EXPECT_STREQ(attr.fw_ver, "9.8");
  EXPECT_EQ(attr.max_qp, 77);
  EXPECT_EQ(attr.phys_port_cnt, 2);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_GT(attr.max_srq, 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(ctx, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.active_mtu, IBV_MTU_2048);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.lid, 0);
  EXPECT_EQ(port.active_speed, 32);
  EXPECT_EQ(port.active_width, 1);
  EXPECT_EQ(port.phys_state, 5);
  ASSERT_EQ(ibv_query_port(ctx, 2, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(port.lid, 9);
  EXPECT_NE(ibv_query_port(ctx, 0, &port), 0);
  EXPECT_NE(ibv_query_port(ctx, 3, &port), 0);
}

TEST(Device, AddressTables) {
  World world(
      "[nic]\n[nic/1]\ngid = fe80::1\ngid = rocev1 fe80::2\ngid = 10.1.2.3\n"
      "pkey = 0xffff\npkey = 0x8005\n");
  ibv_context* ctx = world.open();
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(ctx, 1, &port), 0);
  ASSERT_GE(port.gid_tbl_len, 3);
  EXPECT_EQ(port.pkey_tbl_len, 2);
  EXPECT_EQ(kit::gid_of(ctx, 0).raw[15], 1);
  EXPECT_EQ(kit::gid_of(ctx, 2).raw[12], 10);
  ibv_gid gid{};
  EXPECT_NE(ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid), 0);
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(ctx, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V1));
  EXPECT_EQ(entry.gid_index, 1U);
  EXPECT_EQ(entry.port_num, 1U);
  std::vector<ibv_gid_entry> table(16);
  EXPECT_EQ(ibv_query_gid_table(ctx, table.data(), table.size(), 0), 3);
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(ctx, 1, 1, &pkey), 0);
  EXPECT_EQ(be16toh(pkey), 0x8005);
  EXPECT_NE(ibv_query_pkey(ctx, 1, 2, &pkey), 0);
  EXPECT_EQ(ibv_get_pkey_index(ctx, 1, htobe16(0x8005)), 1);
}

TEST(Device, AddressesLeadToTheRightPort) {
  World world("[a]\n[b]\n");
  Node a(world.open("a")), b(world.open("b"));
  Qp qa(a), qb(b);
  kit::connect(qa, qb);
  ASSERT_EQ(kit::post_recv(qb, 1, 0, 64), 0);
  ASSERT_EQ(kit::post(qa, {}), 0);
  EXPECT_EQ(kit::poll_one(b.cq, world.wait()).status, IBV_WC_SUCCESS);
}

template <typename Make>
size_t count_until_failure(Make make, size_t limit, int expected_errno) {
  size_t n = 0;
  while (n < limit) {
    errno = 0;
    if (!make()) {
      EXPECT_EQ(errno, expected_errno);
      return n;
    }
    ++n;
  }
  return n;
}

TEST(Device, ObjectLimits) {
  World world("[nic]\nmax_qp = 3\nmax_cq = 4\nmax_mr = 5\nmax_pd = 2\nmax_srq = 2\nmax_ah = 6\n");
  Node n(world.open());  // one PD, one CQ, one MR
  std::vector<ibv_pd*> pds;
  std::vector<ibv_cq*> cqs;
  std::vector<ibv_mr*> mrs;
  std::vector<ibv_srq*> srqs;
  std::vector<ibv_ah*> ahs;
  std::vector<ibv_qp*> qps;
  const auto keep = [](auto& all, auto* object) {
    if (object != nullptr) all.push_back(object);
    return object != nullptr;
  };
  EXPECT_EQ(count_until_failure([&] { return keep(pds, ibv_alloc_pd(n.ctx)); }, 9, ENOMEM), 1U);
  EXPECT_EQ(count_until_failure(
                [&] { return keep(cqs, ibv_create_cq(n.ctx, 4, nullptr, nullptr, 0)); }, 9, ENOMEM),
            3U);
  EXPECT_EQ(count_until_failure([&] { return keep(mrs, ibv_reg_mr(n.pd, n.buf.data(), 64, 0)); }, 9,
                                ENOMEM),
            4U);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(
      count_until_failure([&] { return keep(srqs, ibv_create_srq(n.pd, &srq_attr)); }, 9, ENOMEM),
      2U);
  ibv_ah_attr ah_attr{};
  ah_attr.is_global = 1;
  ah_attr.port_num = 1;
  EXPECT_EQ(
      count_until_failure([&] { return keep(ahs, ibv_create_ah(n.pd, &ah_attr)); }, 9, ENOMEM), 6U);
  ibv_qp_init_attr qp_attr{};
  qp_attr.send_cq = qp_attr.recv_cq = n.cq;
  qp_attr.qp_type = IBV_QPT_RC;
  qp_attr.cap = {.max_send_wr = 1,
                 .max_recv_wr = 1,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_data = 0};
  EXPECT_EQ(
      count_until_failure([&] { return keep(qps, ibv_create_qp(n.pd, &qp_attr)); }, 9, ENOMEM), 3U);
  ASSERT_FALSE(qps.empty());
  EXPECT_EQ(ibv_destroy_qp(qps.back()), 0);
  qps.back() = ibv_create_qp(n.pd, &qp_attr);
  EXPECT_NE(qps.back(), nullptr) << "a destroyed queue pair gives its place back";
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  for (ibv_ah* ah : ahs) EXPECT_EQ(ibv_destroy_ah(ah), 0);
  for (ibv_srq* srq : srqs) EXPECT_EQ(ibv_destroy_srq(srq), 0);
  for (ibv_mr* mr : mrs) EXPECT_EQ(ibv_dereg_mr(mr), 0);
  for (ibv_cq* cq : cqs) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  for (ibv_pd* pd : pds) EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

struct CapCase {
  const char* what;
  void (*spoil)(ibv_qp_init_attr&);
  int error;
};

TEST(Device, QueuePairCapabilities) {
  World world("[nic]\nmax_qp_wr = 64\nmax_sge = 1\nmax_inline = 0\nmax_srq = 0\nmax_cqe = 100\n");
  Node n(world.open());
  ibv_qp_init_attr good{};
  good.send_cq = good.recv_cq = n.cq;
  good.qp_type = IBV_QPT_RC;
  good.cap = {.max_send_wr = 64,
              .max_recv_wr = 64,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  ibv_qp* qp = ibv_create_qp(n.pd, &good);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  using A = ibv_qp_init_attr;
  for (const CapCase& c : std::vector<CapCase>{
           {"send wr", [](A& a) { a.cap.max_send_wr = 65; }, EINVAL},
           {"recv wr", [](A& a) { a.cap.max_recv_wr = 65; }, EINVAL},
           {"send sge", [](A& a) { a.cap.max_send_sge = 2; }, EINVAL},
           {"recv sge", [](A& a) { a.cap.max_recv_sge = 2; }, EINVAL},
           {"inline", [](A& a) { a.cap.max_inline_data = 1; }, EINVAL},
           {"no send cq", [](A& a) { a.send_cq = nullptr; }, EINVAL},
           {"raw packets", [](A& a) { a.qp_type = IBV_QPT_RAW_PACKET; }, EOPNOTSUPP},
       }) {
    ibv_qp_init_attr bad = good;
    c.spoil(bad);
    errno = 0;
    EXPECT_EQ(ibv_create_qp(n.pd, &bad), nullptr) << c.what;
    EXPECT_EQ(errno, c.error) << c.what;
  }
  errno = 0;
  EXPECT_EQ(ibv_create_cq(n.ctx, 101, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  errno = 0;
  EXPECT_EQ(ibv_create_srq(n.pd, &srq_attr), nullptr) << "no SRQ on this device";
}

TEST(Device, GrantedCapabilitiesAreReported) {
  World world;
  Node n(world.open());
  Qp qp(n, {.send_wr = 5, .recv_wr = 6, .sge = 2, .inline_data = 40});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_CAP, &init), 0);
  EXPECT_GE(init.cap.max_send_wr, 5U);
  EXPECT_GE(init.cap.max_recv_wr, 6U);
  EXPECT_GE(init.cap.max_send_sge, 2U);
  EXPECT_GE(init.cap.max_inline_data, 40U);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, n.cq);
}

TEST(Device, QueryQpReturnsWhatWasSet) {
  World world;
  Node a(world.open()), b(world.open());
  Qp qa(a, {.timeout = 13,
            .retry_cnt = 5,
            .rnr_retry = 3,
            .min_rnr_timer = 9,
            .sq_psn = 0x111,
            .rq_psn = 0x222});
  Qp qb(b, {.sq_psn = 0x222, .rq_psn = 0x111});
  kit::connect(qa, qb);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qa.get(), &attr, (1 << 21) - 1, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, qb.num());
  EXPECT_EQ(attr.sq_psn, 0x111U);
  EXPECT_EQ(attr.rq_psn, 0x222U);
  EXPECT_EQ(attr.timeout, 13);
  EXPECT_EQ(attr.retry_cnt, 5);
  EXPECT_EQ(attr.rnr_retry, 3);
  EXPECT_EQ(attr.min_rnr_timer, 9);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.pkey_index, 0);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(kit::kAllAccess));
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, kit::gid_of(b.ctx, 0).raw, 16), 0);
}

TEST(Device, RefusedModifyChangesNothing) {
  World world;
  Node a(world.open());
  Qp qa(a);
  ASSERT_EQ(qa.to_init(), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(qa.get(), &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qa.get(), &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qa.state(), IBV_QPS_INIT);
}

TEST(Device, QueuePairNumbersAreNotReusedAtOnce) {
  World world;
  Node a(world.open());
  std::vector<uint32_t> seen;
  for (int i = 0; i < 200; ++i) {
    Qp qp(a);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), qp.num()), 0) << i;
    EXPECT_GT(qp.num(), 1U);
    EXPECT_LE(qp.num(), 0xffffffU);
    seen.push_back(qp.num());
  }
}

}  // namespace
