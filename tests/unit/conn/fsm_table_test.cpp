// Every event in every state, for both roles, against a table written down here: next state,
// outcome and actions. The tables in fsm_leader.cpp and fsm_follower.cpp are total by type; this
// says that each cell does what the protocol says.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plugin/conn/fsm_rules.h"
#include "tests/unit/conn/fsm_kit.h"

namespace mend::conn::test {
namespace {

// One cell: letter of the next state ('.' = the same), outcome, actions.
struct Cell {
  char next;
  Outcome outcome;
  const char* actions;
};

constexpr char kLetters[] =
    "CFRNPYASZX";  // in the order of State: Closed ... Y = Replaying, Z = Closing, X = Failed
char letter(State s) { return kLetters[static_cast<std::size_t>(s)]; }

constexpr Outcome kAct = Outcome::Acted, kHear = Outcome::Heard, kOld = Outcome::Stale;
constexpr Outcome kIgn = Outcome::Ignored, kRole = Outcome::WrongRole, kNo = Outcome::Impossible;
constexpr Cell kCannot{'.', kNo, ""}, kStay{'.', kIgn, ""}, kHeard{'.', kHear, ""},
    kStale{'.', kOld, ""};
constexpr Cell kWrong{'.', kRole, ""}, kQuiet{'.', kAct, ""};
constexpr Cell kLost{'F', kAct, "Fence"}, kGiveUp{'X', kAct, "Fence SendRej GiveUp"};
constexpr Cell kByeAll{'Z', kAct, "SendByeAck Fence"}, kReject{'.', kAct, "SendRej"},
    kSayBye{'.', kAct, "SendBye"};
constexpr Cell kAnswer{'.', kAct, "PeerAck SendHbAck"}, kAck{'.', kAct, "PeerAck"},
    kGone{'X', kAct, "Fence GiveUp"};
constexpr Cell kPart{'Z', kAct, "SendBye"};
constexpr Cell kUpAndByeAll{'Z', kAct, "SendByeAck Up Fence"}, kUpAndPart{'Z', kAct, "Up SendBye"};

using Line = std::array<Cell, kStates>;

// Suspect answers like Active, but a message makes it Active first.
Cell suspect(Cell c) {
  if (c.next == '.') c.next = 'A';
  return c;
}

// Columns: Closed Fencing Requesting Nudging Prepared Replaying Active Suspect Closing Failed.
// Messages are of the current epoch, REQ of the next; the peer's heartbeat says Active.
std::map<EventKind, Line> leader_cells() {
  std::map<EventKind, Line> t;
  const auto& n = kCannot;
  t[EventKind::Submit] = {
      {{'F', kAct, "PrepareQp"}, kStay, kStay, n, n, kStay, kQuiet, kQuiet, kStay, kStay}};
  t[EventKind::Req] = {
      {kWrong, kWrong, kWrong, n, n, kWrong, kWrong, suspect(kWrong), kWrong, kWrong}};
  t[EventKind::Rep] = {{kStale,
                        kStale,
                        {'.', kAct, "ConnectQp"},
                        n,
                        n,
                        kStale,
                        kStale,
                        suspect(kStale),
                        kSayBye,
                        kReject}};
  t[EventKind::Commit] = t[EventKind::Req];
  t[EventKind::Nudge] = {{{'F', kAct, "PrepareQp"},
                          {'.', kAct, "SendBusy"},
                          kLost,
                          n,
                          n,
                          kLost,
                          kLost,
                          kLost,
                          kSayBye,
                          kReject}};
  t[EventKind::Hb] = {
      {kHeard, kAnswer, kAnswer, n, n, kAnswer, kAnswer, suspect(kAnswer), kAnswer, kReject}};
  t[EventKind::HbAck] = {{kHeard, kAck, kAck, n, n, kAck, kAck, suspect(kAck), kAck, kHeard}};
  t[EventKind::Busy] = {
      {kHeard, kHeard, kHeard, n, n, kHeard, kHeard, suspect(kHeard), kHeard, kHeard}};
  t[EventKind::Bye] = {{{'.', kAct, "SendByeAck"},
                        {'Z', kAct, "SendByeAck"},
                        kByeAll,
                        n,
                        n,
                        kUpAndByeAll,
                        kByeAll,
                        kByeAll,
                        {'.', kAct, "SendByeAck Fence"},
                        {'.', kAct, "SendByeAck"}}};
  t[EventKind::ByeAck] = {{kHeard,
                           kHeard,
                           kHeard,
                           n,
                           n,
                           kHeard,
                           kHeard,
                           suspect(kHeard),
                           {'.', kAct, "Fence"},
                           kHeard}};
  t[EventKind::Rej] = {
      {kHeard, {'X', kAct, "GiveUp"}, kGone, n, n, kGone, kGone, kGone, kHeard, kHeard}};
  t[EventKind::Key] = {
      {kHeard, kHeard, kHeard, n, n, kHeard, kHeard, suspect(kHeard), kHeard, kHeard}};
  t[EventKind::FenceDone] = {
      {kStale, {'.', kAct, "PrepareQp"}, kStale, n, n, kStale, kStale, kStale, kQuiet, kQuiet}};
  t[EventKind::FenceFailed] = {{kStale,
                                {'X', kAct, "SendRej GiveUp"},
                                kStale,
                                n,
                                n,
                                kStale,
                                kStale,
                                kStale,
                                kQuiet,
                                kQuiet}};
  t[EventKind::QpReady] = {{kStale,
                            {'R', kAct, "SendReq"},
                            {'Y', kAct, "StartReplay SendCommit"},
                            n,
                            n,
                            kStale,
                            kStale,
                            kStale,
                            kQuiet,
                            kStale}};
  t[EventKind::QpFailed] = {
      {kStale, {'.', kAct, "Fence"}, kLost, n, n, kStale, kStale, kStale, kQuiet, kStale}};
  t[EventKind::LinkLost] = {{kStale, kStale, kLost, n, n, kLost, kLost, kLost, kStay, kStay}};
  t[EventKind::RcReceive] = {{kStale, kStale, kStale, n, n, kQuiet, kQuiet, kQuiet, kStay, kStay}};
  t[EventKind::LogEmpty] = {
      {kStale, kStale, kStale, n, n, {'A', kAct, "Up"}, kStay, kStay, kStay, kStay}};
  t[EventKind::ProbeOk] = {
      {kStale, kStale, kStale, n, n, kQuiet, kQuiet, {'A', kAct, ""}, kStay, kStay}};
  t[EventKind::ProbeFailed] = {{kStale, kStale, kStale, n, n, kLost, kLost, kLost, kStay, kStay}};
  t[EventKind::Timer] = {{kStay, kQuiet, kQuiet, n, n, kQuiet, kQuiet, kQuiet, kQuiet, kStay}};
  t[EventKind::PortDown] = {{kQuiet, kQuiet, kQuiet, n, n, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet}};
  t[EventKind::PortUp] = {{kStay, kStay, kStay, n, n, kStay, kStay, kStay, kStay, kStay}};
  t[EventKind::Close] = {
      {{'.', kAct, "Closed"}, kPart, kPart, n, n, kUpAndPart, kPart, kPart, kStay, kQuiet}};
  t[EventKind::Flushed] = {{kStay, kStay, kStay, n, n, kStay, kStay, kStay, kStay, kStay}};
  t[EventKind::NotRepairable] = {{{'X', kAct, "SendRej GiveUp"},
                                  {'X', kAct, "SendRej GiveUp"},
                                  kGiveUp,
                                  n,
                                  n,
                                  kGiveUp,
                                  kGiveUp,
                                  kGiveUp,
                                  kStay,
                                  kStay}};
  return t;
}

std::map<EventKind, Line> follower_cells() {
  std::map<EventKind, Line> t;
  const auto& n = kCannot;
  const Cell release{'Y', kAct, "StartReplay SendHbAck"};
  t[EventKind::Submit] = {
      {{'N', kAct, "SendNudge"}, kStay, n, kStay, kStay, kStay, kQuiet, kQuiet, kStay, kStay}};
  t[EventKind::Req] = {{{'F', kAct, "PrepareQp"},
                        {'.', kAct, "SendBusy"},
                        n,
                        {'F', kAct, "PrepareQp"},
                        kLost,
                        kLost,
                        kLost,
                        kLost,
                        kSayBye,
                        kReject}};
  t[EventKind::Rep] = {
      {kWrong, kWrong, n, kWrong, kWrong, kWrong, kWrong, suspect(kWrong), kWrong, kWrong}};
  t[EventKind::Commit] = {{kStale,
                           kStale,
                           n,
                           kStale,
                           release,
                           {'.', kAct, "SendHbAck"},
                           {'.', kAct, "SendHbAck"},
                           suspect({'.', kAct, "SendHbAck"}),
                           kSayBye,
                           kReject}};
  t[EventKind::Nudge] = t[EventKind::Rep];
  t[EventKind::Hb] = {{kHeard,
                       kAnswer,
                       n,
                       kAnswer,
                       {'Y', kAct, "StartReplay PeerAck SendHbAck"},
                       kAnswer,
                       kAnswer,
                       suspect(kAnswer),
                       kAnswer,
                       kReject}};
  t[EventKind::HbAck] = {{kHeard,
                          kAck,
                          n,
                          kAck,
                          {'Y', kAct, "StartReplay PeerAck"},
                          kAck,
                          kAck,
                          suspect(kAck),
                          kAck,
                          kHeard}};
  t[EventKind::Busy] = {
      {kHeard, kHeard, n, kHeard, kHeard, kHeard, kHeard, suspect(kHeard), kHeard, kHeard}};
  t[EventKind::Bye] = {{{'.', kAct, "SendByeAck"},
                        {'Z', kAct, "SendByeAck"},
                        n,
                        {'C', kAct, "SendByeAck Closed"},
                        kByeAll,
                        kUpAndByeAll,
                        kByeAll,
                        kByeAll,
                        {'.', kAct, "SendByeAck Fence"},
                        {'.', kAct, "SendByeAck"}}};
  t[EventKind::ByeAck] = {{kHeard,
                           kHeard,
                           n,
                           kHeard,
                           kHeard,
                           kHeard,
                           kHeard,
                           suspect(kHeard),
                           {'.', kAct, "Fence"},
                           kHeard}};
  t[EventKind::Rej] = {{kHeard,
                        {'X', kAct, "GiveUp"},
                        n,
                        {'X', kAct, "GiveUp"},
                        kGone,
                        kGone,
                        kGone,
                        kGone,
                        kHeard,
                        kHeard}};
  t[EventKind::Key] = t[EventKind::Busy];
  t[EventKind::FenceDone] = {{kStale,
                              {'N', kAct, "SendNudge"},
                              n,
                              kStale,
                              kStale,
                              kStale,
                              kStale,
                              kStale,
                              kQuiet,
                              kQuiet}};
  t[EventKind::FenceFailed] = {{kStale,
                                {'X', kAct, "SendRej GiveUp"},
                                n,
                                kStale,
                                kStale,
                                kStale,
                                kStale,
                                kStale,
                                kQuiet,
                                kQuiet}};
  t[EventKind::QpReady] = {
      {kStale, {'P', kAct, "SendRep"}, n, kStale, kStale, kStale, kStale, kStale, kQuiet, kStale}};
  t[EventKind::QpFailed] = {
      {kStale, {'.', kAct, "Fence"}, n, kStale, kStale, kStale, kStale, kStale, kQuiet, kStale}};
  t[EventKind::LinkLost] = {{kStale, kStale, n, kStale, kLost, kLost, kLost, kLost, kStay, kStay}};
  t[EventKind::RcReceive] = {{kStale,
                              kStale,
                              n,
                              kStale,
                              {'Y', kAct, "StartReplay"},
                              kQuiet,
                              kQuiet,
                              kQuiet,
                              kStay,
                              kStay}};
  t[EventKind::LogEmpty] = {
      {kStale, kStale, n, kStale, kStale, {'A', kAct, "Up"}, kStay, kStay, kStay, kStay}};
  t[EventKind::ProbeOk] = {
      {kStale, kStale, n, kStale, kStale, kQuiet, kQuiet, {'A', kAct, ""}, kStay, kStay}};
  t[EventKind::ProbeFailed] = {
      {kStale, kStale, n, kStale, kStale, kLost, kLost, kLost, kStay, kStay}};
  t[EventKind::Timer] = {{kStay, kQuiet, n, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet, kStay}};
  t[EventKind::PortDown] = {
      {kQuiet, kQuiet, n, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet, kQuiet}};
  t[EventKind::PortUp] = {{kStay, kStay, n, kStay, kStay, kStay, kStay, kStay, kStay, kStay}};
  t[EventKind::Close] = {
      {{'.', kAct, "Closed"}, kPart, n, kPart, kPart, kUpAndPart, kPart, kPart, kStay, kQuiet}};
  t[EventKind::Flushed] = {{kStay, kStay, n, kStay, kStay, kStay, kStay, kStay, kStay, kStay}};
  t[EventKind::NotRepairable] = {{{'X', kAct, "SendRej GiveUp"},
                                  {'X', kAct, "SendRej GiveUp"},
                                  n,
                                  {'X', kAct, "SendRej GiveUp"},
                                  kGiveUp,
                                  kGiveUp,
                                  kGiveUp,
                                  kGiveUp,
                                  kStay,
                                  kStay}};
  return t;
}

// The machine awaits exactly what the event answers.
void await(Fsm& f, EventKind kind) {
  const bool fence = kind == EventKind::FenceDone || kind == EventKind::FenceFailed;
  const bool qp = kind == EventKind::QpReady || kind == EventKind::QpFailed;
  const bool busy =
      f.state == State::Fencing || f.state == State::Closing || f.state == State::Failed;
  if (fence && busy) f.awaited = Command::Fence;
  if (qp && f.state == State::Fencing) {
    f.awaited = Command::Prepare;
    f.pending = f.epoch.next();
  }
  if (qp && f.state == State::Closing) f.awaited = Command::Prepare;
  if (qp && f.state == State::Requesting) f.awaited = Command::Connect;
}

bool as_message(EventKind kind, MsgType& type) {
  if (kind < EventKind::Req || kind > EventKind::Key) return false;
  type = static_cast<MsgType>(static_cast<int>(kind) - static_cast<int>(EventKind::Req) +
                              static_cast<int>(MsgType::Req));
  return true;
}

Result apply(Fsm& f, EventKind kind) {
  MsgType type{};
  const Epoch epoch = kind == EventKind::Req ? f.epoch.next() : f.epoch;
  if (as_message(kind, type)) return run(f, message(type, epoch));
  await(f, kind);
  Event event = work_event(kind, f.work);
  event.epoch = epoch;
  event.sample = f.sample;
  return run(f, event);
}

class FsmTable : public testing::TestWithParam<Role> {
 protected:
  std::map<EventKind, Line> cells() const {
    return GetParam() == Role::Leader ? leader_cells() : follower_cells();
  }
};

TEST_P(FsmTable, EveryEventInEveryState) {
  const auto cells = this->cells();
  ASSERT_EQ(cells.size(), kEventKinds) << "an event kind has no line here";
  for (const auto& [kind, line] : cells) {
    for (std::uint8_t column = 0; column < kStates; ++column) {
      const auto state = static_cast<State>(column);
      const Cell& want = line[column];
      Fsm f = machine(GetParam(), state);
      const Result got = apply(f, kind);
      const std::string where =
          std::string(to_string(GetParam())) + " in " + to_string(state) + " on " + to_string(kind);
      EXPECT_EQ(letter(f.state), want.next == '.' ? letter(state) : want.next) << where;
      EXPECT_STREQ(to_string(got.outcome), to_string(want.outcome)) << where;
      EXPECT_EQ(got.names(), want.actions) << where;
    }
  }
}

TEST_P(FsmTable, NoCellIsEmpty) {
  const rules::Table& table =
      GetParam() == Role::Leader ? rules::leader_table() : rules::follower_table();
  for (const rules::Row& row : table)
    for (const rules::Handler handler : row) EXPECT_NE(handler, nullptr);
}

// L2: whoever is not Closed or Failed waits for something that will come: a command's result, a
// timer, or (Active) the peer, whose own repetition is tested in fsm_world_test.
TEST_P(FsmTable, NoStateWaitsForNothing) {
  for (const auto& [kind, line] : cells()) {
    for (std::uint8_t column = 0; column < kStates; ++column) {
      Fsm f = machine(GetParam(), static_cast<State>(column));
      if (line[column].outcome == Outcome::Impossible) continue;
      const State before = f.state;
      apply(f, kind);
      if (f.state == before || f.state == State::Closed || f.state == State::Failed) continue;
      EXPECT_TRUE(f.awaited != Command::None || f.armed_at != kNever)
          << to_string(GetParam()) << ": " << to_string(before) << "->" << to_string(f.state)
          << " on " << to_string(kind);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Roles, FsmTable, testing::Values(Role::Leader, Role::Follower),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

template <typename T>
void expect_names(T last) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const std::string name = to_string(static_cast<T>(i));
    EXPECT_NE(name, "?") << i;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(FsmText, EveryValueHasItsName) {
  expect_names(Role::Follower);
  expect_names(State::Failed);
  expect_names(EventKind::NotRepairable);
  expect_names(ActionType::Closed);
  expect_names(Outcome::Impossible);
  expect_names(GiveUpReason::FlushExpired);
  expect_names(Command::Connect);
  expect_names(DropReason::Connection);
}

}  // namespace
}  // namespace mend::conn::test
