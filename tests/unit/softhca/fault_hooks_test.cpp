// The schedule reaches the calls: the k-th call fails with the errno it was told, the next one
// works, and nothing leaks.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "softhca/fault/fault_list.h"
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
};

TEST(FaultHooks, EveryCallOfTheGrammarIsHooked) {
  ASSERT_EQ(kCalls.size(), static_cast<size_t>(softhca::FaultCall::kCount));
  for (const Call& call : kCalls) {
    World world;
    Node node(world.open(), {.srq_wr = 4});
    const auto table = softhca::parse_faults("fail=" + std::string(call.name) + ":3:EIO");
    ASSERT_TRUE(table.has_value()) << table.error().str();
    world.sim().schedule_faults(*table);
    EXPECT_EQ(call.run(node), 0) << call.name;
    EXPECT_EQ(call.run(node), 0) << call.name;
    EXPECT_EQ(call.run(node), EIO) << call.name;
    EXPECT_EQ(call.run(node), 0) << call.name;
  }
}

}  // namespace
