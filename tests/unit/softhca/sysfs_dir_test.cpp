// The directory that shows a device's place: it goes with its process, however that ends.
#include "softhca/api/sysfs_dir.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

namespace fs = std::filesystem;
using softhca::SysfsDir;

fs::path only_entry(const fs::path& folder) {
  fs::path found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) found = entry.path();
  return found;
}

void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

TEST(SysfsDir, WhatAKilledProcessLeftIsRemovedAndNothingElse) {
  std::string folder = testing::TempDir() + "sysfs-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  setenv("TMPDIR", folder.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    const auto dir = SysfsDir::create("dead0", 0);
    _exit(dir ? 0 : 1);  // no destructor runs
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const fs::path left = only_entry(folder);
  ASSERT_TRUE(fs::exists(left / "dead0" / "device" / "numa_node"));
  fs::create_directory(fs::path(folder) / "unrelated");
  {
    const auto live = SysfsDir::create("live0", 0);
    ASSERT_TRUE(live);
    EXPECT_TRUE(fs::exists(left)) << "it may be about to be locked";
    make_old(left);
    make_old(fs::path(live->path()).parent_path());
    const auto other = SysfsDir::create("other0", 0);
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(live->path())) << "its process lives";
  }
  EXPECT_EQ(only_entry(folder).filename(), "unrelated");
  unsetenv("TMPDIR");
  fs::remove_all(folder);
}

}  // namespace
