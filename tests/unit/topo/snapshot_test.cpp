// Reading a machine through hwloc: a small topology of our own, files that are none, this machine,
// and those of real clusters.
#include "topo/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "topo/rank_nics.h"

namespace mend::topo {
namespace {

Source two_packages(const std::string& binding) {
  return Source{TOPO_XML_DIR "/two_packages.xml", binding};
}

TEST(Load, ReadsNodesDistancesAndDevices) {
  const auto s = load(two_packages("0"));
  ASSERT_TRUE(s.has_value()) << s.error().message;
  ASSERT_EQ(s->nodes.size(), 2u);
  EXPECT_EQ(s->nodes[1].os_index, 1);
  EXPECT_NE(s->nodes[0].package, s->nodes[1].package);
  ASSERT_EQ(s->latency.size(), 2u);
  EXPECT_DOUBLE_EQ(s->latency[0][1], 32);
  ASSERT_EQ(s->devices.size(), 3u);
  EXPECT_EQ(s->numa_node_of("mlx5_0"), 0);
  EXPECT_EQ(s->numa_node_of("mlx5_1"), 1);
  EXPECT_EQ(s->find("mlx5_1")->pci, "0000:d8:00.0");
  EXPECT_EQ(s->find("eth0"), nullptr) << "only RDMA devices";
}

TEST(Load, DeviceBelowTheMachineHasNoPlace) {
  const auto s = load(two_packages("0"));
  ASSERT_TRUE(s.has_value());
  ASSERT_NE(s->find("rxe0"), nullptr);
  EXPECT_TRUE(s->find("rxe0")->nodes.empty());
  EXPECT_EQ(s->numa_node_of("rxe0"), -1);
}

TEST(Load, BindingDecidesTheOrder) {
  const std::vector<std::string> devices{"mlx5_0", "mlx5_1"};
  for (const auto& [binding, first] : {std::pair{"1", 0u}, {"2", 1u}, {"2-3", 1u}, {"0-3", 0u}}) {
    const auto s = load(two_packages(binding));
    ASSERT_TRUE(s.has_value());
    const auto ranked = rank_nics(*s, devices, Policy::Near, 0);
    EXPECT_EQ(ranked.front().index, first) << binding;
    EXPECT_EQ(nearest(ranked).size(), std::string(binding) == "0-3" ? 2u : 1u) << binding;
  }
}

TEST(Load, HwlocXmlfileIsHonoured) {
  ASSERT_EQ(setenv("HWLOC_XMLFILE", TOPO_XML_DIR "/two_packages.xml", 1), 0);
  const auto s = load(Source{"", "3"});
  ASSERT_EQ(unsetenv("HWLOC_XMLFILE"), 0);
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->process, std::vector<NodeIndex>{1});
}

TEST(Load, ThisMachineWorks) {
  const auto s = load();
  ASSERT_TRUE(s.has_value()) << s.error().message;
  EXPECT_FALSE(s->nodes.empty());
  EXPECT_FALSE(s->process.empty());
}

TEST(Load, MissingFileIsAnErrorThatNamesIt) {
  const auto s = load(Source{"/nonexistent/topology.xml", ""});
  ASSERT_FALSE(s.has_value());
  EXPECT_NE(s.error().message.find("/nonexistent/topology.xml"), std::string::npos);
}

// Real machines: whoever runs on a node that a NIC hangs on gets a NIC at distance 10 first, and
// the order never gets nearer.
void check_machine(const std::filesystem::path& file) {
  const auto whole = load(Source{file, ""});
  ASSERT_TRUE(whole.has_value()) << file << ": " << whole.error().message;
  ASSERT_FALSE(whole->devices.empty()) << file;
  std::vector<std::string> names;
  for (const DevicePlace& device : whole->devices) names.push_back(device.name);
  for (NodeIndex node = 0; node < whole->nodes.size(); ++node) {
    Snapshot s = *whole;
    s.process = {node};
    const auto ranked = rank_nics(s, names, Policy::Near, 0);
    ASSERT_EQ(ranked.size(), names.size());
    for (std::size_t i = 1; i < ranked.size(); ++i)
      EXPECT_LE(ranked[i - 1].distance, ranked[i].distance);
    for (const DevicePlace& device : s.devices) {
      const bool here =
          device.nodes.empty() || std::count(device.nodes.begin(), device.nodes.end(), node) > 0;
      if (here) {
        EXPECT_DOUBLE_EQ(ranked.front().distance, kLocalDistance) << file << " node " << node;
      }
    }
  }
}

TEST(Load, RealMachines) {
  const char* folder = std::getenv("MEND_TOPOLOGIES");
  if (folder == nullptr)
    GTEST_SKIP() << "MEND_TOPOLOGIES does not name a directory of hwloc XML files";
  unsigned files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    check_machine(entry.path());
    ++files;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace mend::topo
