#include "ops/op_log.h"

#include <gtest/gtest.h>

namespace mend::ops {
namespace {

TEST(OpLog, GrowsWithoutLosingOrderOrCursors) {
  OpLog log(4);
  EXPECT_EQ(log.capacity(), 4u);
  std::uint32_t next = 0;
  // Move the window so that the ring is wrapped when it grows.
  for (; next < 3; ++next) {
    log.append().seq = next;
  }
  log.set_posted(3);
  log.set_retired(2);
  log.set_done(3);
  for (; next < 40; ++next) {
    log.append().seq = next;
  }
  EXPECT_EQ(log.base(), 2u);
  EXPECT_EQ(log.end(), 40u);
  EXPECT_GE(log.capacity(), 38u);
  EXPECT_EQ(log.posted(), 3u);
  for (std::uint64_t i = log.base(); i != log.end(); ++i) {
    EXPECT_EQ(log.at(i).seq, i);
  }
}

TEST(OpLog, KeepsEntriesUntilDoneAndOffTheWire) {
  OpLog log(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    log.append().seq = i;
  }
  log.set_posted(4);
  log.set_done(4);  // the acks overtook the completions
  log.append().seq = 4;
  EXPECT_EQ(log.capacity(), 8u) << "an entry still on the wire was overwritten";
  EXPECT_EQ(log.at(0).seq, 0u);
  log.set_retired(4);
  EXPECT_EQ(log.base(), 4u);
  EXPECT_FALSE(log.all_done());
  log.set_done(5);
  EXPECT_TRUE(log.all_done());
}

TEST(OpLog, ReusesSlotsForEver) {
  OpLog log(8);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    log.append().offset = i;
    EXPECT_EQ(log.at(i).offset, i);
    log.set_posted(i + 1);
    log.set_done(i + 1);
    log.set_retired(i + 1);
  }
  EXPECT_EQ(log.capacity(), 8u);
}

}  // namespace
}  // namespace mend::ops
