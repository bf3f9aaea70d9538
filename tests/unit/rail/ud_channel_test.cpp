// Control datagrams: delivered once with their source, woken for, and the channel repaired in
// place.
#include "plugin/conn/ud_channel.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <string>
#include <vector>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "tests/unit/rail/rail_kit.h"

namespace mend::conn {
namespace {

struct Arrived {
  std::vector<std::string> texts;
  std::vector<UdSource> sources;
  static void take(void* context, std::span<const std::byte> bytes, const UdSource& source) {
    auto* self = static_cast<Arrived*>(context);
    self->texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    self->sources.push_back(source);
  }
};

class UdChannelTest : public RailKit {
 protected:
  void start() {
    open();
    auto a_made = UdChannel::create(*rail);
    auto b_made = UdChannel::create(*rail);
    ASSERT_TRUE(a_made) << a_made.error().message;
    ASSERT_TRUE(b_made);
    a = std::move(*a_made);
    b = std::move(*b_made);
  }
  UdSend say(UdChannel& from, const UdAddress& to, const std::string& text) {
    return from.send(to, std::as_bytes(std::span(text.data(), text.size())));
  }
  static bool readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  void TearDown() override {
    a.reset();
    b.reset();
    rail.reset();
    nic.reset();
    for (const auto& [kind, count] : fake.live) EXPECT_EQ(count, 0) << kind;
    EXPECT_EQ(fake.events_unacked, 0);
  }
  std::unique_ptr<UdChannel> a, b;
  Arrived arrived;
};

TEST_F(UdChannelTest, DatagramArrivesWithItsSource) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  EXPECT_EQ(say(*a, b->address(), "hello"), UdSend::Sent);
  EXPECT_TRUE(readable(b->fd()));
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 1);
  ASSERT_EQ(arrived.texts.size(), 1u);
  EXPECT_EQ(arrived.texts[0], "hello");
  EXPECT_EQ(arrived.sources[0].qpn, a->address().qpn);
  EXPECT_TRUE(arrived.sources[0].has_gid);
  EXPECT_EQ(arrived.sources[0].gid, a->address().gid);
  EXPECT_FALSE(readable(b->fd()));
}

TEST_F(UdChannelTest, UnknownDestinationIsSaidNotWaitedFor) {
  start();
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::NoPath);
  EXPECT_EQ(fake.calls("create_ah"), 0) << "never on the sender's thread";
  ASSERT_TRUE(a->resolve(b->address()));
  ASSERT_TRUE(a->resolve(b->address()));
  EXPECT_EQ(fake.calls("create_ah"), 1) << "resolved once";
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::Sent);
}

TEST_F(UdChannelTest, UnreachableDestinationNamesItself) {
  start();
  fake.fail("create_ah", EHOSTUNREACH);
  const auto resolved = a->resolve(b->address());
  ASSERT_FALSE(resolved);
  EXPECT_TRUE(has(resolved.error().message, "no path from fake0:1 to ::ffff:10.0.0.1"))
      << resolved.error().message;
}

TEST_F(UdChannelTest, EveryWakeUpIsKept) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  for (int round = 0; round < 1000; ++round) {
    const std::string text = std::to_string(round);
    ASSERT_EQ(say(*a, b->address(), text), UdSend::Sent) << round;
    ASSERT_TRUE(readable(b->fd())) << round;
    ASSERT_EQ(b->receive(Arrived::take, &arrived), 1) << round;
    ASSERT_EQ(arrived.texts.back(), text);
  }
}

TEST_F(UdChannelTest, BurstsAreTakenAtOnce) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  for (int i = 0; i < 200; ++i) ASSERT_EQ(say(*a, b->address(), std::to_string(i)), UdSend::Sent);
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 200);
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 0);
}

TEST_F(UdChannelTest, LostDatagramsAreNoError) {
  start();
  fake.datagrams_lost = true;
  ASSERT_TRUE(a->resolve(b->address()));
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::Sent);
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 0);
  EXPECT_FALSE(a->broken());
}

TEST_F(UdChannelTest, TooLongIsNeverSent) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  EXPECT_EQ(say(*a, b->address(), std::string(kMaxDatagram + 1, 'x')), UdSend::TooLong);
  EXPECT_EQ(say(*a, b->address(), std::string(kMaxDatagram, 'x')), UdSend::Sent);
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 1);
}

TEST_F(UdChannelTest, BrokenOneIsResetInPlace) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  const UdAddress before = b->address();
  fake.break_qp(before.qpn.value);
  EXPECT_TRUE(readable(b->fd())) << "the flush wakes the service thread";
  b->receive(Arrived::take, &arrived);
  EXPECT_TRUE(b->broken());
  EXPECT_EQ(say(*b, a->address(), "x"), UdSend::Broken);
  ASSERT_TRUE(b->reset_in_place());
  EXPECT_FALSE(b->broken());
  EXPECT_EQ(b->address(), before) << "peers keep the address they know";
  for (int i = 0; i < 256; ++i) ASSERT_EQ(say(*a, before, "y"), UdSend::Sent);
  EXPECT_EQ(b->receive(Arrived::take, &arrived), 256) << "every buffer is posted again";
}

TEST_F(UdChannelTest, RefusedPostBreaksIt) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  fake.fail("post_send", EIO);
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::Broken);
  EXPECT_TRUE(a->broken());
  ASSERT_TRUE(a->reset_in_place());
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::Sent);
}

TEST_F(UdChannelTest, FailedResetCanBeTriedAgain) {
  start();
  fake.fail("modify_qp", EIO, 1, 1);
  EXPECT_FALSE(a->reset_in_place());
  EXPECT_TRUE(a->broken());
  EXPECT_TRUE(a->reset_in_place());
  EXPECT_FALSE(a->broken());
}

TEST_F(UdChannelTest, PathsAreResolvedAnewAfterAChange) {
  start();
  ASSERT_TRUE(a->resolve(b->address()));
  a->paths_changed();
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::NoPath);
  ASSERT_TRUE(a->resolve(b->address()));
  EXPECT_EQ(say(*a, b->address(), "x"), UdSend::Sent);
  (void)a->receive(Arrived::take, &arrived);
  EXPECT_EQ(fake.live["ah"], 1) << "the old handle died when nothing was in flight";
}

TEST_F(UdChannelTest, SetUpFailureNamesTheRail) {
  open();
  fake.fail("create_comp_channel", EMFILE);
  const auto made = UdChannel::create(*rail);
  ASSERT_FALSE(made);
  EXPECT_TRUE(has(made.error().message, "control channel of fake0:1: create_comp_channel"))
      << made.error().message;
}

}  // namespace
}  // namespace mend::conn
