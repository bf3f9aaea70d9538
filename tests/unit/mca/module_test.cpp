// The component and its modules as ob1 and osc/rdma call them, towards the process itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <vector>

#include "plugin/mca/component.h"
#include "plugin/mca/descriptors.h"
#include "tests/unit/mca/fake_transport.h"
#include "tests/unit/mca/opal_session.h"

namespace mend::test {
namespace {

constexpr mca_btl_base_tag_t kTag = 0x85;

struct Received {
  std::vector<std::string> messages;
  std::vector<mca_btl_base_module_t*> modules;
};

void on_message(mca_btl_base_module_t* btl, std::uint8_t tag,
                std::span<const mca_btl_base_segment_t> segments, void* context) {
  auto& received = *static_cast<Received*>(context);
  EXPECT_EQ(tag, kTag);
  ASSERT_EQ(segments.size(), 1u);
  received.modules.push_back(btl);
  received.messages.emplace_back(static_cast<char*>(segments[0].seg_addr.pval),
                                 segments[0].seg_len);
}

struct Done {
  int calls = 0;
  int status = -1;
  void* address = nullptr;
  void* context = nullptr;
};
void on_rdma_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void* address,
                  mca_btl_base_registration_handle_t*, void* context, void* data, int status) {
  auto& done = *static_cast<Done*>(data);
  ++done.calls;
  done.status = status;
  done.address = address;
  done.context = context;
}
void on_sent(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t* d,
             int status) {
  auto& done = *static_cast<Done*>(d->des_cbdata);
  ++done.calls;
  done.status = status;
}

class ModuleTest : public testing::Test {
 protected:
  ModuleTest() {
    reset_fake();
    mca_btl_base_active_message_trigger[kTag].cbfunc = mca::compat::receive_callback<&on_message>();
    mca_btl_base_active_message_trigger[kTag].cbdata = &received_;
  }
  ModuleTest(const ModuleTest&) = delete;
  ModuleTest& operator=(const ModuleTest&) = delete;
  ~ModuleTest() override { mca_btl_base_active_message_trigger[kTag].cbfunc = nullptr; }

  static mca_btl_base_descriptor_t* message(Session& s, mca_btl_base_endpoint_t* to,
                                            const std::string& text, std::uint32_t flags) {
    auto* d = s.module()->btl_alloc(s.module(), to, MCA_BTL_NO_ORDER, text.size(), flags);
    if (d != nullptr) std::memcpy(d->des_segments->seg_addr.pval, text.data(), text.size());
    return d;
  }
  static int poll() { return mca_btl_mend_component.btl_progress(); }

