#include "tests/unit/softhca/process_kit.h"

#include <gtest/gtest.h>

namespace kit {

ibv_context* open_device() {
  int n = 0;
  ibv_device** list = ibv_get_device_list(&n);
  ibv_context* ctx = list == nullptr || n == 0 ? nullptr : ibv_open_device(list[0]);
  EXPECT_NE(ctx, nullptr);
  if (list != nullptr) ibv_free_device_list(list);
  return ctx;
}

bool connect_through(Link& link, Qp& qp, Address* peer) {
  const Address mine{qp.num(), qp.node().mr->rkey, qp.node().at(0)};
  if (!link.put(mine) || !link.get(*peer)) return false;
  EXPECT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(peer->qpn, gid_of(qp.node().ctx, 0)), 0);
  EXPECT_EQ(qp.to_rts(), 0);
  return link.go() && link.wait();
}

void introduce(Child& a, Child& b) {
  Address from_a{}, from_b{};
  ASSERT_TRUE(a.link().get(from_a));
  ASSERT_TRUE(b.link().get(from_b));
  ASSERT_TRUE(a.link().put(from_b));
  ASSERT_TRUE(b.link().put(from_a));
  ASSERT_TRUE(a.link().wait());
  ASSERT_TRUE(b.link().wait());
  ASSERT_TRUE(a.link().go());
  ASSERT_TRUE(b.link().go());
}

}  // namespace kit
