// A fabric's files and locks while processes come, go and stand still: who may remove a file, whose
// lock may be taken over, and what a stopped process holds up. Real processes.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "softhca/engine/global_segment.h"
#include "tests/unit/softhca/process_kit.h"

namespace {

using kit::Child;
using kit::Leftover;
using kit::Link;
using kit::open_device;
using kit::OwnFabric;

// The descriptor through which a process has the file open; -1: none.
int descriptor_of(pid_t pid, const std::string& path) {
  const std::string table = "/proc/" + std::to_string(pid) + "/fd/";
  struct stat wanted {};
  DIR* dir = ::opendir(table.c_str());
  if (dir == nullptr || ::stat(path.c_str(), &wanted) != 0) return -1;
  int found = -1;
  while (const dirent* entry = ::readdir(dir)) {
    struct stat open {};
    if (::stat((table + entry->d_name).c_str(), &open) == 0 && open.st_ino == wanted.st_ino &&
        open.st_dev == wanted.st_dev) {
      found = std::atoi(entry->d_name);
    }
  }
  ::closedir(dir);
  return found;
}

// Opens the device, says so, and closes it when told.
int attach_until_told(Link& link) {
  ibv_context* ctx = open_device();
  if (ctx == nullptr || !link.go() || !link.wait()) return 1;
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

bool ends_well(Child& child) { return child.link().go() && child.join() == 0; }

// Lets it pass the point at which it stops, as often as it comes there, until it says something.
bool heard_from(Child& child) {
  for (int tries = 0; tries < 2000; ++tries) {
    child.signal(SIGCONT);
    if (child.link().wait(10)) return true;
  }
  return false;
}

// The cleaner judged by the inode that it had opened and removed by name: meanwhile somebody else
// had removed that file, and a new job had taken the name. Its next ranks made another fabric.
TEST(CrossProcess, CleanerSparesAFabricThatBeganWhileItLooked) {
  OwnFabric reborn("reborn");
  Leftover left(reborn);
  OwnFabric own("cleaner");
  Child cleaner([](Link& link) {
    ::setenv("SOFTHCA_KILL", "stale_fabric_opened:1:stop", 1);
    return attach_until_told(link);
  });
  while (cleaner.stopped() && descriptor_of(cleaner.pid(), reborn.path()) < 0)
    cleaner.signal(SIGCONT);  // a file of somebody else on this machine
  ASSERT_GE(descriptor_of(cleaner.pid(), reborn.path()), 0) << "it never looked";
  ASSERT_EQ(::unlink(reborn.path().c_str()), 0);
  left.let_go();
  ::setenv("SOFTHCA_FABRIC", reborn.name().c_str(), 1);
  Child living(attach_until_told);
  ASSERT_TRUE(living.link().wait());
  ASSERT_EQ(reborn.files(), 2);
  ASSERT_TRUE(heard_from(cleaner));
  EXPECT_EQ(reborn.files(), 2) << "the cleaner removed what lives";
  EXPECT_TRUE(ends_well(living));
  EXPECT_EQ(reborn.files(), 0);
  EXPECT_TRUE(ends_well(cleaner));
}

TEST(CrossProcess, LeavingARemovedFabricSparesTheNewOneOfItsName) {
  OwnFabric fabric("removed");
  Child old(attach_until_told);
  ASSERT_TRUE(old.link().wait());
  ASSERT_EQ(::unlink(fabric.path().c_str()), 0);
  ASSERT_EQ(::unlink((fabric.path() + ".0.1").c_str()), 0);
  Child living(attach_until_told);
  ASSERT_TRUE(living.link().wait());
  ASSERT_EQ(fabric.files(), 2);
  EXPECT_TRUE(ends_well(old));
  EXPECT_EQ(fabric.files(), 2) << "the last one of the old fabric removed the new one";
  ASSERT_EQ(::unlink(fabric.path().c_str()), 0);
  EXPECT_TRUE(ends_well(living));
  EXPECT_EQ(fabric.files(), 0) << "its own file is still its own";
}

}  // namespace
