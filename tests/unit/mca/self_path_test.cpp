// A process' traffic with itself: order, re-entrance, exactly one completion, and the same atomics
// as for any peer.
#include "plugin/mca/self_path.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace mend::mca {
namespace {

struct Heard {
  RailId rail;
  std::uint8_t tag;
  std::uint32_t length;
};

class SelfPathTest : public testing::Test {
 public:  // the upcalls below are lambdas of no class
  SelfPathTest() { path_.start(&deliver, &release, this); }

  static void deliver(void* context, RailId rail, std::uint8_t tag, ops::Frag& frag) {
    auto& test = *static_cast<SelfPathTest*>(context);
    test.heard_.push_back(Heard{rail, tag, frag.length});
    if (test.in_upcall_) test.in_upcall_(test);
  }
  static void release(void* context, ops::Frag&) {
    ++static_cast<SelfPathTest*>(context)->released_;
  }

  void send(std::uint8_t tag, bool want_callback, RailId rail = {}) {
    auto frag = std::make_unique<ops::Frag>();
    frag->length = tag * 10u;
    frag->sent = [](ops::Frag& f) { sent_tags().push_back(f.header.tag); };
    frags_.push_back(std::move(frag));
    path_.send(*frags_.back(), rail, tag, want_callback);
  }
  static std::vector<int>& sent_tags() {
    static std::vector<int> tags;
    return tags;
  }

  SelfPath path_;
  std::vector<std::unique_ptr<ops::Frag>> frags_;
  std::vector<Heard> heard_;
  int released_ = 0;
  void (*in_upcall_)(SelfPathTest&) = nullptr;
};

TEST_F(SelfPathTest, NothingHappensInsideSend) {
  sent_tags().clear();
  send(1, true);
  EXPECT_TRUE(heard_.empty());
  EXPECT_TRUE(sent_tags().empty());
  EXPECT_TRUE(path_.pending());
  EXPECT_EQ(path_.progress(), 1);
  EXPECT_FALSE(path_.pending());
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(sent_tags(), std::vector<int>{1});
  EXPECT_EQ(released_, 0);  // with a callback the submitter gives the frag back
}

TEST_F(SelfPathTest, KeepsOrderRailAndLength) {
  send(3, false, RailId{2});
  send(4, false, RailId{1});
  send(5, false);
  while (path_.pending()) path_.progress();
  ASSERT_EQ(heard_.size(), 3u);
  EXPECT_EQ(heard_[0].tag, 3);
  EXPECT_EQ(heard_[0].rail, RailId{2});
  EXPECT_EQ(heard_[1].tag, 4);
  EXPECT_EQ(heard_[1].rail, RailId{1});
  EXPECT_EQ(heard_[2].length, 50u);
  EXPECT_EQ(released_, 3);
}

TEST_F(SelfPathTest, UpcallMaySendAndProgress) {
  in_upcall_ = [](SelfPathTest& test) {
    if (test.heard_.size() < 5) {
      test.send(static_cast<std::uint8_t>(test.heard_.size() + 1), false);
      test.path_.progress();
    }
  };
  send(1, false);
  path_.progress();
  ASSERT_EQ(heard_.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(heard_[i].tag, i + 1);
  EXPECT_EQ(released_, 5);
  EXPECT_FALSE(path_.pending());
}

TEST_F(SelfPathTest, EndlessTrafficDoesNotHoldTheCaller) {
  in_upcall_ = [](SelfPathTest& test) { test.send(1, false); };
  send(1, false);
  const int events = path_.progress();
  EXPECT_GT(events, 0);
  EXPECT_LT(events, 1000);
  EXPECT_TRUE(path_.pending());
}

TEST_F(SelfPathTest, PutAndGetCopyAtOnceAndCompleteLater) {
  char there[] = "old contents";
  char here[] = "new contents";
  ops::RdmaOp op;
  static int done;
  done = 0;
  op.dir = ops::RdmaOp::Dir::Put;
  op.local = here;
  op.remote = reinterpret_cast<std::uint64_t>(there);
  op.length = 3;
  op.done = [](ops::RdmaOp&) { ++done; };
  path_.rdma(op);
  EXPECT_STREQ(there, "new contents");
  EXPECT_EQ(done, 0);
  path_.progress();
  EXPECT_EQ(done, 1);

  there[0] = 'X';
  there[1] = 'Y';
  there[2] = 'Z';
  op.dir = ops::RdmaOp::Dir::Get;
  path_.rdma(op);
  EXPECT_STREQ(here, "XYZ contents");
  path_.progress();
  EXPECT_EQ(done, 2);
}

TEST_F(SelfPathTest, OverlappingPutMoves) {
  char text[] = "abcdefgh";
  ops::RdmaOp op;
  op.dir = ops::RdmaOp::Dir::Put;
  op.local = text;
  op.remote = reinterpret_cast<std::uint64_t>(text + 2);
  op.length = 6;
  op.done = [](ops::RdmaOp&) {};
  path_.rdma(op);
  EXPECT_STREQ(text, "ababcdef");
  path_.progress();
}

struct AtomicCase {
  ops::AmoOp op;
  std::uint8_t width;
  std::uint64_t before, operand, compare, after;
};

class SelfAtomic : public testing::TestWithParam<AtomicCase> {};

TEST_P(SelfAtomic, ReturnsTheValueBefore) {
  const AtomicCase& c = GetParam();
  SelfPath path;
  std::uint64_t memory[2] = {c.before, 0x5555555555555555ull};
  ops::AmoCall call;
  static int done;
  done = 0;
  call.op = c.op;
  call.width = c.width;
  call.remote = reinterpret_cast<std::uint64_t>(memory);
  call.operand = c.operand;
  call.compare = c.compare;
  call.done = [](ops::AmoCall&) { ++done; };
  path.atomic(call);
  EXPECT_EQ(done, 0);
  path.progress();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(memory[0], c.after);
  EXPECT_EQ(memory[1], 0x5555555555555555ull);
  EXPECT_EQ(call.result, c.width == 4 ? (c.before & 0xffffffffu) : c.before);
}

constexpr std::uint64_t kHigh = 0xaaaaaaaa00000000ull;  // must survive 4-byte operations
INSTANTIATE_TEST_SUITE_P(
    All, SelfAtomic,
    testing::Values(AtomicCase{ops::AmoOp::Add, 8, ~0ull, 2, 0, 1},
                    AtomicCase{ops::AmoOp::Add, 4, kHigh | 0xffffffff, 2, 0, kHigh | 1},
                    AtomicCase{ops::AmoOp::And, 8, 0xf0f0, 0xff00, 0, 0xf000},
                    AtomicCase{ops::AmoOp::Or, 4, kHigh | 0x0f, 0xf0, 0, kHigh | 0xff},
                    AtomicCase{ops::AmoOp::Xor, 8, 0xff, 0x0f, 0, 0xf0},
                    AtomicCase{ops::AmoOp::Swap, 4, kHigh | 7, 9, 0, kHigh | 9},
                    AtomicCase{ops::AmoOp::Cswap, 8, 5, 6, 5, 6},
                    AtomicCase{ops::AmoOp::Cswap, 8, 5, 6, 4, 5},
                    AtomicCase{ops::AmoOp::Cswap, 4, kHigh | 5, 6, 5, kHigh | 6}));

}  // namespace
}  // namespace mend::mca
