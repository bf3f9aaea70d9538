// The INI file: what it can say, and the message that each kind of nonsense gets.
#include "softhca/conf/conf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace softhca {
namespace {

TEST(Conf, DefaultIsOneRoceDevice) {
  const FabricConf conf = default_conf();
  ASSERT_EQ(conf.devices.size(), 1U);
  const DeviceConf& dev = conf.devices[0];
  EXPECT_EQ(dev.name, "softhca0");
  EXPECT_NE(dev.node_guid, 0U);
  EXPECT_EQ(dev.numa_node, -1);
  ASSERT_EQ(dev.ports.size(), 1U);
  const PortConf& port = dev.ports[0];
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.lid, 0);
  ASSERT_EQ(port.gids.size(), 2U);
  EXPECT_EQ(port.gids[0].raw[0], 0xfe);
  EXPECT_EQ(port.gids[0].raw[1], 0x80);
  EXPECT_EQ(port.gids[1].raw[10], 0xff);
  EXPECT_EQ(port.gids[1].raw[12], 10);
  EXPECT_EQ(port.gids[1].type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(port.pkeys, std::vector<uint16_t>{0xffff});
}

TEST(Conf, EveryKeyLands) {
  const auto conf = parse_conf(R"(
# two devices
[mlx_0]            ; a comment
node_guid = 0x1122334455667788
vendor_id = 0x2c9
vendor_part_id = 4119
hw_ver = 3
fw_ver = 16.35.1
numa_node = 1
max_qp = 4
max_qp_wr = 32
max_sge = 1
max_cq = 3
max_cqe = 64
max_mr = 5
max_mr_size = 0x100000
max_pd = 2
max_ah = 7
max_srq = 0
max_srq_wr = 16
max_srq_sge = 1
max_inline = 0
max_rd_atomic = 1
max_msg_size = 65536
atomics = no
[mlx_0/1]
link_layer = infiniband
state = down
max_mtu = 2048
mtu = 1024
lid = 0x12
sm_lid = 3
lmc = 2
rate_gbps = 25
require_grh = yes
gid = fe80::1
gid = ib 2001:db8::5
pkey = 0xffff
pkey = 0x8001
[mlx_0/2]
[b]
[b/1]
gid = rocev1 fe80::2
gid = 192.168.1.2
)",
                               "x.ini");
  ASSERT_TRUE(conf.has_value()) << conf.error().str();
  ASSERT_EQ(conf->devices.size(), 2U);
  const DeviceConf& d = conf->devices[0];
  EXPECT_EQ(d.node_guid, 0x1122334455667788U);
  EXPECT_EQ(d.vendor_id, 0x2c9U);
  EXPECT_EQ(d.vendor_part_id, 4119U);
  EXPECT_EQ(d.hw_ver, 3U);
  EXPECT_EQ(d.fw_ver, "16.35.1");
  EXPECT_EQ(d.numa_node, 1);
  const Limits& l = d.limits;
  EXPECT_EQ(l.max_qp, 4U);
  EXPECT_EQ(l.max_qp_wr, 32U);
  EXPECT_EQ(l.max_sge, 1U);
  EXPECT_EQ(l.max_cq, 3U);
  EXPECT_EQ(l.max_cqe, 64U);
  EXPECT_EQ(l.max_mr, 5U);
  EXPECT_EQ(l.max_mr_size, 0x100000U);
  EXPECT_EQ(l.max_pd, 2U);
  EXPECT_EQ(l.max_ah, 7U);
  EXPECT_EQ(l.max_srq, 0U);
  EXPECT_EQ(l.max_srq_wr, 16U);
  EXPECT_EQ(l.max_srq_sge, 1U);
  EXPECT_EQ(l.max_inline, 0U);
  EXPECT_EQ(l.max_rd_atomic, 1U);
  EXPECT_EQ(l.max_msg_size, 65536U);
  EXPECT_FALSE(l.atomics);
  ASSERT_EQ(d.ports.size(), 2U);
  const PortConf& p = d.ports[0];
  EXPECT_EQ(p.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(p.state, IBV_PORT_DOWN);
  EXPECT_EQ(p.max_mtu, IBV_MTU_2048);
  EXPECT_EQ(p.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(p.lid, 0x12);
  EXPECT_EQ(p.sm_lid, 3);
  EXPECT_EQ(p.lmc, 2);
  EXPECT_EQ(p.active_width, 1);
  EXPECT_EQ(p.active_speed, 32);
  EXPECT_TRUE(p.require_grh);
  ASSERT_EQ(p.gids.size(), 2U);
  EXPECT_EQ(p.gids[1].type, IBV_GID_TYPE_IB);
  EXPECT_EQ(p.pkeys, (std::vector<uint16_t>{0xffff, 0x8001}));
  EXPECT_EQ(conf->devices[1].ports[0].gids[0].type, IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(conf->devices[1].ports[0].gids[1].raw[12], 192);
}

TEST(Conf, DevicesAndPortsGetDistinctAddresses) {
  const auto conf = parse_conf("[a]\n[a/1]\n[a/2]\n[b]\n[c]\n[c/1]\nlink_layer=infiniband\n", "x");
  ASSERT_TRUE(conf.has_value()) << conf.error().str();
  std::vector<std::array<uint8_t, 16>> seen;
  for (const DeviceConf& d : conf->devices) {
    for (const PortConf& p : d.ports) {
      for (const GidConf& g : p.gids) {
        EXPECT_EQ(std::count(seen.begin(), seen.end(), g.raw), 0) << d.name;
        seen.push_back(g.raw);
      }
    }
  }
  EXPECT_NE(conf->devices[2].ports[0].lid, 0) << "an InfiniBand port has a LID";
}

struct Nonsense {
  const char* text;
  const char* message;
};

TEST(Conf, NonsenseIsNamedWithItsLine) {
  const std::vector<Nonsense> cases{
      {"", "x.ini: no device: expected a section such as [softhca0]"},
      {"max_qp = 3\n", "x.ini:1: 'max_qp' stands before the first section"},
      {"[a]\nmax_qp 3\n", "x.ini:2: expected 'key = value' or '[section]'"},
      {"[a\n", "x.ini:1: a section ends with ']'"},
      {"[0a]\n", "x.ini:1: '0a' is not a device name"},
      {"[a]\n[a]\n", "x.ini:2: device 'a' appears twice"},
      {"[a/1]\n", "x.ini:1: a port section [a/N] must follow"},
      {"[a]\n[b]\n[a/1]\n", "x.ini:3: a port section [a/N] must follow"},
      {"[a]\n[a/2]\n", "x.ini:2: ports are numbered 1, 2, ...: expected [a/1]"},
      {"[a]\n\nmax_qps = 3\n", "x.ini:3: unknown device key 'max_qps'; known are: node_guid"},
      {"[a]\n[a/1]\nmax_qp = 3\n", "x.ini:3: unknown port key 'max_qp'; known are: link_layer"},
      {"[a]\nmax_qp = many\n", "x.ini:2: max_qp: 'many' is not a number from 1 to "},
      {"[a]\nmax_qp = 0\n", "x.ini:2: max_qp: '0' is not a number from 1 to "},
      {"[a]\nmax_qp = -1\n", "x.ini:2: max_qp: '-1' is not a number"},
      {"[a]\nmax_qp = 0x\n", "x.ini:2: max_qp: '0x' is not a number"},
      {"[a]\nmax_qp = 1\nmax_qp = 2\n", "x.ini:3: 'max_qp' appears twice in this section"},
      {"[a]\natomics = maybe\n", "x.ini:2: atomics: 'maybe' is not one of: yes, no"},
      {"[a]\nfw_ver =\n", "x.ini:2: fw_ver: a firmware version has 1 to 63 characters"},
      {"[a]\n[a/1]\nmtu = 1500\n",
       "x.ini:3: mtu: '1500' is not one of: 256, 512, 1024, 2048, 4096"},
      {"[a]\n[a/1]\nlink_layer = token ring\n", "x.ini:3: link_layer: 'token ring' is not one of"},
      {"[a]\n[a/1]\nstate = up\n", "x.ini:3: state: 'up' is not one of: active, down"},
      {"[a]\n[a/1]\nrate_gbps = 7\n", "x.ini:3: rate_gbps: '7' is not one of: 10"},
      {"[a]\n[a/1]\ngid = fe80::zz\n", "x.ini:3: gid: 'fe80::zz' is neither an IPv6 nor an IPv4"},
      {"[a]\n[a/1]\ngid = rocev3 fe80::1\n", "x.ini:3: gid: 'rocev3' is not one of: ib"},
      {"[a]\n[a/1]\npkey = 0\n", "x.ini:3: pkey: '0' is not a number from 1 to 65535"},
      {"[a]\n[a/1]\nlid = 4\n", "x.ini: a/1: an ethernet port has no lid"},
      {"[a]\n[a/1]\nmax_mtu = 1024\n", "x.ini: a/1: mtu is above max_mtu"},
      {"[a]\n[a/1]\ngid = ib fe80::1\n", "x.ini: a/1: the GID type does not fit"},
  };
  for (const Nonsense& c : cases) {
    const auto conf = parse_conf(c.text, "x.ini");
    ASSERT_FALSE(conf.has_value()) << c.text;
    EXPECT_EQ(conf.error().str().rfind(c.message, 0), 0U) << c.text << "\n" << conf.error().str();
  }
}

TEST(Conf, TheTextReproducesTheFabric) {
  const std::string text = "[a]\nmax_qp = 3\n[a/1]\ngid = 10.0.0.1\n";
  const auto conf = parse_conf(text, "x");
  ASSERT_TRUE(conf.has_value());
  EXPECT_EQ(conf->text, text);
  EXPECT_EQ(parse_conf(default_conf().text, "segment")->devices[0].name, "softhca0");
  EXPECT_EQ(parse_conf("[a]\n" + std::string(kMaxConfText, '#'), "x").error().str(),
            "x: longer than " + std::to_string(kMaxConfText) + " bytes");
}

TEST(Conf, TablesHaveAnEnd) {
  std::string devices;
  for (unsigned i = 0; i <= kMaxDevices; ++i) devices += "[d" + std::to_string(i) + "]\n";
  EXPECT_EQ(parse_conf(devices, "x").error().line, kMaxDevices + 1);
  std::string gids = "[a]\n[a/1]\n";
  for (unsigned i = 0; i <= kMaxGids; ++i) gids += "gid = fe80::" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(parse_conf(gids, "x").error().line, kMaxGids + 3);
}

TEST(Conf, EnvironmentNamesTheFile) {
  const std::string path = testing::TempDir() + "softhca_conf_" + std::to_string(getpid());
  std::ofstream(path) << "[only]\nmax_qp = 9\n";
  setenv("SOFTHCA_CONF", path.c_str(), 1);
  const auto conf = load_conf_from_env();
  ASSERT_TRUE(conf.has_value());
  EXPECT_EQ(conf->devices[0].limits.max_qp, 9U);
  unlink(path.c_str());
  const auto gone = load_conf_from_env();
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().str(), path + ": cannot read: No such file or directory");
  unsetenv("SOFTHCA_CONF");
  EXPECT_EQ(load_conf_from_env()->devices[0].name, "softhca0");
}

}  // namespace
}  // namespace softhca
