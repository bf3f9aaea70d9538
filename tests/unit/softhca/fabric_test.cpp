// A fabric's files and locks while processes come, go and stand still: who may remove a file, whose
// lock may be taken over, and what a stopped process holds up. Real processes.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>

#include "softhca/engine/global_segment.h"
#include "tests/unit/softhca/process_kit.h"

namespace {

using kit::Child;
using kit::Leftover;
using kit::Link;
using kit::Node;
using kit::open_device;
using kit::OwnFabric;
using kit::Qp;

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

// An error in the look at a record lock was taken for the holder's death, and its locks for free.
TEST(CrossProcess, AnErrorIsNotADeath) {
  OwnFabric fabric("error");
  Child holder(attach_until_told);
  ASSERT_TRUE(holder.link().wait());
  Child asker([&fabric](Link&) {
    softhca::GlobalSegment global;
    std::string why;
    EXPECT_EQ(global.open_locked(fabric.name(), &why), 0) << why;
    global.unlock_attach();
    const uint32_t gen = global.shared()->slots[0].gen;
    EXPECT_TRUE(global.alive(0, gen));
    const int fd = descriptor_of(::getpid(), fabric.path());
    EXPECT_GE(::dup2(::open(fabric.path().c_str(), O_PATH | O_CLOEXEC), fd), 0);
    EXPECT_TRUE(global.alive(0, gen));
    EXPECT_TRUE(global.anyone_else_attached(1));
    return 0;
  });
  EXPECT_EQ(asker.join(), 0);
  EXPECT_TRUE(ends_well(holder));
}

// Attaches with a node and creates a queue pair whenever it is told 'c'; says whether it got it.
int create_queue_pairs(Link& link, const char* stop_at) {
  ::setenv("SOFTHCA_KILL", stop_at, 1);
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  {
    Node node(ctx);
    if (!link.go()) return 1;
    for (char command = 0; link.get(command, 60000) && command == 'c';) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = node.cq;
      init.qp_type = IBV_QPT_RC;
      init.cap = {1, 1, 1, 1, 0};
      ibv_qp* qp = ibv_create_qp(node.pd, &init);
      if (!link.put(qp != nullptr)) return 1;
      EXPECT_TRUE(qp == nullptr || ibv_destroy_qp(qp) == 0);
    }
  }
  EXPECT_EQ(ibv_close_device(ctx), 0);
  return 0;
}

// What takes three seconds by itself takes many on a busy machine.
bool creates(Child& child, bool* done) {
  return child.link().put('c') && child.link().get(*done, 60'000);
}

// Whoever stands still while it takes a queue pair number held up everybody's ibv_create_qp.
TEST(CrossProcess, OneThatStopsWhileItTakesANumberDoesNotStopTheOthers) {
  OwnFabric fabric("number");
  Child stopped([](Link& l) { return create_queue_pairs(l, "qp_directory_claimed:1:stop"); });
  ASSERT_TRUE(stopped.link().wait());
  Child other([](Link& l) { return create_queue_pairs(l, ""); });
  ASSERT_TRUE(other.link().wait());
  ASSERT_TRUE(stopped.link().put('c'));
  ASSERT_TRUE(stopped.stopped());
  bool done = true;
  ASSERT_TRUE(creates(other, &done)) << "it waits for ever";
  EXPECT_FALSE(done);
  stopped.signal(SIGCONT);
  EXPECT_TRUE(stopped.link().get(done));
  EXPECT_TRUE(done);
  ASSERT_TRUE(creates(other, &done));
  EXPECT_TRUE(done);
  EXPECT_TRUE(ends_well(stopped));
  EXPECT_TRUE(ends_well(other));
}

// Connects to the target and sends one message, which stops it where it was told.
int send_and_stop(Link& link, const char* stop_at) {
  ::setenv("SOFTHCA_KILL", stop_at, 1);
  ibv_context* ctx = open_device();
  if (ctx == nullptr) return 1;
  Node node(ctx);
  Qp qp(node, {.timeout = 18, .retry_cnt = 7});
  kit::Address peer{};
  if (!kit::connect_through(link, qp, &peer) || !link.go() || !link.wait()) return 1;
  EXPECT_EQ(kit::post(qp, {}), 0);
  EXPECT_EQ(kit::poll_one(node.cq, kit::real_wait, 20'000'000'000).status, IBV_WC_SUCCESS);
  return link.go() && link.wait() ? 0 : 1;
}

// A process dies while it holds the target's lock, and the one that takes the lock over stops. The
// target, which cleaned up after the dead one, waited for its lock until that one went on, and
// everybody who attached waited for the target.
TEST(CrossProcess, OneThatStopsWithATakenOverLockDoesNotStopAnAttach) {
  for (unsigned round = 0; round < 60; ++round) {
    OwnFabric fabric("taken");
    Child target([](Link& link) {
      ibv_context* ctx = open_device();
      if (ctx == nullptr) return 1;
      {
        Node node(ctx);
        Qp one(node), two(node);
        for (Qp* qp : {&one, &two}) {
          kit::Address peer{};
          EXPECT_EQ(qp->to_init(), 0);
          EXPECT_EQ(kit::post_recv(*qp, 1, 0, 64), 0);
          if (!kit::connect_through(link, *qp, &peer)) return 1;
        }
        if (!link.wait(60000)) return 1;
      }
      EXPECT_EQ(ibv_close_device(ctx), 0);
      return 0;
    });
    Child dies([](Link& link) { return send_and_stop(link, "deliver_locked:1:stop"); });
    kit::introduce(target, dies);
    Child stops([](Link& link) { return send_and_stop(link, "lock_broken:1:stop"); });
    kit::introduce(target, stops);
    ASSERT_TRUE(dies.link().wait() && stops.link().wait());
    ASSERT_TRUE(dies.link().go());
    ASSERT_TRUE(dies.stopped());
    ASSERT_TRUE(stops.link().go());
    kit::real_wait(5'000'000);
    stops.stop();
    dies.signal(SIGKILL);
    // The target has a look at the lock about now.
    for (unsigned i = 0; i < round * 1000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    stops.signal(SIGCONT);
    EXPECT_EQ(dies.join(), 128 + SIGKILL);
    Child fourth(attach_until_told);
    EXPECT_TRUE(fourth.link().wait(10000)) << "round " << round;
    EXPECT_TRUE(ends_well(fourth));
    ASSERT_TRUE(heard_from(stops));
    EXPECT_TRUE(ends_well(stops));
    EXPECT_TRUE(ends_well(target));
  }
}

}  // namespace
