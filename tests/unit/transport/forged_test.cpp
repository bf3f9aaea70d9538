// Datagrams from whoever can reach the control queue pair: a wrong secret, job, rank, checksum or
// connection is dropped and counted, and moves nothing; so is, by name, what a peer sent for
// another epoch.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "plugin/conn/device_choice.h"
#include "plugin/conn/rail.h"
#include "plugin/conn/ud_channel.h"
#include "tests/unit/transport/fabric_kit.h"

namespace mend::test {
namespace {

using conn::CtlMessage;
using conn::MsgType;

// Two ranks that talk, and somebody with a control channel of his own on the same fabric.
class Forged : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(fabric.error(), "");
    fabric[0].send(1, 8, 1);
    fabric[1].send(0, 8, 2);
    ASSERT_TRUE(
        fabric.until([&] { return fabric[0].inbox.size() == 1 && fabric[1].inbox.size() == 1; }));
    leader = *conn::parse_modex(fabric[0].transport->modex());
    follower = *conn::parse_modex(fabric[1].transport->modex());
    open_channel();
  }
  void open_channel() {
    params.verbs_library = "softhca";
    params.softhca_path = MEND_SOFTHCA_PATH;
    conn::Identity self;
    self.host = "here";
    self.fabric = std::getenv("SOFTHCA_FABRIC");
    auto chosen = conn::choose_devices(params, self);
    ASSERT_TRUE(chosen) << chosen.error().message;
    devices.emplace(std::move(*chosen));
    const conn::ChosenPort& port = devices->ports.front();
    auto made = conn::Rail::create(*port.nic, port.port, RailId{0}, params, 1);
    ASSERT_TRUE(made) << made.error().message;
    rail = std::move(*made);
    auto control = conn::UdChannel::create(*rail, follower.rails[0].ud_qkey);
    ASSERT_TRUE(control) << control.error().message;
    channel = std::move(*control);
  }
  // What the leader would say to the follower.
  CtlMessage genuine(MsgType type) const {
    CtlMessage m;
    m.type = type;
    m.job_key = follower.job_key;
    m.src_boot = leader.boot;
    m.dst_boot = follower.boot;
    m.src_rank = 0;
    m.dst_rank = 1;
    m.epoch = Epoch{1};
    m.reason = conn::RejReason::StaleBoot;
    return m;
  }
  void send(const CtlMessage& message, std::size_t damaged = ~std::size_t{0}) {
    std::array<std::byte, conn::kCtlMaxBytes> bytes{};
    const std::size_t size = conn::encode(message, bytes);
    if (damaged < size) bytes[damaged] ^= std::byte{1};
    conn::UdAddress to;
    std::copy(follower.rails[0].gid.begin(), follower.rails[0].gid.end(), to.gid.begin());
    to.lid = follower.rails[0].lid;
    to.qpn = follower.rails[0].ud_qpn;
    to.qkey = follower.rails[0].ud_qkey;
    ASSERT_TRUE(channel->resolve(to));
    ASSERT_EQ(channel->send(to, std::span(bytes).first(size)), conn::UdSend::Sent);
  }
  bool wait_for(const char* name, std::int64_t value) {
    return fabric.until([&] { return fabric[1].stat(name) >= value; }, 3000);
  }
  void expect_unharmed() {
    EXPECT_TRUE(fabric[0].gave_up.empty());
    EXPECT_TRUE(fabric[1].gave_up.empty());
    EXPECT_EQ(fabric[1].stat("recoveries"), 0);
    fabric[0].send(1, 100, 3);
    fabric[1].send(0, 100, 4);
    EXPECT_TRUE(
        fabric.until([&] { return fabric[0].inbox.size() == 2 && fabric[1].inbox.size() == 2; }));
  }
  void TearDown() override { fabric.close_all(); }

  Fabric fabric{2};
  conn::ModexInfo leader, follower;
  conn::Params params;
  std::optional<conn::Devices> devices;
  std::unique_ptr<conn::Rail> rail;
  std::unique_ptr<conn::UdChannel> channel;
};

TEST_F(Forged, WrongNamesAreDroppedAndCounted) {
  // Each would end the connection if it were believed.
  std::vector<CtlMessage> wrong(6, genuine(MsgType::Rej));
  wrong[0].src_boot ^= 1;
  wrong[1].dst_boot ^= 1;
  wrong[2].job_key ^= 1;
  wrong[3].dst_rank = 0;
  wrong[4].src_rank = 7;
  wrong[5].k = 1000;
  const std::int64_t before = fabric[1].stat("ctl_dropped");
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    send(wrong[i]);
    EXPECT_TRUE(wait_for("ctl_dropped", before + static_cast<std::int64_t>(i) + 1)) << i;
  }
  EXPECT_EQ(fabric[1].stat("ctl_dropped"), before + static_cast<std::int64_t>(wrong.size()));
  expect_unharmed();
}

TEST_F(Forged, DamagedOnesAreDroppedAndCounted) {
  const std::int64_t before = fabric[1].stat("ctl_dropped");
  for (const std::size_t byte : {0u, 4u, 5u, 6u, 8u, 16u, 24u, 48u, 60u, 64u})
    send(genuine(MsgType::Rej), byte);
  EXPECT_TRUE(wait_for("ctl_dropped", before + 10));
  expect_unharmed();
}

TEST_F(Forged, AnotherEpochMovesNothingAndIsCounted) {
  const std::int64_t dropped = fabric[1].stat("ctl_dropped");
  const std::int64_t stale = fabric[1].stat("ctl_stale");
  for (const MsgType type : {MsgType::Req, MsgType::Commit}) {
    CtlMessage old = genuine(type);
    old.epoch = Epoch{0};
    send(old);
  }
  EXPECT_TRUE(wait_for("ctl_stale", stale + 2));
  EXPECT_EQ(fabric[1].stat("ctl_dropped"), dropped);
  expect_unharmed();
}

// The same message without a fault is believed, or the tests above prove nothing.
TEST_F(Forged, TheGenuineOneIsBelieved) {
  send(genuine(MsgType::Rej));
  EXPECT_TRUE(fabric.until([&] { return fabric[1].gave_up.size() == 1; }, 3000));
}

}  // namespace
}  // namespace mend::test
