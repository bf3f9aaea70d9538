// Whole processes whose queue pairs die: what is recreated is the same but for its numbers, nothing
// is lost or doubled, nothing leaks, and what cannot be helped is named.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "tests/unit/transport/fabric_kit.h"
#include "tests/unit/transport/verbs_spy.h"

namespace mend::test {
namespace {

// One message each way between 0 and 1; the seeds continue.
struct Talk {
  Fabric& fabric;
  std::uint64_t sent = 0;
  std::uint64_t first = 0;  // of what the inboxes hold
  bool once() {
    fabric[0].send(1, 100, sent);
    fabric[1].send(0, 100, sent + 1000000);
    ++sent;
    return fabric.until([&] {
      const std::uint64_t here = sent - first;
      return fabric[0].inbox.size() == here && fabric[1].inbox.size() == here &&
             fabric[0].transport->flushed() && fabric[1].transport->flushed();
    });
  }
  // Both have counted this many recoveries, and the epoch has lasted long enough to be trusted: the
  // next one is not put off.
  bool recovered(std::int64_t times) {
    const bool counted = fabric.until([&] {
      return fabric[0].stat("recoveries") >= times && fabric[1].stat("recoveries") >= times;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return counted;
  }
  void expect_in_order() const {
    for (std::uint64_t i = first; i < sent; ++i) {
      ASSERT_EQ(fabric[1].inbox[i - first].bytes, pattern(100, i)) << i;
      ASSERT_EQ(fabric[0].inbox[i - first].bytes, pattern(100, i + 1000000)) << i;
    }
  }
  // Looked at, and their memory given back.
  void forget() {
    expect_in_order();
    for (std::uint32_t rank = 0; rank < 2; ++rank) std::vector<Inbox>().swap(fabric[rank].inbox);
    first = sent;
  }
};

struct Attributes {
  ibv_qp_attr attr{};
  std::uint32_t qpn = 0;
};

std::vector<Attributes> attributes(const VerbsSpy& spy) {
  std::vector<Attributes> all;
  for (ibv_qp* qp : spy.in_rts(IBV_QPT_RC)) {
    Attributes one;
    ibv_qp_init_attr init{};
    EXPECT_EQ(spy.query(qp, one.attr, init), 0);
    one.qpn = qp->qp_num;
    all.push_back(one);
  }
  return all;
}

TEST(Recovery, ARecreatedQueuePairHasTheAttributesOfTheFirst) {
  VerbsSpy spy;
  conn::Params params = quick();
  params.ib_retry_count = 6;
  params.ib_min_rnr_timer = 13;
  params.service_level = 3;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  Talk talk{fabric};
  ASSERT_TRUE(talk.once());
  const auto before = attributes(spy);
  ASSERT_EQ(before.size(), 2u);
  for (ibv_qp* qp : spy.in_rts(IBV_QPT_RC)) spy.break_qp(qp);
  ASSERT_TRUE(talk.once());
  const auto after = attributes(spy);
  ASSERT_EQ(after.size(), 2u);
  EXPECT_TRUE(talk.recovered(1));
  for (const Attributes& now : after) {
    for (const Attributes& old : before) {
      EXPECT_NE(now.qpn, old.qpn);
      EXPECT_NE(now.attr.sq_psn, old.attr.sq_psn) << "random per epoch";
      EXPECT_EQ(now.attr.timeout, old.attr.timeout);
      EXPECT_EQ(now.attr.retry_cnt, old.attr.retry_cnt);
      EXPECT_EQ(now.attr.rnr_retry, old.attr.rnr_retry);
      EXPECT_EQ(now.attr.min_rnr_timer, old.attr.min_rnr_timer);
      EXPECT_EQ(now.attr.max_rd_atomic, old.attr.max_rd_atomic);
      EXPECT_EQ(now.attr.max_dest_rd_atomic, old.attr.max_dest_rd_atomic);
      EXPECT_EQ(now.attr.path_mtu, old.attr.path_mtu);
      EXPECT_EQ(now.attr.pkey_index, old.attr.pkey_index);
      EXPECT_EQ(now.attr.port_num, old.attr.port_num);
      EXPECT_EQ(now.attr.qp_access_flags, old.attr.qp_access_flags);
      EXPECT_EQ(now.attr.ah_attr.sl, old.attr.ah_attr.sl);
      EXPECT_EQ(now.attr.ah_attr.grh.sgid_index, old.attr.ah_attr.grh.sgid_index);
      EXPECT_EQ(now.attr.ah_attr.grh.hop_limit, old.attr.ah_attr.grh.hop_limit);
    }
    EXPECT_EQ(now.attr.timeout, 8);
    EXPECT_EQ(now.attr.retry_cnt, 6);
    EXPECT_EQ(now.attr.min_rnr_timer, 13);
    EXPECT_EQ(now.attr.ah_attr.sl, 3);
  }
  talk.expect_in_order();
  fabric.close_all();
}

// What users are told is what the device was told, and the port has more to offer.
TEST(Recovery, TheStatisticsNameTheQueuePairsPath) {
  VerbsSpy spy;
  conn::Params params = quick();
  params.mtu = 1024;
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  const auto rail = [&] {
    return nlohmann::json::parse(fabric[0].transport->stats_json()).at("rails").at(0);
  };
  EXPECT_EQ(rail().at("path_mtu"), 0) << "nothing is connected yet";
  Talk talk{fabric};
  ASSERT_TRUE(talk.once());
  for (const Attributes& one : attributes(spy)) {
    EXPECT_EQ(one.attr.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(rail().at("gid_index"), one.attr.ah_attr.grh.sgid_index);
  }
  EXPECT_EQ(rail().at("path_mtu"), 1024);
  EXPECT_EQ(rail().at("gid"), "::ffff:10.77.0.1");
  fabric.close_all();
}

// The datagrams keep flowing, so that no heartbeat is missed: only the request's age tells.
TEST(Recovery, ACompletionThatNeverComesIsFoundByAProbe) {
  VerbsSpy spy;
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  Talk talk{fabric};
  ASSERT_TRUE(talk.once());
  PagePut put(fabric);
  spy.swallow(1);
  put.submit();
  EXPECT_TRUE(fabric.until([&] { return put.done(); }, 15000));
  EXPECT_EQ(spy.swallowed(), 1);
  EXPECT_TRUE(put.arrived());
  EXPECT_GE(fabric[0].stat("hb_false_alarm"), 1) << "the probe found the queue pair alive";
  EXPECT_EQ(fabric[0].stat("recoveries"), 0);
  ASSERT_TRUE(talk.once());
  fabric.close_all();
}

TEST(Recovery, ABrokenControlQueuePairIsResetInPlace) {
  VerbsSpy spy;
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  Talk talk{fabric};
  ASSERT_TRUE(talk.once());
  for (int round = 0; round < 5; ++round) {
    const auto control = spy.in_rts(IBV_QPT_UD);
    ASSERT_EQ(control.size(), 2u) << round;
    for (ibv_qp* qp : control) EXPECT_TRUE(spy.break_qp(qp));
    for (ibv_qp* qp : spy.in_rts(IBV_QPT_RC)) spy.break_qp(qp);
    ASSERT_TRUE(talk.once()) << round;
    ASSERT_TRUE(talk.recovered(round + 1)) << round;
    ASSERT_TRUE(fabric.until([&] { return spy.in_rts(IBV_QPT_UD) == control; }))
        << "the same queue pairs are back";
  }
  talk.expect_in_order();
  fabric.close_all();
}

// Nothing moved: a look at the port, no fence.
TEST(Recovery, AGidEventWithoutAChangeFencesNothing) {
  VerbsSpy spy;
  Fabric fabric(2, quick());
  ASSERT_EQ(fabric.error(), "");
  Talk talk{fabric};
  ASSERT_TRUE(talk.once());
  const auto before = spy.in_rts(IBV_QPT_RC);
  spy.inject(IBV_EVENT_GID_CHANGE, before[0]->context);
  ASSERT_TRUE(fabric.until([&] { return spy.injected_left() == 0; })) << "the event was taken";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(talk.once());
  EXPECT_EQ(spy.in_rts(IBV_QPT_RC), before);
  fabric.close_all();
}

TEST(Recovery, IdleConnectionsSendNothing) {
  VerbsSpy spy;
  conn::Params params = quick();
  params.heartbeat_idle_s = 1;
  constexpr std::uint32_t kRanks = 8;
  Fabric fabric(kRanks, params);
  ASSERT_EQ(fabric.error(), "");
  for (std::uint32_t a = 0; a < kRanks; ++a)
    for (std::uint32_t b = 0; b < kRanks; ++b)
      if (a != b) fabric[a].send(b, 8, 1);
  ASSERT_TRUE(fabric.until([&] {
    for (std::uint32_t a = 0; a < kRanks; ++a)
      if (fabric[a].inbox.size() != kRanks - 1) return false;
    return true;
  }));
  // The application polls on until all acknowledgements are written.
  ASSERT_TRUE(fabric.until([&] {
    for (std::uint32_t a = 0; a < kRanks; ++a)
      if (!fabric[a].transport->flushed()) return false;
    return true;
  }));
  const std::uint64_t busy = spy.datagrams();
  EXPECT_GT(busy, 0u);
  // A heartbeat that a starved machine delays is still one of the busy time.
  std::uint64_t idle = busy;
  for (int tries = 0; tries < 10; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    const std::uint64_t again = spy.datagrams();
    if (std::exchange(idle, again) == again) break;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(spy.datagrams(), idle);
  // Awake again: a message is answered and heartbeats are on.
  fabric[0].send(1, 8, 2);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == kRanks; }));
  EXPECT_TRUE(fabric.until([&] { return spy.datagrams() > idle; }, 1000));
  fabric.close_all();
}

// The other side has not looked us up yet and does not call MPI for longer than max_outage: it says
// that it lives, and nobody gives up.
TEST(Recovery, APeerThatHasNotMetUsYetIsWaitedForBeyondTheDeadline) {
  conn::Params params = quick();
  params.max_outage_s = 1;
  params.reconnect_backoff_max_ms = 100;
  Fabric fabric(2, params, false);
  ASSERT_EQ(fabric.error(), "");
  fabric.introduce(0, 1);
  fabric[0].send(1, 8, 1);
  fabric.until_by(
      {0}, [] { return false; }, 2500);
  EXPECT_TRUE(fabric[0].gave_up.empty());
  ASSERT_TRUE(fabric.until([&] { return !fabric[1].unknown.empty(); }));
  fabric.introduce(1, 0);
  ASSERT_TRUE(fabric.until([&] { return fabric[1].inbox.size() == 1; }));
  fabric.close_all();
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// Bytes from malloc; a sanitizer has its own and finds leaks by itself.
std::int64_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

// What threads keep for themselves comes and goes; a leak grows with every recovery.
constexpr std::int64_t kByteNoise = 24 << 10;

// MEND_RECOVERIES: how many; the full run has 10,000.
TEST(RecoveryLeaks, ManyRecoveriesLeaveNothingBehind) {
  const char* wanted = std::getenv("MEND_RECOVERIES");
  const int recoveries = wanted != nullptr ? std::atoi(wanted) : 300;
  VerbsSpy spy;
  conn::Params params = quick();
  Fabric fabric(2, params);
  ASSERT_EQ(fabric.error(), "");
  Talk talk{fabric};
  std::mt19937 random(42);
  const auto settle = [&] {
    ASSERT_TRUE(fabric.until(
        [&] { return fabric[0].transport->flushed() && fabric[1].transport->flushed(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(params.qp_linger_ms * 5));
  };
  const auto kill_one = [&] {
    const auto alive = spy.in_rts(IBV_QPT_RC);
    if (!alive.empty()) spy.break_qp(alive[random() % alive.size()]);
  };
  int killed = 0;
  const auto round = [&] {
    kill_one();
    ASSERT_TRUE(talk.once()) << killed;
    ASSERT_TRUE(talk.recovered(++killed)) << killed;
  };
  ASSERT_TRUE(talk.once());
  for (int i = 0; i < 20; ++i) round();  // what is made once and kept is there after this
  settle();
  LiveObjects objects = spy.live();
  for (int tries = 0; tries < 50; ++tries) {  // those who put things away may be starved
    settle();
    const LiveObjects again = spy.live();
    if (std::exchange(objects, again) == again) break;
  }
  const std::size_t descriptors = open_descriptors();
  const std::uint64_t created = spy.created_qps();
  talk.forget();
  const std::int64_t bytes = bytes_in_use();
  for (int i = 0; i < recoveries && !HasFatalFailure(); ++i) round();
  settle();
  fabric.until([&] { return spy.live() == objects; });
  EXPECT_EQ(spy.live(), objects) << spy.live().text() << "; before: " << objects.text();
  EXPECT_EQ(open_descriptors(), descriptors);
  talk.forget();
  EXPECT_LT(bytes_in_use() - bytes, kByteNoise) << bytes << " bytes before";
  EXPECT_GE(spy.created_qps() - created, static_cast<std::uint64_t>(recoveries));
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_GE(fabric[i].stat("recoveries"), recoveries);
    EXPECT_EQ(fabric[i].stat("dup_rx"), 0);
    EXPECT_EQ(fabric[i].stat("srq_lost"), 0);
    EXPECT_GE(fabric[i].stat("srq_depth"), 2 * fabric[i].stat("qps_live_max")) << "the 2 x rule";
    // The warm ones, the connection's old one and its new one, and one that was made because its
    // number was not to be used again; however many linger.
    EXPECT_LE(fabric[i].stat("qps_live_max"), params.qp_pool_size + 3);
    EXPECT_TRUE(fabric[i].gave_up.empty());
  }
  fabric.close_all();
}

}  // namespace
}  // namespace mend::test
