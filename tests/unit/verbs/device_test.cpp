// Devices and ports on the fake: limits, speeds, tables, keys.
#include "plugin/verbs/device.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/verbs/fake_device.h"

namespace mend::verbs {
namespace {

class DeviceOnFake : public testing::Test {
 protected:
  void open() {
    auto devices = DeviceList::query(fake.api);
    ASSERT_TRUE(devices);
    context = std::move(*open_device(fake.api, (*devices)[0]));
    port = *query_port(fake.api, context.get(), 1);
  }
  test::FakeDevice fake;
  Context context;
  PortInfo port;
};

TEST_F(DeviceOnFake, ListFindsByNameAndIsFreed) {
  {
    auto devices = DeviceList::query(fake.api);
    ASSERT_TRUE(devices);
    EXPECT_EQ(devices->size(), 1u);
    EXPECT_NE(devices->find("fake0"), nullptr);
    EXPECT_EQ(devices->find("mlx5_0"), nullptr);
    const DeviceList moved = std::move(*devices);
    EXPECT_EQ(moved.size(), 1u);
  }
  EXPECT_EQ(fake.live["list"], 0);
}

TEST_F(DeviceOnFake, NoListHasTheReason) {
  fake.fail("get_device_list", EPERM);
  const auto devices = DeviceList::query(fake.api);
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().code, EPERM);
}

TEST_F(DeviceOnFake, NoPermissionIsNamed) {
  auto devices = DeviceList::query(fake.api);
  fake.fail("open_device", EACCES);
  const auto refused = open_device(fake.api, (*devices)[0]);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no permission on /dev/infiniband/uverbs*"),
            std::string::npos);
}

TEST_F(DeviceOnFake, NegativeLimitsAreZero) {
  fake.limits.max_srq = -1;
  open();
  const auto caps = query_caps(fake.api, context.get());
  ASSERT_TRUE(caps);
  EXPECT_FALSE(caps->has_srq());
  EXPECT_EQ(caps->max_qp_wr, 1024u);
}

TEST_F(DeviceOnFake, PortOfEthernetNeedsGrh) {
  open();
  EXPECT_TRUE(port.active);
  EXPECT_TRUE(port.grh_required);
  EXPECT_EQ(port.link, LinkLayer::Ethernet);
  EXPECT_EQ(port.speed_mbps, 100000u);
  EXPECT_FALSE(query_port(fake.api, context.get(), 2)) << "there is one port";
}

TEST_F(DeviceOnFake, InfinibandPortMayDemandGrh) {
  fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  open();
  EXPECT_FALSE(port.grh_required);
  fake.port.flags = 1;
  EXPECT_TRUE(query_port(fake.api, context.get(), 1)->grh_required);
}

TEST_F(DeviceOnFake, GidTableHasOnlyWhatIsThere) {
  open();
  const auto table = read_gid_table(fake.api, context.get(), port);
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].index, 1u);
  EXPECT_EQ(table[0].type, GidType::RoceV2);
}

TEST_F(DeviceOnFake, GidTableOfAnOldLibrary) {
  open();
  fake.api.query_gid_ex = nullptr;
  const auto table = read_gid_table(fake.api, context.get(), port);
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].type, GidType::Unknown);
}

TEST_F(DeviceOnFake, GidTableOfAnOldKernel) {
  open();
  fake.fail("query_gid_ex", EOPNOTSUPP, 100);
  EXPECT_EQ(read_gid_table(fake.api, context.get(), port).size(), 1u);
}

TEST_F(DeviceOnFake, Pkeys) {
  fake.pkeys = {0, 0xffff, 0x8012, 0x0013};
  fake.port.pkey_tbl_len = 4;
  open();
  const auto find = [&](int wanted) { return find_pkey(fake.api, context.get(), port, wanted); };
  EXPECT_EQ(find(0)->index, 1) << "the first usable";
  EXPECT_EQ(find(0x12)->index, 2) << "membership bit not compared";
  EXPECT_EQ(find(0x8013)->index, 3);
  const auto missing = find(0x14);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, EINVAL);
  EXPECT_EQ(missing.error().message, "partition key 0x0014 is not in the table of fake0:1");
}

TEST(Device, Speeds) {
  EXPECT_EQ(port_speed_mbps(2, 1), 8000u);      // SDR x4
  EXPECT_EQ(port_speed_mbps(2, 4), 32000u);     // QDR x4
  EXPECT_EQ(port_speed_mbps(1, 32), 25000u);    // 25 GbE
  EXPECT_EQ(port_speed_mbps(2, 64), 200000u);   // HDR
  EXPECT_EQ(port_speed_mbps(2, 128), 400000u);  // NDR
  EXPECT_EQ(port_speed_mbps(0, 32), 0u);
  EXPECT_EQ(port_speed_mbps(2, 0), 0u);
}

TEST(Device, Mtus) {
  for (const int bytes : {256, 512, 1024, 2048, 4096}) {
    const auto mtu = mtu_from_bytes(bytes);
    ASSERT_TRUE(mtu);
    EXPECT_EQ(mtu_bytes(*mtu), static_cast<std::uint32_t>(bytes));
  }
  for (const int bytes : {0, -1, 1500, 8192}) EXPECT_FALSE(mtu_from_bytes(bytes)) << bytes;
}

}  // namespace
}  // namespace mend::verbs
