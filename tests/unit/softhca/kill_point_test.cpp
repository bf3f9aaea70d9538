// A process dies at every place where it changes shared memory, one place after the other. Cast:
//   survivor   holds the queues that the victim works on, and must stay whole and responsive
//   first dead dies holding the survivor's lock before the victim does anything, so that the victim
//   also
//              sweeps and breaks locks
//   victim     runs one script that passes every kill point; it must die at the armed one
//   newcomer   attaches afterwards and exchanges data with the survivor
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "softhca/engine/kill_point.h"
#include "tests/unit/softhca/process_kit.h"

namespace {

using kit::Child;
using kit::Leftover;
using kit::Link;
using kit::Node;
using kit::open_device;
using kit::OwnFabric;
using kit::Qp;
using kit::QpOptions;

// The survivor's queue pairs, by what the victim does with them.
enum Role : unsigned { kPlain, kShared, kOverrun, kViolated, kRoles };

struct Numbers {
  uint32_t qpn[kRoles];
  uint32_t first_dead_qpn;  // the survivor's partner for the first dead
  uint32_t rkey;
  uint64_t buf;
};

constexpr QpOptions kQuick{.timeout = 10, .retry_cnt = 2};

void bring_up(Qp& qp, uint32_t peer) {
  EXPECT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(peer, kit::gid_of(qp.node().ctx, 0)), 0);
  EXPECT_EQ(qp.to_rts(), 0);
}

// ---- survivor -----------------------------------------------------------------------------------

class Survivor {
 public:
  explicit Survivor(ibv_context* ctx)
      : node_(ctx, {.cqe = 1000, .bytes = 1 << 20, .channel = true, .srq_wr = 64}),
        tiny_(ibv_create_cq(ctx, 1, nullptr, nullptr, 0)) {
    for (unsigned role = 0; role < kRoles; ++role) {
      QpOptions options = kQuick;
      options.recv_wr = 64;
      if (role == kShared) options.srq = node_.srq;
      if (role == kOverrun) options.recv_cq = tiny_;
      qps_.push_back(std::make_unique<Qp>(node_, options));
    }
    first_dead_ = std::make_unique<Qp>(node_, kQuick);
  }
  ~Survivor() {
    qps_.clear();
    EXPECT_EQ(ibv_destroy_cq(tiny_), 0);
  }
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;

  int run(Link& link);

 private:
  Numbers numbers();
  void connect_victim(const Numbers& victim);
  void connect_first_dead(uint32_t qpn);
  void settle();
  void meet(Link& link);

  Node node_;
  ibv_cq* tiny_;
  std::vector<std::unique_ptr<Qp>> qps_;
  std::unique_ptr<Qp> first_dead_;
};

Numbers Survivor::numbers() {
  Numbers n{};
  for (unsigned role = 0; role < kRoles; ++role) n.qpn[role] = qps_[role]->num();
  n.first_dead_qpn = first_dead_->num();
  n.rkey = node_.mr->rkey;
  n.buf = node_.at(0);
  return n;
}

