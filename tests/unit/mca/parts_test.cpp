// The small parts: versions, the operation pool, the statistics file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "plugin/mca/ompi_compat.h"
#include "plugin/mca/op_pool.h"
#include "plugin/mca/stats.h"

namespace mend::mca {
namespace {

TEST(Version, SeriesIsMajorAndMinor) {
  EXPECT_EQ(compat::series("4.1.4"), "4.1");
  EXPECT_EQ(compat::series("5.0.7rc1"), "5.0");
  EXPECT_EQ(compat::series("4.1"), "4.1");
  EXPECT_EQ(compat::series("5"), "5");
}

TEST(Version, RunningLibraryIsTheOneBuiltFor) {
  EXPECT_EQ(compat::running_series(), compat::built_series());
}

TEST(OpPool, GivesDistinctObjectsAndTakesThemBack) {
  OpPool<int> pool;
  std::set<int*> taken;
  for (int i = 0; i < 100; ++i) taken.insert(pool.take());
  EXPECT_EQ(taken.size(), 100u);
  EXPECT_EQ(taken.count(nullptr), 0u);
  for (int* op : taken) pool.give(op);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(taken.count(pool.take()), 1u);
}

class StatsFile : public testing::Test {
 protected:
  StatsFile()
      : directory_(std::filesystem::temp_directory_path() /
                   ("mend-stats-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(directory_);
  }
  StatsFile(const StatsFile&) = delete;
  StatsFile& operator=(const StatsFile&) = delete;
  ~StatsFile() override { std::filesystem::remove_all(directory_); }
  std::string content(const std::string& name) const {
    std::ifstream file(directory_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path directory_;
};

TEST_F(StatsFile, PrefixGetsTheRank) {
  EXPECT_TRUE(write_stats((directory_ / "out").string(), stats_suffix(12, {}), R"({"sends":3})"));
  EXPECT_EQ(content("out.12"), "{\"sends\":3}\n");
}

TEST_F(StatsFile, SpawnedJobsHaveTheirOwn) {
  EXPECT_TRUE(write_stats((directory_ / "out").string(), stats_suffix(12, 2), "{}"));
  EXPECT_EQ(content("out.2.12"), "{}\n");
}

TEST_F(StatsFile, SecondRunReplacesTheFirst) {
  ASSERT_TRUE(write_stats((directory_ / "out").string(), "0", R"({"sends":1234567})"));
  ASSERT_TRUE(write_stats((directory_ / "out").string(), "0", "{}"));
  EXPECT_EQ(content("out.0"), "{}\n");
}

TEST_F(StatsFile, MissingDirectoryIsReported) {
  EXPECT_FALSE(write_stats((directory_ / "none" / "out").string(), "0", "{}"));
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(StatsFile, EmptyDestinationWritesNothing) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(write_stats("", "0", "{}"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(StatsFile, Stderr) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(write_stats("stderr", "5", R"({"rank":5})"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "{\"rank\":5}\n");
}

}  // namespace
}  // namespace mend::mca
