// if_include and if_exclude.
#include "topo/device_list.h"

#include <gtest/gtest.h>

namespace mend::topo {
namespace {

const std::vector<Port> kPorts{{"mlx5_0", 1}, {"mlx5_1", 1}, {"mlx5_1", 2}, {"softhca0", 1}};
using Indices = std::vector<std::size_t>;

TEST(DeviceList, ParsesNamesAndPorts) {
  const auto list = parse_device_list(" mlx5_0 , mlx5_1:2");
  ASSERT_TRUE(list.has_value()) << list.error().message;
  EXPECT_EQ(*list, (std::vector<Selector>{{"mlx5_0", 0}, {"mlx5_1", 2}}));
  EXPECT_TRUE(parse_device_list("  ")->empty());
}

TEST(DeviceList, RefusesWhatIsNoList) {
  for (const char* text : {",", "mlx5_0,", ":1", "mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256",
                           "mlx5_0:1:2", "mlx5_0:-1", "mlx5_0:1x"})
    EXPECT_FALSE(parse_device_list(text).has_value()) << text;
}

TEST(DeviceList, EmptyListsLeaveEverything) {
  EXPECT_EQ(*select_ports(kPorts, "", ""), (Indices{0, 1, 2, 3}));
}

TEST(DeviceList, IncludeKeepsTheOrderOfTheMachine) {
  EXPECT_EQ(*select_ports(kPorts, "mlx5_1,mlx5_0:1", ""), (Indices{0, 1, 2}));
  EXPECT_EQ(*select_ports(kPorts, "mlx5_1:2", ""), (Indices{2}));
}

TEST(DeviceList, ExcludeTakesAway) {
  EXPECT_EQ(*select_ports(kPorts, "", "mlx5_1:1,softhca0"), (Indices{0, 2}));
  EXPECT_EQ(*select_ports(kPorts, "", "mlx5_0,mlx5_1,softhca0"), Indices{});
}

TEST(DeviceList, ErrorsNameTheParameterTheValueAndWhatThereIs) {
  const auto unknown = select_ports(kPorts, "mlx5_7", "");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("if_include names mlx5_7"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("mlx5_1:2"), std::string::npos);
  const auto port = select_ports(kPorts, "", "mlx5_0:2");
  ASSERT_FALSE(port.has_value());
  EXPECT_NE(port.error().message.find("if_exclude names mlx5_0:2"), std::string::npos);
  EXPECT_FALSE(select_ports(kPorts, "mlx5_0", "mlx5_1").has_value());
  EXPECT_FALSE(select_ports({}, "mlx5_0", "").has_value());
}

TEST(DeviceList, NamesAreNotPrefixes) {
  EXPECT_FALSE(select_ports(kPorts, "mlx5", "").has_value());
}

}  // namespace
}  // namespace mend::topo
