// Internal to fsm*.cpp: the shape of the transition tables and the small verbs that handlers are
// made of. A table has one handler for every event in every state; both tables are total by
// construction (fsm_test.cpp checks that no cell is null and what each one does).
#pragma once

#include <array>
#include <cstddef>

#include "plugin/conn/fsm.h"

namespace mend::conn::rules {

struct Step {
  Fsm& fsm;
  const Event& event;
  TimeNs now;
  Actions& out;
};

using Handler = Outcome (*)(Step&);
using Row = std::array<Handler, kStates>;    // columns in the order of State
using Table = std::array<Row, kEventKinds>;  // rows in the order of EventKind
const Table& leader_table();
const Table& follower_table();

// --- actions ---
void emit(Step& s, ActionType type);               // with the current epoch
void emit(Step& s, ActionType type, Epoch epoch);  // with another one
void command(Step& s, Command what, Epoch epoch);  // gives it a number and awaits it
bool is_awaited(const Step& s, Command what);      // the result in s.event is the one we wait for

// --- moves that both roles share ---
void stop_timers(Fsm& fsm);
void start_outage(Step& s);
void schedule_resend(Step& s);  // next attempt, with back-off
void leave_epoch(Step& s);      // bookkeeping when the current QP pair is given up
void make_offer(Step& s);       // freezes REQ or REP from the sample and event.endpoint
void take_sample(Step& s);      // FenceDone
void begin_replay(Step& s);
void fail(Step& s, GiveUpReason reason);
void begin_closing(Step& s, bool peer_is_gone);
GiveUpReason check_progress(const FenceSample& mine, const Progress& peer);  // F7; None is good

void lose_link(Step& s);      // Requesting, Prepared, Replaying, Active, Suspect -> Fencing
void retry_prepare(Step& s);  // leader in Fencing, the pause is over (fsm_leader.cpp)

// --- handlers for both roles ---
Outcome never(Step& s);
Outcome ignore(Step& s);
Outcome stale(Step& s);
Outcome heard(Step& s);
Outcome wrong_role(Step& s);
Outcome wake(Step& s);
Outcome answer_heartbeat(Step& s);  // Hb is answered, HbAck is not; both carry an ack
Outcome busy(Step& s);
Outcome rej(Step& s);
Outcome link_lost(Step& s);
Outcome link_lost_fencing(Step& s);
Outcome fence_failed(Step& s);
Outcome qp_failed(Step& s);
Outcome log_empty(Step& s);
Outcome probe_ok(Step& s);
Outcome timer(Step& s);
Outcome port_down(Step& s);
Outcome port_up(Step& s);
Outcome not_repairable(Step& s);
Outcome say_bye(Step& s);
Outcome say_rej(Step& s);
Outcome answer_closed(Step& s);
Outcome heartbeat_closed(Step& s);
Outcome bye_closed(Step& s);
Outcome bye(Step& s);
Outcome bye_closing(Step& s);
Outcome bye_failed(Step& s);
Outcome bye_ack(Step& s);
Outcome close_closed(Step& s);
Outcome close_live(Step& s);
Outcome close_failed(Step& s);
Outcome flushed(Step& s);
Outcome closing_fenced(Step& s);
Outcome closing_qp(Step& s);
Outcome failed_fenced(Step& s);

void timer_up(Step& s);  // heartbeats and probes (fsm_heartbeat.cpp)
void restart_heartbeat(Step& s);

}  // namespace mend::conn::rules
