// Other processes of the job: added, removed, given up, ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plugin/mca/component.h"
#include "plugin/mca/give_up.h"
#include "tests/unit/mca/fake_transport.h"
#include "tests/unit/mca/opal_session.h"

namespace mend::test {
namespace {

// Whom Open MPI was told of by the error callback.
std::vector<const opal_proc_t*> g_told;

void on_error(mca_btl_base_module_t*, std::int32_t flags, opal_proc_t* lost, char*) {
  EXPECT_EQ(flags, MCA_BTL_ERROR_FLAGS_FATAL);
  g_told.push_back(lost);
}

void remove(Session& s, opal_proc_t& proc, mca_btl_base_endpoint_t* endpoint) {
  opal_proc_t* procs[] = {&proc};
  EXPECT_EQ(s.module()->btl_del_procs(s.module(), 1, procs, &endpoint), OPAL_SUCCESS);
}

class Peers : public testing::Test {
 protected:
  Peers() {
    reset_fake();
    fake().add_peer_error = 0;
    g_told.clear();
  }
  // As the transport reports it; what the user reads.
  static std::string gave_up(conn::Peer* peer, const std::string& why) {
    testing::internal::CaptureStderr();
    fake().upcalls.gave_up(fake().upcalls.context, peer, why);
    return testing::internal::GetCapturedStderr();
  }
  static void expect_error_callbacks(Session& s) {
    for (int i = 0; i < s.count(); ++i) s.module(i)->btl_register_error(s.module(i), &on_error);
  }
};

// A process of this job that runs mend, as Open MPI would name it.
opal_proc_t other_process(std::uint32_t rank) {
  opal_proc_t proc = *opal_proc_local_get();
  proc.proc_name.vpid = rank;
  static const std::byte modex[1] = {};  // the transport of these tests does not look at it
  mca::compat::lend_modex(proc.proc_name, modex);
  return proc;
}

mca_btl_base_endpoint_t* add(Session& s, opal_proc_t& proc) {
  opal_proc_t* procs[] = {&proc};
  mca_btl_base_endpoint_t* endpoint = nullptr;
  EXPECT_EQ(s.module()->btl_add_procs(s.module(), 1, procs, &endpoint, nullptr), OPAL_SUCCESS);
  return endpoint;
}

TEST_F(Peers, PeersOfAnotherVersionAreNamedInOneLine) {
  Session s;
  fake().add_peer_error = EPROTONOSUPPORT;
  opal_proc_t first = other_process(31), second = other_process(32);
  testing::internal::CaptureStderr();
  EXPECT_EQ(add(s, first), nullptr);
  EXPECT_EQ(add(s, second), nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("[testhost:")) << said;
  EXPECT_TRUE(said.ends_with("] mend: no way to process 31\n")) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// The runtime says once that a process has ended. Who did not know it yet would have waited for it
// until max_outage_s had passed.
TEST_F(Peers, AnEndIsReportedBeforeThePeerIsAdded) {
  Session s;
  fake().add_peer_error = 0;
  opal_proc_t ended = other_process(41), alive = other_process(42);
  mca::note_end(ended.proc_name);
  mca::believe_ends(*mca::runtime());  // as progress() does
  EXPECT_TRUE(fake().given_up.empty());
  auto* good = add(s, alive);
  ASSERT_NE(good, nullptr);
  EXPECT_FALSE(good->lost.load());
  EXPECT_TRUE(fake().given_up.empty());
  auto* bad = add(s, ended);
  ASSERT_NE(bad, nullptr);
  EXPECT_TRUE(bad->lost.load());
  ASSERT_EQ(fake().given_up.size(), 1u);
  EXPECT_EQ(fake().given_up[0], bad->peer);
  mca::note_end(ended.proc_name);
  mca::believe_ends(*mca::runtime());
  add(s, ended);
  EXPECT_EQ(fake().given_up.size(), 1u) << "once";
}

TEST_F(Peers, AnEndOfAKnownPeerIsBelievedFromProgress) {
  Session s;
  fake().add_peer_error = 0;
  opal_proc_t ended = other_process(51);
  auto* endpoint = add(s, ended);
  ASSERT_NE(endpoint, nullptr);
  mca::note_end(ended.proc_name);
  EXPECT_TRUE(fake().given_up.empty()) << "on a thread of the runtime";
  mca::believe_ends(*mca::runtime());
  EXPECT_EQ(fake().given_up, std::vector<const conn::Peer*>{endpoint->peer});
  EXPECT_TRUE(endpoint->lost.load());
}

// Of several rails each has a module, and Open MPI gives them a process one after the other.
TEST_F(Peers, EndpointsThatAreMadeAfterTheLossAreLostToo) {
  fake().rails.push_back(conn::RailInfo{"fake1:2", 40000, 1, -1, 10, 0, 1u << 30});
  Session s;
  ASSERT_EQ(s.count(), 2);
  fake().add_peer_error = 0;
  opal_proc_t ended = other_process(61);
  mca::note_end(ended.proc_name);
  EXPECT_TRUE(add(s, ended)->lost.load());
  opal_proc_t* procs[] = {&ended};
  mca_btl_base_endpoint_t* second = nullptr;
  s.module(1)->btl_add_procs(s.module(1), 1, procs, &second, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->lost.load());
  EXPECT_EQ(fake().given_up.size(), 1u);
}

// ob1 makes an endpoint when it sends. Who had only received would have waited for ever.
TEST_F(Peers, WhoWasOnlyReceivedFromIsReportedToo) {
  Session s;
  expect_error_callbacks(s);
  static opal_proc_t other = other_process(71);
  const auto lookup = opal_proc_for_name;
  opal_proc_for_name = [](const opal_process_name_t) { return &other; };
  mca::meet_peer(*mca::runtime(), 71);
  opal_proc_for_name = lookup;
  ASSERT_EQ(fake().peers.size(), 1u);
  const std::string said = gave_up(fake().peers[0].get(), "no answer for 120 s");
  EXPECT_NE(said.find("no answer for 120 s"), std::string::npos) << said;
  EXPECT_EQ(g_told, std::vector<const opal_proc_t*>{&other});
}

// Open MPI removes a process at once where another BTL is to serve it (btl_mend_flags send). That
// was taken for MPI_Finalize, and no loss ended the job any more.
TEST_F(Peers, OneThatIsRemovedBeforeItWasUsedDoesNotSilenceLosses) {
  Session s;
  expect_error_callbacks(s);
  opal_proc_t served_otherwise = other_process(81), other = other_process(82);
  auto* unwanted = add(s, served_otherwise);
  auto* endpoint = add(s, other);
  remove(s, served_otherwise, unwanted);
  remove(s, *opal_proc_local_get(), s.self());
  EXPECT_EQ(gave_up(endpoint->peer, "why").find("while finalizing"), std::string::npos);
  EXPECT_EQ(g_told, std::vector<const opal_proc_t*>{&other});
}

TEST_F(Peers, InFinalizeALossIsAWarning) {
  Session s;
  expect_error_callbacks(s);
  opal_proc_t first = other_process(91), other = other_process(92);
  auto* removed = add(s, first);
  auto* endpoint = add(s, other);
  fake().peers_used = true;
  remove(s, first, removed);
  EXPECT_NE(gave_up(endpoint->peer, "why").find("while finalizing: why"), std::string::npos);
  EXPECT_TRUE(g_told.empty());
}

// By then Open MPI has removed it, but what was sent to it is still waited for.
TEST_F(Peers, AnEndInFinalizeReachesTheTransport) {
  Session s;
  opal_proc_t ended = other_process(93);
  auto* endpoint = add(s, ended);
  fake().peers_used = true;
  remove(s, ended, endpoint);
  static opal_process_name_t name;
  name = ended.proc_name;
  mca::note_end(name);
  EXPECT_EQ(fake().given_up_ranks, std::vector<std::uint32_t>{93});
  name.vpid = 94;
  fake().during_close = [] { mca::note_end(name); };
  s.finish();
  EXPECT_EQ(fake().given_up_ranks, (std::vector<std::uint32_t>{93, 94}));
}

TEST_F(Peers, AProcessWhoseOwnDeviceIsDeadReportsItself) {
  Session s;
  expect_error_callbacks(s);
  const std::string said = gave_up(nullptr, "device softhca0: DEVICE_FATAL");
  EXPECT_NE(said.find("this process ends"), std::string::npos) << said;
  EXPECT_NE(said.find("device softhca0: DEVICE_FATAL"), std::string::npos) << said;
  EXPECT_EQ(g_told, std::vector<const opal_proc_t*>{opal_proc_local_get()});
}

TEST_F(Peers, OneThatOpenMpiNeverAddedIsGivenUpInSilence) {
  Session s;
  testing::internal::CaptureStderr();
  // Nobody to abort for, and nothing to crash on.
  fake().upcalls.gave_up(fake().upcalls.context, reinterpret_cast<conn::Peer*>(64),
                         "no answer for 120 s");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace mend::test
