// Keys and memory that the device refuses: one repair, one replay, then the connection is given up
// by name, and nobody else suffers.
#include <gtest/gtest.h>

#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

constexpr std::size_t kBytes = 100000;

class Repair : public ::testing::Test {
 protected:
  void TearDown() override {
    // Who was given up on cannot be said goodbye to.
    fabric.close_all();
    fabric[0].transport->deregister_region(mine);
    fabric[1].transport->deregister_region(theirs);
  }
  void register_all() {
    ASSERT_EQ(fabric.error(), "");
    ASSERT_TRUE(fabric[0].transport->register_region(local.data(), kBytes, kAllAccess, mine));
    ASSERT_TRUE(fabric[1].transport->register_region(remote.data(), kBytes, kAllAccess, theirs));
  }
  void start(ops::RdmaOp::Dir dir) {
    op = transfer(dir, local, mine, remote.data(), theirs, done);
    fabric[0].to(1).rdma(op);
  }
  // Messages of all pairs but 0 and 1 arrive, in both directions.
  void expect_others_unharmed() {
    const std::size_t before = fabric[2].inbox.size();
    for (std::uint64_t i = 0; i < 20; ++i) {
      fabric[0].send(2, 100, i);
      fabric[1].send(2, 100, i);
    }
    EXPECT_TRUE(fabric.until([&] { return fabric[2].inbox.size() == before + 40; }));
    EXPECT_TRUE(fabric[2].gave_up.empty());
  }

  VerbsSpy spy;
  Fabric fabric{3};
  std::vector<std::byte> local = pattern(kBytes, 1), remote = pattern(kBytes, 2);
  conn::Region mine, theirs;
  ops::RdmaOp op;
  int done = 0;
};

TEST_F(Repair, RefusedRemoteKeyIsRefreshedAndThePutReplayed) {
  spy.spoil(remote.data(), 1);
  register_all();
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return done == 1; }));
  EXPECT_EQ(spy.spoiled(), 1);
  EXPECT_EQ(remote, local);
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
  // The handle still has the old keys; they are not tried again.
  remote.assign(kBytes, std::byte{});
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return done == 2; }));
  EXPECT_EQ(remote, local);
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
  EXPECT_TRUE(fabric[0].gave_up.empty());
  expect_others_unharmed();
}

TEST_F(Repair, RefusedRemoteKeyOfAGet) {
  spy.spoil(remote.data(), 1);
  register_all();
  start(ops::RdmaOp::Dir::Get);
  ASSERT_TRUE(fabric.until([&] { return done == 1; }));
  EXPECT_EQ(local, remote);
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
}

// The peer asks for a recovery while nobody polls here: the refusal is found by the fence. It was
// not, and each replay went the same way.
TEST_F(Repair, RefusalThatThePeerNoticesFirst) {
  spy.spoil(remote.data(), 1);
  register_all();
  start(ops::RdmaOp::Dir::Get);
  ASSERT_TRUE(fabric.until_by(
      {1, 2}, [&] { return fabric[0].stat("repairs") == 1; }, 10000));
  ASSERT_TRUE(fabric.until([&] { return done == 1; }));
  EXPECT_EQ(local, remote);
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
}

TEST_F(Repair, MessagesBehindARefusedPutStayInOrderAndComeOnce) {
  spy.spoil(remote.data(), 1);
  register_all();
  for (std::uint64_t i = 0; i < 10; ++i) fabric[0].send(1, 50, i);
  start(ops::RdmaOp::Dir::Put);
  for (std::uint64_t i = 10; i < 200; ++i) fabric[0].send(1, 50, i);
  ASSERT_TRUE(fabric.until([&] { return done == 1 && fabric[1].inbox.size() == 200; }));
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_EQ(fabric[1].inbox[i].bytes, pattern(50, i));
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
}

TEST_F(Repair, ASecondRefusalNamesOperationKeyAddressStatusAndPeer) {
  spy.spoil(remote.data(), 2);
  register_all();
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return !fabric[0].gave_up.empty(); }));
  EXPECT_EQ(spy.spoiled(), 2);
  EXPECT_EQ(done, 0);
  ASSERT_EQ(fabric[0].gave_up.size(), 1u);
  const std::string& text = fabric[0].gave_up[0];
  for (const char* part : {"REM_ACCESS_ERR", "put of 100000 bytes", "rkey 0x", "address 0x",
                           "rank 1", "QP ", "again after its keys were renewed"})
    EXPECT_TRUE(contains(text, part)) << part << " in: " << text;
  expect_others_unharmed();
}

TEST_F(Repair, ARegionThatIsGoneIsNamedAtOnce) {
  register_all();
  const ops::RemoteKeys stale = theirs.remote;
  fabric[1].transport->deregister_region(theirs);
  theirs.remote = stale;
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return !fabric[0].gave_up.empty(); }));
  EXPECT_TRUE(contains(fabric[0].gave_up[0], "has no region")) << fabric[0].gave_up[0];
  expect_others_unharmed();
}

TEST_F(Repair, RefusedLocalMemoryIsRegisteredOnceMore) {
  spy.spoil(local.data(), 1);
  register_all();
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return done == 1; }));
  EXPECT_EQ(spy.spoiled(), 1);
  EXPECT_EQ(remote, local);
  EXPECT_EQ(fabric[0].stat("repairs"), 1);
  EXPECT_TRUE(fabric[0].gave_up.empty());
  expect_others_unharmed();
}

TEST_F(Repair, LocalMemoryRefusedTwiceIsGivenUp) {
  spy.spoil(local.data(), 2);
  register_all();
  start(ops::RdmaOp::Dir::Put);
  ASSERT_TRUE(fabric.until([&] { return !fabric[0].gave_up.empty(); }));
  EXPECT_EQ(spy.spoiled(), 2);
  EXPECT_EQ(done, 0);
  EXPECT_TRUE(contains(fabric[0].gave_up[0], "LOC_PROT_ERR")) << fabric[0].gave_up[0];
  EXPECT_TRUE(contains(fabric[0].gave_up[0], "lkey 0x")) << fabric[0].gave_up[0];
  expect_others_unharmed();
}

}  // namespace
}  // namespace mend::test
