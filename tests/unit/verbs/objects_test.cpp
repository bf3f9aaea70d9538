// Factories: clamping, shrinking, messages; and that the owner destroys what it owns, once.
#include "plugin/verbs/objects.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "plugin/verbs/log.h"
#include "tests/unit/verbs/fake_device.h"

namespace mend::verbs {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Objects : public testing::Test {
 protected:
  void open() {
    auto devices = DeviceList::query(fake.api);
    ASSERT_TRUE(devices);
    context = std::move(*open_device(fake.api, (*devices)[0]));
    caps = *query_caps(fake.api, context.get());
    pd = std::move(*alloc_pd(fake.api, context.get()));
  }
  QpRequest request(ibv_cq* cq) const {
    return {.send_cq = cq, .recv_cq = cq, .send_depth = 64, .send_minimum = 4, .recv_depth = 8};
  }
  test::FakeDevice fake;
  Context context;
  Pd pd;
  DeviceCaps caps;
};

TEST_F(Objects, CqIsClampedToTheDevice) {
  fake.limits.max_cqe = 100;
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 1000, .minimum = 50});
  ASSERT_TRUE(cq);
  EXPECT_EQ((*cq)->cqe, 100);
  EXPECT_EQ(fake.calls("create_cq"), 1);
}

TEST_F(Objects, CqBelowTheMinimumIsRefusedWithBothLimits) {
  fake.limits.max_cqe = 100;
  open();
  const auto cq = create_cq(fake.api, context.get(), caps, {.depth = 1000, .minimum = 200});
  ASSERT_FALSE(cq);
  EXPECT_EQ(fake.calls("create_cq"), 0) << "nothing to try";
  EXPECT_TRUE(has(cq.error().message,
                  "asked for 1000 entries, at least 200 are needed; the device "
                  "allows 100 entries and 16 queues"))
      << cq.error().message;
}

TEST_F(Objects, CqShrinksOnNoMemory) {
  open();
  fake.fail("create_cq", ENOMEM, 2);
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 1000, .minimum = 100});
  ASSERT_TRUE(cq);
  EXPECT_EQ((*cq)->cqe, 250);
}

TEST_F(Objects, CqDoesNotRetryWhatRetryingCannotCure) {
  open();
  fake.fail("create_cq", EACCES, 5);
  const auto cq = create_cq(fake.api, context.get(), caps, {.depth = 1000, .minimum = 1});
  ASSERT_FALSE(cq);
  EXPECT_EQ(cq.error().code, EACCES);
  EXPECT_EQ(fake.calls("create_cq"), 1);
}

TEST_F(Objects, GrowCq) {
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 10});
  ASSERT_TRUE(cq);
  EXPECT_TRUE(grow_cq(fake.api, cq->get(), caps, 5));
  EXPECT_EQ(fake.calls("resize_cq"), 0) << "never shrinks";
  EXPECT_TRUE(grow_cq(fake.api, cq->get(), caps, 50));
  EXPECT_EQ((*cq)->cqe, 50);
  const auto beyond = grow_cq(fake.api, cq->get(), caps, caps.max_cqe + 1);
  ASSERT_FALSE(beyond);
  EXPECT_TRUE(has(beyond.error().message, "the device allows 65536"));
  fake.can_resize = false;
  EXPECT_EQ(grow_cq(fake.api, cq->get(), caps, 60).error().code, ENOSYS);
}

TEST_F(Objects, SrqShrinksAndTellsWhatItGot) {
  open();
  fake.fail("create_srq", ENOMEM, 1);
  auto srq = create_srq(fake.api, pd.get(), caps, {.depth = 512, .minimum = 16});
  ASSERT_TRUE(srq);
  EXPECT_EQ(srq->depth, 256u);
}

TEST_F(Objects, SrqFailureNamesTheLimits) {
  open();
  fake.fail("create_srq", ENOMEM, 100);
  const auto srq = create_srq(fake.api, pd.get(), caps, {.depth = 64, .minimum = 16});
  ASSERT_FALSE(srq);
  EXPECT_TRUE(has(srq.error().message,
                  "create_srq on fake0: Cannot allocate memory; asked for 64 "
                  "receive requests, at least 16 are needed; the device "
                  "allows 4096 requests and 4 queues"))
      << srq.error().message;
  EXPECT_EQ(fake.calls("create_srq"), 3) << "64, 32, 16";
}