void Survivor::connect_victim(const Numbers& victim) {
  for (unsigned role = 0; role < kRoles; ++role) {
    Qp& qp = *qps_[role];
    EXPECT_EQ(qp.to_init(), 0);
    for (int i = 0; i < 32 && role != kShared; ++i) EXPECT_EQ(kit::post_recv(qp, 1, 0, 200'000), 0);
    bring_up(qp, victim.qpn[role]);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(kit::post_srq(node_, 2, 0, 4096), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 4;
  EXPECT_EQ(ibv_modify_srq(node_.srq, &attr, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(ibv_req_notify_cq(node_.cq, 0), 0);
}

void Survivor::connect_first_dead(uint32_t qpn) {
  EXPECT_EQ(first_dead_->to_init(), 0);
  EXPECT_EQ(kit::post_recv(*first_dead_, 3, 0, 4096), 0);
  bring_up(*first_dead_, qpn);
}

// The dead are gone: everything that was posted comes back in time, and every call still works.
void Survivor::settle() {
  while (!kit::quiet(node_.cq, kit::real_wait, 1'000'000)) {
  }
  for (auto& qp : qps_) {
    if (qp->state() != IBV_QPS_RTS) continue;
    EXPECT_EQ(kit::post(*qp, {.wr_id = 77}), 0);
    ibv_wc wc = kit::poll_one(node_.cq, kit::real_wait, 5'000'000'000);
    // What the victim had begun (a message, an error of ours) may be completed only now.
    while (wc.wr_id != 77 && wc.wr_id != UINT64_MAX)
      wc = kit::poll_one(node_.cq, kit::real_wait, 5'000'000'000);
    EXPECT_EQ(wc.wr_id, 77U);
    EXPECT_NE(wc.status, IBV_WC_SUCCESS) << "a dead process answered";
    EXPECT_EQ(qp->to(IBV_QPS_ERR), 0);
    while (!kit::quiet(node_.cq, kit::real_wait, 1'000'000)) {
    }
  }
  for (auto& qp : qps_) EXPECT_EQ(qp->to(IBV_QPS_RESET), 0);
  EXPECT_EQ(first_dead_->to(IBV_QPS_RESET), 0);
}

// Exchanges data with the newcomer over the same CQ and SRQ that the victim used.
void Survivor::meet(Link& link) {
  QpOptions options = kQuick;
  options.timeout = 16;
  options.srq = node_.srq;
  Qp qp(node_, options);
  uint32_t peer = 0;
  EXPECT_EQ(kit::post_srq(node_, 5, 500'000, 4096), 0);
  EXPECT_TRUE(link.put(qp.num()) && link.get(peer));
  bring_up(qp, peer);
  EXPECT_TRUE(link.go() && link.wait());
  const ibv_wc got = kit::poll_one(node_.cq, kit::real_wait, 5'000'000'000);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.byte_len, 1000U);
  const size_t where = got.wr_id == 5 ? 500'000 : 0;  // or a buffer that the victim left
  EXPECT_TRUE(node_.holds(where, 1000, 31));
  node_.fill(600'000, 1000, 32);
  EXPECT_EQ(kit::post(qp, {.wr_id = 6, .offset = 600'000, .length = 1000}), 0);
  const ibv_wc sent = kit::poll_one(node_.cq, kit::real_wait, 5'000'000'000);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(link.go() && link.wait());
}

int Survivor::run(Link& link) {
  if (!link.put(numbers())) return 1;
  for (;;) {
    char command = 0;
    if (!link.get(command, 60000)) return 1;
    Numbers victim{};
    switch (command) {
      case 'f': {
        uint32_t qpn = 0;
        if (!link.get(qpn)) return 1;
        connect_first_dead(qpn);
        break;
      }
      case 'v':
        if (!link.get(victim)) return 1;
        connect_victim(victim);
        break;
      case 's':
        settle();
        break;
      case 'm':
        meet(link);
        break;
      default:
        return 0;
    }
    if (!link.go()) return 1;
  }
}

int survivor_main(Link& link) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  int rc = 0;
  {
    Survivor survivor(ctx);
    rc = survivor.run(link);
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return rc;
}

// ---- first dead, victim, newcomer
// -----------------------------------------------------------------

int first_dead_main(Link& link) {
  ::setenv("SOFTHCA_KILL", "deliver_locked", 1);
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  Node node(ctx);
  Qp qp(node, kQuick);
  Numbers survivor{};
  if (!link.put(qp.num()) || !link.get(survivor)) return 1;
  bring_up(qp, survivor.first_dead_qpn);
  if (!link.go() || !link.wait()) return 1;
  (void)kit::post(qp, {});
  return 1;  // still alive
}

// Work on the victim's own objects only.
void work_alone(Node& node) {
  ibv_mr* mr = ibv_reg_mr(node.pd, node.buf.data(), 4096, kit::kAllAccess);
  if (mr != nullptr) (void)ibv_dereg_mr(mr);
  Qp a(node), b(node);
  kit::connect(a, b);
  for (int i = 0; i < 4; ++i) (void)kit::post_recv(b, 1, 0, 4096);
  (void)kit::post(a, {});
  (void)kit::poll(node.cq, 2, kit::real_wait);
  (void)b.to(IBV_QPS_ERR);
  (void)kit::poll(node.cq, 3, kit::real_wait);
}

void work_on_survivor(Node& node, std::vector<std::unique_ptr<Qp>>& qps, const Numbers& survivor) {
  (void)kit::post(*qps[kPlain], {.length = 8});
  (void)kit::post(*qps[kPlain], {.length = 2000});
  (void)kit::post(*qps[kPlain], {.length = 100'000});
  (void)kit::post(*qps[kPlain], {.length = 5000,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .remote_addr = survivor.buf + 700'000,
                                 .rkey = survivor.rkey});
  (void)kit::post(*qps[kPlain], {.length = 5000,
                                 .opcode = IBV_WR_RDMA_READ,
                                 .remote_addr = survivor.buf + 700'000,
                                 .rkey = survivor.rkey});
  (void)kit::post(*qps[kShared], {.length = 8});
  (void)kit::post(*qps[kShared], {.length = 8});
  for (int i = 0; i < 16; ++i) (void)kit::post(*qps[kOverrun], {.length = 8, .flags = 0});
  (void)kit::post(*qps[kViolated], {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = 16, .rkey = 0x7});
  (void)kit::poll(node.cq, 6, kit::real_wait, 100'000'000);
}

int victim_main(Link& link, const char* point) {
  ::setenv("SOFTHCA_KILL", point, 1);
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx, {.cqe = 1000, .bytes = 1 << 20});
    std::vector<std::unique_ptr<Qp>> qps;
    Numbers mine{};
    for (unsigned role = 0; role < kRoles; ++role) {
      QpOptions options = kQuick;
      options.send_wr = 64;
      qps.push_back(std::make_unique<Qp>(node, options));
      mine.qpn[role] = qps.back()->num();
    }
    Numbers survivor{};
    if (!link.put(mine) || !link.get(survivor)) return 1;
    for (unsigned role = 0; role < kRoles; ++role) bring_up(*qps[role], survivor.qpn[role]);
    if (!link.go() || !link.wait()) return 1;
    work_on_survivor(node, qps, survivor);
    work_alone(node);
  }
  (void)ibv_close_device(ctx);
  return 0;
}

int newcomer_main(Link& link) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx);
    QpOptions options = kQuick;
    options.timeout = 16;
    Qp qp(node, options);
    uint32_t peer = 0;
    if (!link.put(qp.num()) || !link.get(peer)) return 1;
    EXPECT_EQ(qp.to_init(), 0);
    EXPECT_EQ(kit::post_recv(qp, 1, 8192, 4096), 0);
    bring_up(qp, peer);
    if (!link.go() || !link.wait()) return 1;
    node.fill(0, 1000, 31);
    EXPECT_EQ(kit::post(qp, {.wr_id = 2, .length = 1000}), 0);
    for (const ibv_wc& wc : kit::poll(node.cq, 2, kit::real_wait, 5'000'000'000))
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_TRUE(node.holds(8192, 1000, 32));
    if (!link.go() || !link.wait()) return 1;
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

// ---- the play
// -------------------------------------------------------------------------------------

bool order(Child& who, char command) { return who.link().put(command); }

class KillPoints : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string point_ = GetParam();
  // Dies before there is anything to share a fabric with.
  bool alone() const { return stale() || point_ == "global_init_started"; }
  // Meets what another fabric left.
  bool stale() const { return point_ == "stale_fabric_opened"; }
  // Must meet the lock that the first dead holds, so it is connected before that death.
  bool early() const { return point_ == "lock_broken"; }
};

void kill_first_dead(Child& survivor, Child& first_dead) {
  survivor.stop();  // so that it does not clean up itself
  ASSERT_TRUE(first_dead.link().go());
  ASSERT_EQ(first_dead.join(), 128 + SIGKILL);
}

void introduce_first_dead(Child& survivor, Child& first_dead, const Numbers& numbers) {
  uint32_t qpn = 0;
  ASSERT_TRUE(first_dead.link().get(qpn));
  ASSERT_TRUE(order(survivor, 'f') && survivor.link().put(qpn) && survivor.link().wait());
  ASSERT_TRUE(first_dead.link().put(numbers) && first_dead.link().wait());
}

// Connects the victim to the survivor if it lives long enough, and lets it work until it dies.
bool connect_victim(Child& survivor, Child& victim, const Numbers& numbers) {
  Numbers mine{};
  if (!victim.link().get(mine)) return false;
  survivor.signal(SIGCONT);
  if (!order(survivor, 'v') || !survivor.link().put(mine) || !survivor.link().wait()) return false;
  return victim.link().put(numbers) && victim.link().wait();
}

void prove_survivor(Child& survivor) {
  ASSERT_TRUE(order(survivor, 's'));
  ASSERT_TRUE(survivor.link().wait(60000)) << "the survivor hangs";
  Child newcomer(newcomer_main);
  ASSERT_TRUE(order(survivor, 'm'));
  uint32_t of_survivor = 0, of_newcomer = 0;
  ASSERT_TRUE(survivor.link().get(of_survivor));
  ASSERT_TRUE(newcomer.link().get(of_newcomer));
  ASSERT_TRUE(survivor.link().put(of_newcomer));
  ASSERT_TRUE(newcomer.link().put(of_survivor));
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(survivor.link().wait());
    ASSERT_TRUE(newcomer.link().wait());
    ASSERT_TRUE(survivor.link().go());
    ASSERT_TRUE(newcomer.link().go());
  }
  EXPECT_EQ(newcomer.join(), 0);
  ASSERT_TRUE(survivor.link().wait());
  ASSERT_TRUE(order(survivor, 'q'));
  EXPECT_EQ(survivor.join(), 0);
}

TEST_P(KillPoints, HarmsNobody) {
  OwnFabric another("kpleft");
  std::unique_ptr<Leftover> left;
  if (stale()) left = std::make_unique<Leftover>(another);
  OwnFabric fabric("kp");
  const auto start_victim = [this] {
    return std::make_unique<Child>(
        [this](Link& link) { return victim_main(link, point_.c_str()); });
  };
  std::unique_ptr<Child> victim;
  if (alone()) {
    victim = start_victim();
    ASSERT_EQ(victim->join(), 128 + SIGKILL) << point_ << " never fired";
  }
  Child survivor(survivor_main);
  Numbers numbers{};
  ASSERT_TRUE(survivor.link().get(numbers));
  if (!alone()) {
    Child first_dead(first_dead_main);
    introduce_first_dead(survivor, first_dead, numbers);
    if (early()) {
      victim = start_victim();
      ASSERT_TRUE(connect_victim(survivor, *victim, numbers));
    }
    kill_first_dead(survivor, first_dead);
    if (!early()) {
      victim = start_victim();
      if (connect_victim(survivor, *victim, numbers)) (void)victim->link().go();
    } else {
      ASSERT_TRUE(victim->link().go());
    }
    ASSERT_EQ(victim->join(), 128 + SIGKILL) << point_ << " never fired";
    survivor.signal(SIGCONT);
  }
  prove_survivor(survivor);
}

std::string point_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Every, KillPoints,
                         ::testing::ValuesIn(softhca::kill_point_names().begin(),
                                             softhca::kill_point_names().end()),
                         point_name);

// Without a point the script runs to its end: what kills the victim above is the point, not the
// script.
TEST(KillPointScript, SurvivesUnarmed) {
  OwnFabric fabric("kp0");
  Child survivor(survivor_main);
  Numbers numbers{};
  ASSERT_TRUE(survivor.link().get(numbers));
  Child victim([](Link& link) { return victim_main(link, ""); });
  ASSERT_TRUE(connect_victim(survivor, victim, numbers));
  ASSERT_TRUE(victim.link().go());
  EXPECT_EQ(victim.join(), 0);
  prove_survivor(survivor);
}

}  // namespace
