// Loading a library at run time; the embedded device stands for any library with the libibverbs
// ABI.
#include "plugin/verbs/api.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "tests/unit/verbs/fake_device.h"

namespace mend::verbs {
namespace {

TEST(Api, MissingLibraryNamesThePath) {
  const auto api = load("/nonexistent/libverbs.so");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ENOENT);
  EXPECT_NE(api.error().message.find("/nonexistent/libverbs.so"), std::string::npos);
}

TEST(Api, LibraryWithoutVerbsNamesTheSymbol) {
  const auto api = load("libz.so.1");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ENOSYS);
  EXPECT_NE(api.error().message.find("ibv_get_device_list"), std::string::npos)
      << api.error().message;
}

TEST(ForkSafety, AskedForOnlyWhereNeeded) {
  test::FakeDevice fake;
  EXPECT_TRUE(make_fork_safe(fake.api));
  EXPECT_EQ(fake.calls("fork_init"), 1);
  fake.api.is_fork_initialized = [] { return IBV_FORK_UNNEEDED; };
  EXPECT_TRUE(make_fork_safe(fake.api));
  EXPECT_EQ(fake.calls("fork_init"), 1) << "the kernel does it";
  fake.api.is_fork_initialized = [] { return IBV_FORK_DISABLED; };
  fake.fail("fork_init", EINVAL);
  const auto late = make_fork_safe(fake.api);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, EINVAL);
  fake.api.fork_init = nullptr;
  EXPECT_TRUE(make_fork_safe(fake.api)) << "a library without it has nothing to protect";
}

}  // namespace
}  // namespace mend::verbs
