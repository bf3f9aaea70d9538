// The schedule reaches the calls: the k-th call fails with the errno it was told, the next one
// works, and nothing leaks.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "softhca/fault/fault_names.h"
#include "softhca/fault/fault_rule.h"
#include "tests/unit/softhca/verbs_kit.h"
#include "tests/unit/softhca/world.h"

namespace {

using kit::Node;
using kit::World;

struct Call {
  const char* name;
  std::function<int(Node&)> run;  // 0 or errno; undoes itself
};

template <typename T, typename Destroy>
int made(T* object, Destroy destroy) {
  if (object == nullptr) return errno;
  EXPECT_EQ(destroy(object), 0);
  return 0;
}

ibv_qp* make_qp(Node& n) {
  ibv_qp_init_attr a{};
  a.send_cq = a.recv_cq = n.cq;
  a.qp_type = IBV_QPT_RC;
  a.cap = {.max_send_wr = 1,
           .max_recv_wr = 1,
           .max_send_sge = 1,
           .max_recv_sge = 1,
           .max_inline_data = 0};
  return ibv_create_qp(n.pd, &a);
}

int with_qp(Node& n, const std::function<int(ibv_qp*)>& use) {
  ibv_qp* qp = make_qp(n);
  if (qp == nullptr) return errno;
  const int rc = use(qp);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  return rc;
}

const std::vector<Call> kCalls{
    {"alloc_pd", [](Node& n) { return made(ibv_alloc_pd(n.ctx), ibv_dealloc_pd); }},
    {"reg_mr", [](Node& n) { return made(ibv_reg_mr(n.pd, n.buf.data(), 64, 0), ibv_dereg_mr); }},
    {"create_comp_channel",
     [](Node& n) { return made(ibv_create_comp_channel(n.ctx), ibv_destroy_comp_channel); }},
    {"create_cq",
     [](Node& n) { return made(ibv_create_cq(n.ctx, 4, nullptr, nullptr, 0), ibv_destroy_cq); }},
    {"create_srq",
     [](Node& n) {
       ibv_srq_init_attr a{};
       a.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
       return made(ibv_create_srq(n.pd, &a), ibv_destroy_srq);
     }},
    {"modify_srq",
     [](Node& n) {
       ibv_srq_attr a{};
       return ibv_modify_srq(n.srq, &a, IBV_SRQ_LIMIT);
     }},
    {"create_qp", [](Node& n) { return made(make_qp(n), ibv_destroy_qp); }},
    {"modify_qp",
     [](Node& n) {
       return with_qp(n, [](ibv_qp* qp) {
         ibv_qp_attr a{};
         a.qp_state = IBV_QPS_RESET;
         return ibv_modify_qp(qp, &a, IBV_QP_STATE);
       });
     }},
    {"query_qp",
     [](Node& n) {
       return with_qp(n, [](ibv_qp* qp) {
         ibv_qp_attr a{};
         ibv_qp_init_attr i{};
         return ibv_query_qp(qp, &a, IBV_QP_STATE, &i);
       });
     }},
    {"create_ah",
     [](Node& n) {
       ibv_ah_attr a{};
       a.is_global = 1;
       a.port_num = 1;
       return made(ibv_create_ah(n.pd, &a), ibv_destroy_ah);
     }},
    {"post_send",
     [](Node& n) {
       kit::Qp self(n);
       EXPECT_EQ(self.to_init(), 0);
       EXPECT_EQ(self.to_rtr(self.num(), kit::gid_of(n.ctx, 0)), 0);
       EXPECT_EQ(self.to_rts(), 0);
       EXPECT_EQ(kit::post_recv(self, 1, 0, 64), 0);
       return kit::post(self, {});
     }},
};

TEST(FaultHooks, EveryCallOfTheGrammarIsHooked) {
  ASSERT_EQ(kCalls.size(), static_cast<size_t>(softhca::FaultCall::kCount));
  for (const Call& call : kCalls) {
    World world;
    Node node(world.open(), {.srq_wr = 4});
    ASSERT_TRUE(world.sim().add_faults("fail=" + std::string(call.name) + ":3:EIO"));
    EXPECT_EQ(call.run(node), 0) << call.name;
    EXPECT_EQ(call.run(node), 0) << call.name;
    EXPECT_EQ(call.run(node), EIO) << call.name;
    EXPECT_EQ(call.run(node), 0) << call.name;
    EXPECT_EQ(world.sim().fault_hits("fail"), 1U);
    ASSERT_EQ(world.sim().fault_log().size(), 1U);
    EXPECT_EQ(softhca::fault_call_name(world.sim().fault_log()[0].call), call.name);
  }
}

TEST(FaultHooks, SlowCallsTakeTime) {
  World world;
  Node node(world.open());
  ASSERT_TRUE(world.sim().add_faults("delay=create_qp:2:30ms"));
  const uint64_t start = world.now();
  EXPECT_EQ(made(make_qp(node), ibv_destroy_qp), 0);
  EXPECT_EQ(world.now(), start);
  EXPECT_EQ(made(make_qp(node), ibv_destroy_qp), 0);
  EXPECT_EQ(world.now(), start + 30'000'000);
}

TEST(FaultHooks, ModifyFailsOnTheWayToOneState) {
  World world;
  Node node(world.open());
  ASSERT_TRUE(world.sim().add_faults("fail=modify_qp:1:ETIMEDOUT:to=RTR"));
  kit::Qp qp(node);
  EXPECT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(qp.num(), kit::gid_of(node.ctx, 0)), ETIMEDOUT);
  EXPECT_EQ(qp.state(), IBV_QPS_INIT) << "nothing changed";
  EXPECT_EQ(qp.to_rtr(qp.num(), kit::gid_of(node.ctx, 0)), 0);
}

TEST(FaultHooks, AnotherRankIsLeftAlone) {
  World world;
  Node first(world.open());
  Node second(world.open());
  ASSERT_TRUE(world.sim().add_faults("fail=create_qp:1+:EIO:rank=1"));
  EXPECT_EQ(made(make_qp(first), ibv_destroy_qp), 0);
  EXPECT_EQ(made(make_qp(second), ibv_destroy_qp), EIO);
  world.sim().clear_faults();
  EXPECT_EQ(made(make_qp(second), ibv_destroy_qp), 0);
}

}  // namespace
