// Async events: acknowledged at once, translated by kind.
#include "plugin/verbs/async_events.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plugin/verbs/objects.h"
#include "tests/unit/verbs/fake_device.h"

namespace mend::verbs {
namespace {

class AsyncEvents : public testing::Test {
 protected:
  void SetUp() override {
    auto devices = DeviceList::query(fake.api);
    ASSERT_TRUE(devices);
    context = std::move(*open_device(fake.api, (*devices)[0]));
    ASSERT_TRUE(prepare_async_events(context.get()));
  }
  test::FakeDevice fake;
  Context context;
};

TEST_F(AsyncEvents, NothingWaitingDoesNotBlock) {
  AsyncEvent event;
  EXPECT_FALSE(next_async_event(fake.api, context.get(), event));
}

TEST_F(AsyncEvents, EachIsAckedBeforeItIsHandedOut) {
  ibv_qp qp{};
  qp.qp_num = 0x77;
  ibv_async_event raw{};
  raw.event_type = IBV_EVENT_QP_FATAL;
  raw.element.qp = &qp;
  fake.raise(raw);
  raw.event_type = IBV_EVENT_PORT_ERR;
  raw.element.port_num = 2;
  fake.raise(raw);

  AsyncEvent event;
  ASSERT_TRUE(next_async_event(fake.api, context.get(), event));
  EXPECT_EQ(event.subject, EventSubject::QueuePair);
  EXPECT_EQ(event.qpn, Qpn{0x77});
  EXPECT_EQ(fake.events_unacked, 0);
  ASSERT_TRUE(next_async_event(fake.api, context.get(), event));
  EXPECT_EQ(event.subject, EventSubject::Port);
  EXPECT_EQ(event.port, 2);
  EXPECT_EQ(event.qpn, Qpn{});
  EXPECT_EQ(fake.events_unacked, 0);
  EXPECT_FALSE(next_async_event(fake.api, context.get(), event));
}

TEST_F(AsyncEvents, QueuesAreIdentities) {
  ibv_srq srq{};
  ibv_cq cq{};
  ibv_async_event raw{};
  raw.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  raw.element.srq = &srq;
  fake.raise(raw);
  raw.event_type = IBV_EVENT_CQ_ERR;
  raw.element.cq = &cq;
  fake.raise(raw);
  AsyncEvent event;
  ASSERT_TRUE(next_async_event(fake.api, context.get(), event));
  EXPECT_EQ(event.srq, &srq);
  ASSERT_TRUE(next_async_event(fake.api, context.get(), event));
  EXPECT_EQ(event.cq, &cq);
  EXPECT_EQ(event.srq, nullptr);
}

TEST(AsyncEventNames, AreAllDifferent) {
  std::set<std::string> names;
  for (int i = 0; i <= IBV_EVENT_WQ_FATAL; ++i) {
    names.insert(event_name(static_cast<ibv_event_type>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(IBV_EVENT_WQ_FATAL) + 1);
}

}  // namespace
}  // namespace mend::verbs