  Received received_;
};

TEST_F(ModuleTest, OffersWhatOb1AndOscRdmaAskFor) {
  Session s;
  ASSERT_EQ(s.count(), 1) << s.said();
  const auto& m = *s.module();
  const std::uint32_t wanted = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET |
                               MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS;
  EXPECT_EQ(m.btl_flags & wanted, wanted);
  EXPECT_EQ(m.btl_flags & mca::compat::kExtraFlags, mca::compat::kExtraFlags);
  EXPECT_EQ(m.btl_flags & MCA_BTL_FLAGS_SEND_INPLACE,
            0u);  // user buffers cannot be kept for a replay
  EXPECT_NE(m.btl_atomic_flags & MCA_BTL_ATOMIC_SUPPORTS_ADD, 0u);
  EXPECT_NE(m.btl_atomic_flags & MCA_BTL_ATOMIC_SUPPORTS_CSWAP, 0u);
  EXPECT_NE(m.btl_flush, nullptr);
  EXPECT_EQ(m.btl_exclusivity, 1024u);
  EXPECT_EQ(m.btl_bandwidth, 10000u);  // the rail's
  EXPECT_EQ(m.btl_latency, 2u);
  EXPECT_EQ(m.btl_put_local_registration_threshold, 64u);
  EXPECT_LE(m.btl_eager_limit, m.btl_max_send_size);
}

TEST_F(ModuleTest, UsersBandwidthAndLatencyWin) {
  Session s({"bandwidth=123", "latency=9"});
  ASSERT_EQ(s.count(), 1);
  EXPECT_EQ(s.module()->btl_bandwidth, 123u);
  EXPECT_EQ(s.module()->btl_latency, 9u);
}

TEST_F(ModuleTest, NoDeviceMeansSilence) {
  fake().create_error = ENODEV;
  Session s;
  EXPECT_EQ(s.count(), 0);
  EXPECT_EQ(s.said(), "");
}

TEST_F(ModuleTest, BrokenDeviceIsExplained) {
  fake().create_error = ENOMEM;
  Session s;
  EXPECT_EQ(s.count(), 0);
  EXPECT_NE(s.said().find("it is not there"), std::string::npos) << s.said();
  EXPECT_EQ(mca_btl_mend_component.btl_progress(), 0);
}

TEST_F(ModuleTest, SendDeliversFromProgressAndCallsBackOnce) {
  Session s;
  auto* self = s.self();
  ASSERT_NE(self, nullptr);
  Done done;
  auto* d = message(s, self, "hello", MCA_BTL_DES_FLAGS_PRIORITY);
  d->des_cbfunc = &on_sent;
  d->des_cbdata = &done;
  EXPECT_EQ(s.module()->btl_send(s.module(), self, d, kTag), OPAL_SUCCESS);
  EXPECT_EQ(done.calls, 0);
  EXPECT_TRUE(received_.messages.empty());
  EXPECT_EQ(poll(), 1);
  EXPECT_EQ(received_.messages, std::vector<std::string>{"hello"});
  EXPECT_EQ(received_.modules.front(), s.module());
  EXPECT_EQ(done.calls, 1);
  EXPECT_EQ(done.status, OPAL_SUCCESS);
  EXPECT_EQ(fake().frags_out, 1);  // still the caller's
  s.module()->btl_free(s.module(), d);
  EXPECT_EQ(fake().frags_out, 0);
  EXPECT_EQ(poll(), 0);
}

TEST_F(ModuleTest, OwnedDescriptorIsFreedAfterItsCallback) {
  Session s;
  auto* self = s.self();
  Done done;
  auto* d = message(s, self, "x", MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  d->des_cbfunc = &on_sent;
  d->des_cbdata = &done;
  s.module()->btl_send(s.module(), self, d, kTag);
  poll();
  EXPECT_EQ(done.calls, 1);
  EXPECT_EQ(fake().frags_out, 0);
}

TEST_F(ModuleTest, ShortenedSegmentSendsLess) {
  Session s;
  auto* self = s.self();
  auto* d = message(s, self, "shorten me", MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  d->des_segments->seg_len = 7;
  s.module()->btl_send(s.module(), self, d, kTag);
  poll();
  EXPECT_EQ(received_.messages, std::vector<std::string>{"shorten"});
}

TEST_F(ModuleTest, AllocRefusesOnlyTheImpossible) {
  Session s;
  auto* self = s.self();
  const std::size_t most = s.module()->btl_max_send_size;
  EXPECT_EQ(s.module()->btl_alloc(s.module(), self, MCA_BTL_NO_ORDER, most + 1, 0), nullptr);
  auto* d = s.module()->btl_alloc(s.module(), self, MCA_BTL_NO_ORDER, most, 0);
  ASSERT_NE(d, nullptr);
  EXPECT_EQ(d->des_segments->seg_len, most);
  s.module()->btl_free(s.module(), d);
}

TEST_F(ModuleTest, SendiCopiesAndNeedsNoDescriptor) {
  Session s;
  auto* self = s.self();
  char header[] = "header";
  EXPECT_EQ(s.module()->btl_sendi(s.module(), self, nullptr, header, 6, 0, MCA_BTL_NO_ORDER,
                                  MCA_BTL_DES_FLAGS_PRIORITY, kTag, nullptr),
            OPAL_SUCCESS);
  std::memset(header, '?', 6);
  poll();
  EXPECT_EQ(received_.messages, std::vector<std::string>{"header"});
  EXPECT_EQ(fake().frags_out, 0);
}

TEST_F(ModuleTest, SendiThatCannotSaysBusyAndGivesNoDescriptor) {
  Session s;
  auto* self = s.self();
  char header[8] = {};
  auto* d = reinterpret_cast<mca_btl_base_descriptor_t*>(8);
  fake().no_fragments = true;
  EXPECT_EQ(
      s.module()->btl_sendi(s.module(), self, nullptr, header, 8, 0, MCA_BTL_NO_ORDER, 0, kTag, &d),
      OPAL_ERR_RESOURCE_BUSY);
  EXPECT_EQ(d, nullptr);
  EXPECT_EQ(s.module()->btl_sendi(s.module(), self, nullptr, header, 8, 0, MCA_BTL_NO_ORDER, 0,
                                  kTag, nullptr),
            OPAL_ERR_RESOURCE_BUSY);
}

TEST_F(ModuleTest, PutAndGetCompleteFromProgressOnly) {
  Session s;
  auto* self = s.self();
  char local[16] = "source";
  char remote[16] = "";
  Done done;
  auto& m = *s.module();
  EXPECT_EQ(m.btl_put(&m, self, local, reinterpret_cast<std::uint64_t>(remote), nullptr, nullptr, 7,
                      0, MCA_BTL_NO_ORDER, &on_rdma_done, &m, &done),
            OPAL_SUCCESS);
  EXPECT_EQ(done.calls, 0);
  poll();
  EXPECT_EQ(done.calls, 1);
  EXPECT_EQ(done.status, OPAL_SUCCESS);
  EXPECT_EQ(done.address, local);
  EXPECT_EQ(done.context, &m);
  EXPECT_STREQ(remote, "source");
  std::memcpy(remote, "answer", 7);
  EXPECT_EQ(m.btl_get(&m, self, local, reinterpret_cast<std::uint64_t>(remote), nullptr, nullptr, 7,
                      0, MCA_BTL_NO_ORDER, nullptr, nullptr, nullptr),
            OPAL_SUCCESS);  // osc/rdma passes no callback and flushes
  EXPECT_EQ(m.btl_flush(&m, self), OPAL_SUCCESS);
  EXPECT_STREQ(local, "answer");
  EXPECT_EQ(self->rdma_pending, 0u);
}

TEST_F(ModuleTest, FlushOfAllEndpointsWaitsForEachOperation) {
  Session s;
  auto* self = s.self();
  auto& m = *s.module();
  Done done;
  char a[8] = "a", b[8] = "";
  for (int i = 0; i < 200; ++i) {
    m.btl_put(&m, self, a, reinterpret_cast<std::uint64_t>(b), nullptr, nullptr, 2, 0,
              MCA_BTL_NO_ORDER, &on_rdma_done, nullptr, &done);
  }
  EXPECT_EQ(self->rdma_pending, 200u);
  EXPECT_EQ(m.btl_flush(&m, nullptr), OPAL_SUCCESS);
  EXPECT_EQ(self->rdma_pending, 0u);
  EXPECT_EQ(done.calls, 200);
}

TEST_F(ModuleTest, AtomicsFetchAndStore) {
  Session s;
  auto* self = s.self();
  auto& m = *s.module();
  Done done;
  std::uint64_t target = 40, result = 0;
  const auto address = reinterpret_cast<std::uint64_t>(&target);
  EXPECT_EQ(m.btl_atomic_fop(&m, self, &result, address, nullptr, nullptr, MCA_BTL_ATOMIC_ADD, 2, 0,
                             MCA_BTL_NO_ORDER, &on_rdma_done, nullptr, &done),
            OPAL_SUCCESS);
  EXPECT_EQ(done.calls, 0);
  poll();
  EXPECT_EQ(done.calls, 1);
  EXPECT_EQ(target, 42u);
  EXPECT_EQ(result, 40u);
  EXPECT_EQ(m.btl_atomic_cswap(&m, self, &result, address, nullptr, nullptr, 42, 7, 0,
                               MCA_BTL_NO_ORDER, &on_rdma_done, nullptr, &done),
            OPAL_SUCCESS);
  EXPECT_EQ(m.btl_atomic_op(&m, self, address, nullptr, MCA_BTL_ATOMIC_OR, 8, 0, MCA_BTL_NO_ORDER,
                            &on_rdma_done, nullptr, &done),
            OPAL_SUCCESS);
  poll();
  EXPECT_EQ(done.calls, 3);
  EXPECT_EQ(result, 42u);
  EXPECT_EQ(target, 15u);
}

TEST_F(ModuleTest, NarrowAtomicTouchesFourBytesOnBothSides) {
  Session s;
  auto* self = s.self();
  auto& m = *s.module();
  std::uint32_t target[2] = {5, 0x11111111}, result[2] = {0, 0x22222222};
  m.btl_atomic_fop(&m, self, result, reinterpret_cast<std::uint64_t>(target), nullptr, nullptr,
                   MCA_BTL_ATOMIC_SWAP, ~0ull, MCA_BTL_ATOMIC_FLAG_32BIT, MCA_BTL_NO_ORDER, nullptr,
                   nullptr, nullptr);
  m.btl_flush(&m, self);
  EXPECT_EQ(target[0], 0xffffffffu);
  EXPECT_EQ(target[1], 0x11111111u);
  EXPECT_EQ(result[0], 5u);
  EXPECT_EQ(result[1], 0x22222222u);
}

TEST_F(ModuleTest, WhatAtomicsCannotDoIsRefusedNotDoneWrong) {
  Session s;
  auto* self = s.self();
  auto& m = *s.module();
  std::uint64_t target[2] = {1, 1}, result = 0;
  const auto address = reinterpret_cast<std::uint64_t>(target);
  for (const auto op :
       {MCA_BTL_ATOMIC_MIN, MCA_BTL_ATOMIC_MAX, MCA_BTL_ATOMIC_LAND, MCA_BTL_ATOMIC_LOR}) {
    EXPECT_EQ(m.btl_atomic_fop(&m, self, &result, address, nullptr, nullptr, op, 1, 0, 0, nullptr,
                               nullptr, nullptr),
              OPAL_ERR_NOT_SUPPORTED);
  }
  EXPECT_EQ(m.btl_atomic_fop(&m, self, &result, address, nullptr, nullptr, MCA_BTL_ATOMIC_ADD, 1,
                             MCA_BTL_ATOMIC_FLAG_FLOAT, 0, nullptr, nullptr, nullptr),
            OPAL_ERR_NOT_SUPPORTED);
  EXPECT_EQ(m.btl_atomic_fop(&m, self, &result, address + 4, nullptr, nullptr, MCA_BTL_ATOMIC_ADD,
                             1, 0, 0, nullptr, nullptr, nullptr),
            OPAL_ERR_NOT_AVAILABLE);
  EXPECT_EQ(self->rdma_pending, 0u);
  EXPECT_EQ(target[0], 1u);
}

TEST_F(ModuleTest, ProcessWithoutModexIsUnreachableAndNoError) {
  Session s;
  opal_proc_t other = *opal_proc_local_get();
  other.proc_name.vpid = 99;
  opal_proc_t* procs[] = {&other, opal_proc_local_get()};
  mca_btl_base_endpoint_t* endpoints[2] = {reinterpret_cast<mca_btl_base_endpoint_t*>(8), nullptr};
  opal_bitmap_t reachable;
  OBJ_CONSTRUCT(&reachable, opal_bitmap_t);
  opal_bitmap_init(&reachable, 2);
  EXPECT_EQ(s.module()->btl_add_procs(s.module(), 2, procs, endpoints, &reachable), OPAL_SUCCESS);
  EXPECT_EQ(endpoints[0], nullptr);
  EXPECT_NE(endpoints[1], nullptr);
  EXPECT_FALSE(opal_bitmap_is_set_bit(&reachable, 0));
  EXPECT_TRUE(opal_bitmap_is_set_bit(&reachable, 1));
  OBJ_DESTRUCT(&reachable);
}

TEST_F(ModuleTest, AddingAgainGivesTheSameEndpoint) {
  Session s;
  EXPECT_EQ(s.self(), s.self());
}

TEST_F(ModuleTest, OneModuleForEachRail) {
  fake().rails.push_back(conn::RailInfo{"fake1:2", 40000, 1, -1, 10, 0, 1u << 30});
  Session s;
  ASSERT_EQ(s.count(), 2);
  EXPECT_EQ(s.module(1)->btl_bandwidth, 40000u);
  auto* a = s.self(0);
  auto* b = s.self(1);
  EXPECT_NE(a, b);
  char text[] = "by rail 1";
  s.module(1)->btl_sendi(s.module(1), b, nullptr, text, 9, 0, MCA_BTL_NO_ORDER, 0, kTag, nullptr);
  poll();
  ASSERT_EQ(received_.modules.size(), 1u);
  EXPECT_EQ(received_.modules[0], s.module(1));
}

TEST_F(ModuleTest, DelProcsDeliversWhatWasAccepted) {
  Session s;
  auto* self = s.self();
  char text[] = "last word";
  s.module()->btl_sendi(s.module(), self, nullptr, text, 9, 0, MCA_BTL_NO_ORDER, 0, kTag, nullptr);
  opal_proc_t* me = opal_proc_local_get();
  EXPECT_EQ(s.module()->btl_del_procs(s.module(), 1, &me, &self), OPAL_SUCCESS);
  EXPECT_EQ(received_.messages, std::vector<std::string>{"last word"});
}

// ob1 is unloaded before the BTLs are finalized: a call into it would crash.
TEST_F(ModuleTest, NothingIsToldToAnyoneAtTheEnd) {
  Session s;
  s.self();
  fake().during_close = [] {
    static const std::byte late[4] = {};
    conn::Origin from{fake().upcalls.context, RailId{0}, nullptr};
    fake().upcalls.receive(&from, kTag, std::span<const std::byte>(late));
  };
  s.finish();
  EXPECT_TRUE(fake().closed);
  EXPECT_TRUE(received_.messages.empty());
}

TEST_F(ModuleTest, StatisticsGoWhereTheUserWants) {
  fake().stats = R"({"rank":0,"sends":17})";
  Session s({"stats=stderr"});
  ASSERT_EQ(s.count(), 1);
  EXPECT_EQ(s.finish(), "{\"rank\":0,\"sends\":17}\n");
  EXPECT_TRUE(fake().closed);
}

TEST_F(ModuleTest, UnwritableStatisticsAreAWarning) {
  Session s({"stats=/nonexistent/dir/out"});
  ASSERT_EQ(s.count(), 1);
  const std::string said = s.finish();
  EXPECT_NE(said.find("/nonexistent/dir/out.0: No such file"), std::string::npos) << said;
}

TEST_F(ModuleTest, PerformanceVariablesReadTheTransport) {
  Session s;
  int index = -1;
  ASSERT_EQ(mca_base_pvar_find_by_name("btl_mend_recoveries", MCA_BASE_PVAR_CLASS_COUNTER, &index),
            OPAL_SUCCESS);
  const mca_base_pvar_t* pvar = nullptr;
  ASSERT_EQ(mca_base_pvar_get(index, &pvar), OPAL_SUCCESS);
  unsigned long long value = 0;
  ASSERT_EQ(pvar->get_value(pvar, &value, nullptr), OPAL_SUCCESS);
  EXPECT_GE(value, 1000u);
  s.finish();
  ASSERT_EQ(pvar->get_value(pvar, &value, nullptr), OPAL_SUCCESS);
  EXPECT_EQ(value, 0u);  // nothing runs any more
}

// Without any verbosity.
TEST_F(ModuleTest, AWarningIsForTheUser) {
  Session s;
  testing::internal::CaptureStderr();
  fake().upcalls.warn(fake().upcalls.context, "SRQ starving on softhca0: 3 of 16 are free");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("slowed down"), std::string::npos) << said;
  EXPECT_NE(said.find("SRQ starving on softhca0: 3 of 16 are free"), std::string::npos) << said;
}

}  // namespace
}  // namespace mend::test