TEST_F(Objects, QpGivesUpInlineBeforeDepth) {
  fake.inline_limit = 0;
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 128});
  auto wanted = request(cq->get());
  wanted.max_inline = 256;
  auto grant = create_qp(fake.api, pd.get(), caps, wanted);
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_EQ(grant->max_inline, 0u);
  EXPECT_EQ(grant->send_depth, 64u);
}

TEST_F(Objects, QpShrinksToWhatTheDeviceHas) {
  fake.wr_limit = 20;
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 128});
  auto grant = create_qp(fake.api, pd.get(), caps, request(cq->get()));
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->send_depth, 16u);
}

TEST_F(Objects, QpBelowTheMinimumIsRefused) {
  fake.wr_limit = 3;
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 128});
  const auto grant = create_qp(fake.api, pd.get(), caps, request(cq->get()));
  ASSERT_FALSE(grant);
  EXPECT_EQ(grant.error().code, ENOMEM);
  EXPECT_TRUE(
      has(grant.error().message, "the device allows 1024 per queue pair and 64 queue pairs"))
      << grant.error().message;
  EXPECT_EQ(fake.live["qp"], 0);
}

TEST_F(Objects, QpMinimumAboveTheDeviceIsNotTried) {
  fake.limits.max_qp_wr = 2;
  open();
  auto cq = create_cq(fake.api, context.get(), caps, {.depth = 128});
  EXPECT_FALSE(create_qp(fake.api, pd.get(), caps, request(cq->get())));
  EXPECT_EQ(fake.calls("create_qp"), 0);
}

TEST_F(Objects, RegistrationNamesMemlock) {
  open();
  rlimit saved{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &saved), 0);
  rlimit low = saved;
  low.rlim_cur = 64 * 1024;
  if (saved.rlim_max != RLIM_INFINITY && saved.rlim_max < low.rlim_cur) GTEST_SKIP();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  fake.fail("reg_mr", ENOMEM);
  char memory[16];
  const auto mr =
      register_memory(fake.api, pd.get(), memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
  setrlimit(RLIMIT_MEMLOCK, &saved);
  ASSERT_FALSE(mr);
  EXPECT_TRUE(has(mr.error().message, "registering 16 bytes")) << mr.error().message;
  EXPECT_TRUE(has(mr.error().message, "memlock limit 64 KiB; raise it with 'ulimit -l unlimited'"))
      << mr.error().message;
  EXPECT_EQ(memlock_hint(EINVAL), "") << "only where it can be the cause";
}

TEST_F(Objects, OwnersDestroyInMemberOrder) {
  open();
  {
    auto channel = create_comp_channel(fake.api, context.get());
    ASSERT_TRUE(channel);
    auto cq = create_cq(fake.api, context.get(), caps, {.depth = 8, .channel = channel->get()});
    auto grant = create_qp(fake.api, pd.get(), caps, request(cq->get()));
    ASSERT_TRUE(grant);
    Qp moved = std::move(grant->qp);
    EXPECT_FALSE(grant->qp);
    EXPECT_EQ(fake.live["qp"], 1);
  }
  EXPECT_EQ(fake.live["qp"] + fake.live["cq"] + fake.live["channel"], 0);
}

TEST_F(Objects, MoveAssignmentDestroysTheOld) {
  open();
  auto a = create_cq(fake.api, context.get(), caps, {.depth = 8});
  auto b = create_cq(fake.api, context.get(), caps, {.depth = 8});
  ASSERT_TRUE(a && b);
  *a = std::move(*b);
  EXPECT_EQ(fake.live["cq"], 1);
}

std::string last_log;

TEST(Unique, FailedDestroyIsToldAndCounted) {
  ibv_pd object{};
  Pd pd(&object, [](ibv_pd*) { return EBUSY; });
  set_log_sink([](LogLevel, std::string_view text) { last_log = text; });
  const auto before = destroy_failures();
  EXPECT_EQ(pd.reset(), EBUSY);
  set_log_sink(nullptr);
  EXPECT_EQ(destroy_failures(), before + 1);
  EXPECT_EQ(last_log, "destroying a protection domain failed: Device or resource busy");
  EXPECT_EQ(pd.reset(), 0) << "once";
}

}  // namespace
}  // namespace mend::verbs
