// Reading a machine through hwloc: a small topology of our own, files that are none, this machine,
// and those of real clusters.
#include "topo/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "topo/rank_nics.h"

namespace mend::topo {
namespace {

Source two_packages(const std::string& binding) {
  return Source{TOPO_XML_DIR "/two_packages.xml", binding, "", ""};
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
    const auto ranked = rank_nics(*s, devices, s->process);
    EXPECT_EQ(ranked.front().index, first) << binding;
    EXPECT_EQ(nearest(ranked).size(), std::string(binding) == "0-3" ? 2u : 1u) << binding;
  }
}

TEST(Load, HwlocXmlfileIsHonoured) {
  ASSERT_EQ(setenv("HWLOC_XMLFILE", TOPO_XML_DIR "/two_packages.xml", 1), 0);
  const auto s = load(Source{"", "3", "", ""});
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
  const auto s = load(Source{"/nonexistent/topology.xml", "", "", ""});
  ASSERT_FALSE(s.has_value());
  EXPECT_NE(s.error().message.find("/nonexistent/topology.xml"), std::string::npos);
}

std::string own(const char* name) { return std::string(TOPO_XML_DIR "/") + name + ".xml"; }

std::vector<std::string> names_of(const Snapshot& s) {
  std::vector<std::string> names;
  for (const DevicePlace& device : s.devices) names.push_back(device.name);
  return names;
}

// Machines as they are: each rank of a node that is bound to a core, a NUMA node, a package or not
// at all gets a NIC at the least distance there is, and those who share a set of nearest NICs
// share it evenly.
void check_plan(const Snapshot& s, const std::vector<std::optional<Binding>>& bindings,
                const std::string& what) {
  const std::vector<std::string> names = names_of(s);
  std::map<std::vector<std::size_t>, std::map<std::size_t, unsigned>> load;
  for (std::size_t me = 0; me < bindings.size(); ++me) {
    const RankPlan plan = plan_rank(s, names, Policy::Near, bindings, me);
    ASSERT_FALSE(plan.rails.empty()) << what;
    double least = plan.rails[0].distance;
    for (const std::string& name : names)
      least = std::min(least, device_distance(s, *bindings[me], name));
    std::vector<std::size_t> set;
    for (const RankedNic& nic : plan.rails) {
      EXPECT_DOUBLE_EQ(nic.distance, least) << what << ", rank " << me;
      set.push_back(nic.index);
    }
    std::sort(set.begin(), set.end());
    for (const std::size_t index : set) load[set].try_emplace(index, 0);
    ++load[set][plan.rails[0].index];
  }
  for (const auto& [set, ranks] : load) {
    const auto [low, high] = std::minmax_element(
        ranks.begin(), ranks.end(), [](auto& a, auto& b) { return a.second < b.second; });
    EXPECT_LE(high->second - low->second, 1u) << what;
  }
}

void check_machine(const std::filesystem::path& file) {
  const auto s = load(Source{file, "", "", ""});
  ASSERT_TRUE(s.has_value()) << file << ": " << s.error().message;
  ASSERT_FALSE(s->devices.empty()) << file;
  ASSERT_FALSE(s->cores.empty()) << file;
  using Bindings = std::vector<std::optional<Binding>>;
  Bindings cores, nodes, packages, round_robin;
  std::map<int, Binding> by_package;
  for (const auto& core : s->cores) cores.emplace_back(s->nodes_of(core));
  for (NodeIndex i = 0; i < s->nodes.size(); ++i) {
    nodes.emplace_back(Binding{i});
    by_package[s->nodes[i].package].push_back(i);
  }
  for (const auto& [package, binding] : by_package) packages.emplace_back(binding);
  for (int turn = 0; turn < 5; ++turn)
    round_robin.insert(round_robin.end(), packages.begin(), packages.end());
  for (const auto& [bindings, kind] : {std::pair{cores, "cores"},
                                       {nodes, "nodes"},
                                       {packages, "packages"},
                                       {round_robin, "packages, round robin"},
                                       {Bindings(7, Binding{}), "unbound"}})
    check_plan(*s, bindings, file.string() + ", bound to " + kind);
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

class OddMachine : public testing::TestWithParam<const char*> {};
TEST_P(OddMachine, EveryRankIsServedEvenly) { check_machine(own(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Kinds, OddMachine,
                         testing::Values("two_packages", "no_pci", "nodes_per_package",
                                         "memory_only", "bridge", "ten_nics", "hwloc1"));

TEST(Odd, DevicesOfANodeWithinAPackageAreFoundThere) {
  const auto s = load(Source{own("nodes_per_package"), "", "", ""});
  ASSERT_TRUE(s.has_value()) << s.error().message;
  EXPECT_EQ(s->nodes.size(), 4u);
  EXPECT_EQ(s->numa_node_of("mlx5_0"), 1);
  EXPECT_EQ(s->numa_node_of("mlx5_1"), 2);
}

TEST(Odd, MemoryWithoutCpusIsNobodysPlace) {
  const auto s = load(Source{own("memory_only"), "0", "", ""});
  ASSERT_TRUE(s.has_value()) << s.error().message;
  ASSERT_EQ(s->nodes.size(), 3u);
  EXPECT_EQ(s->nodes[2].kind, "GPUMemory");
  EXPECT_EQ(s->process, Binding{0});
}

TEST(Odd, ADeviceOnABridgeIsNearToBothPackages) {
  const auto s = load(Source{own("bridge"), "", "", ""});
  ASSERT_TRUE(s.has_value()) << s.error().message;
  EXPECT_DOUBLE_EQ(device_distance(*s, {1}, "mlx5_bridge"),
                   device_distance(*s, {2}, "mlx5_bridge"));
  EXPECT_GT(device_distance(*s, {3}, "mlx5_bridge"), kLocalDistance);
}

TEST(Odd, PortsAndPciLinksOfTheFile) {
  const auto s = load(Source{own("two_packages"), "", "", ""});
  ASSERT_TRUE(s.has_value());
  ASSERT_EQ(s->find("mlx5_0")->ports.size(), 2u);
  EXPECT_EQ(s->find("mlx5_0")->ports[0].state, "ACTIVE");
  EXPECT_EQ(s->find("mlx5_0")->ports[1].state, "DOWN");
  EXPECT_GT(s->find("mlx5_0")->pci_gbps, 0);
}

TEST(Synthetic, Loads) {
  const auto s = load(Source{"", "2", "package:2 numa:2 core:2 pu:1", ""});
  ASSERT_TRUE(s.has_value()) << s.error().message;
  EXPECT_EQ(s->nodes.size(), 4u);
  EXPECT_EQ(s->cores.size(), 8u);
  EXPECT_EQ(s->process, Binding{1});
  EXPECT_FALSE(load(Source{"", "", "package:x", ""}).has_value());
}

TEST(CpuList, ListsAndNothingElse) {
  EXPECT_EQ(parse_cpu_list("0-2,8"), (std::vector<unsigned>{0, 1, 2, 8}));
  for (const char* bad : {"", "x", "4-", "-", "3-1x"}) EXPECT_FALSE(parse_cpu_list(bad)) << bad;
}

TEST(Load, ABindingWithoutEndIsCutAtTheMachine) {
  const auto s = load(Source{own("two_packages"), "1-", "", ""});
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->process.size(), 2u);
}

// Whatever hwloc's loader takes must be no trouble; what it does not take, or dies of, is an error
// with the name of the file.
TEST(Load, DamagedFilesAreErrorsOrDefinedAnswers) {
  std::ifstream in(own("two_packages"));
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(whole.size(), 1000u);
  const auto file = std::filesystem::path(testing::TempDir()) / "mend_damaged.xml";
  std::mt19937 random(5);
  unsigned refused = 0, taken = 0;
  ASSERT_EQ(setenv("HWLOC_HIDE_ERRORS", "2", 1), 0);
  for (unsigned round = 0; round < 300; ++round) {
    std::string text = whole;
    if (round % 3 == 0) text.resize(random() % text.size());
    for (unsigned i = 0; i < round % 7; ++i) {
      if (text.empty()) break;
      text[random() % text.size()] = static_cast<char>(random() % 96 + 32);
    }
    std::ofstream(file) << text;
    const auto s = load_untrusted(Source{file, "0-3", "", ""});
    if (!s) {
      ++refused;
      EXPECT_NE(s.error().message.find(file.string()), std::string::npos) << s.error().message;
      continue;
    }
    ++taken;
    (void)plan_rank(*s, names_of(*s), Policy::Near, {}, 0);
  }
  std::filesystem::remove(file);
  EXPECT_GT(refused, 50u);
  EXPECT_GT(taken, 20u);
}

}  // namespace
}  // namespace mend::topo
