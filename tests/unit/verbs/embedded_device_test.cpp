// The embedded device, loaded by path as a site's library would be.
#include <gtest/gtest.h>

#include "plugin/verbs/api.h"
#include "plugin/verbs/device.h"
#include "tests/unit/verbs/device_under_test.h"

namespace mend::verbs {
namespace {

TEST(EmbeddedDevice, LoadsOnce) {
  const auto first = load(test::device_library(SOFTHCA_LIBRARY));
  ASSERT_TRUE(first) << first.error().message;
  const auto second = load(test::device_library(SOFTHCA_LIBRARY));
  ASSERT_TRUE(second);
  EXPECT_EQ(*first, *second);
  EXPECT_NE((*first)->query_gid_ex, nullptr);
  EXPECT_NE((*first)->fork_init, nullptr);
}

TEST(EmbeddedDevice, Answers) {
  const auto api = load(test::device_library(SOFTHCA_LIBRARY));
  ASSERT_TRUE(api) << api.error().message;
  const auto devices = DeviceList::query(**api);
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_GE(devices->size(), 1u);
  auto context = open_device(**api, (*devices)[0]);
  ASSERT_TRUE(context) << context.error().message;
  const auto caps = query_caps(**api, context->get());
  ASSERT_TRUE(caps);
  EXPECT_TRUE(caps->has_srq());
  EXPECT_GT(caps->max_cqe, 0u);
  const auto port = query_port(**api, context->get(), 1);
  ASSERT_TRUE(port);
  EXPECT_TRUE(port->active);
  const auto gid = choose_gid(read_gid_table(**api, context->get(), *port), port->link, -1);
  ASSERT_TRUE(gid);
  EXPECT_EQ(rank(*gid, port->link), GidRank::RoceV2Ipv4) << format_gid(gid->gid);
  EXPECT_TRUE(find_pkey(**api, context->get(), *port, 0));
}

}  // namespace
}  // namespace mend::verbs
