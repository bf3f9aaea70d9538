/* Recovery protocol of mend (docs/protocol.md), third model: the end of a connection, orderly (Close, flush, BYE) and not (deadline,
 * REJ). The handshake is that of recovery2.pml, with one SEND each way; run as cases.json says. A change of the protocol or of
 * plugin/conn/fsm*.cpp that changes a transition changes this file in the same commit.
 * The control plane is the set of datagrams ever sent, as in recovery2.pml, until `quiet`; from then on only what somebody repeats arrives,
 *   by a timer or in answer to what the other side repeats. A process that has closed may exit (-DEXITS): it answers nothing any more.
 * The application closes a connection when it has submitted everything and received everything it expects, as MPI_Finalize does.
 * Checked: nothing submitted is lost unless a deadline expired; a connection that departed is never reopened and has no QP that accepts;
 *   giving up happens once, and never to a side that is closing; both sides always end (no deadlock; with -DNP no cycle).
 * -DDL=mask: sides with a deadline (1 leader, 2 follower).  -DTRACE, -DEAGER, -DGOAL: as in recovery2.pml.
 * -DMUT=n removes or bends one rule:
 * 101 BYE before everything is flushed                 102 a late NUDGE or REQ reopens what BYE closed
 * 103 Closed without a fence                           104 BYE_ACK is waited for without a limit (with -DEXITS)
 * 105 a departed side does not tell BYE to whoever still talks to it
 * 107 the deadline is fatal while closing              108 a failed side does not tell REJ to whoever still talks to it
 * 110 no deadline in Nudging (with -DEXITS)            111 REJ is fatal while closing
 * 112 REJ is obeyed in Failed                          113 BYE is not answered by a side that is Closed
 * 114 Prepared is silent: REP is repeated only in answer to REQ
 * 106 BYE sent once: not load-bearing (whoever still talks is told, whoever is silent closes by itself, bye_wait ends the waiting)
 * 109 BYE(e < data_epoch) obeyed: not load-bearing in one process's life (who said BYE never goes on)
 */
#ifndef MUT
#define MUT 0
#endif
#ifndef FM
#define FM 1          /* faults */
#endif
#ifndef DL
#define DL 0
#endif
#define EM (FM+3)     /* a side that ends takes its QP along, which can cost the other one an epoch */
#define L 0
#define F 1
#define PEER(s) (1-(s))
#define NONE 255

mtype = { Closed, Fencing, Requesting, Prepared, Nudging, Replaying, Active, Closing, Failed };
mtype st[2];
byte ep[2], dep[2];                    /* epoch; the last one that carried data */
byte fpend;
bool qp[2], fencing[2];                /* a QP may exist; a fence is ordered */
bool cl[2], dp[2], bd[2];              /* Close came; departed; the peer needs nothing more */
bool gone[2];                          /* the process has exited */
bool gaveup[2], expired;
bool quiet; byte faults;

/* --- the set of datagrams ever sent --- */
byte reqRx[EM], repRx[EM];
bool rep[EM], com[EM], nud[EM];
bool bye[2], ack[2], rej[2];           /* by s; their epoch is ep[s], which does not change any more */
#define UP(s) (st[s] == Replaying || st[s] == Active)
#define LIVE(s) (st[s] != Closed && st[s] != Closing && st[s] != Failed)
#define SENT_REQ(e) ((e) <= ep[L] && (e) > 0)
#define KEEPS_REQ (st[L] == Requesting -> ep[L] : NONE)
#define KEEPS_REP ((st[F] == Prepared || UP(F)) -> ep[F] : NONE)
#define KEEPS_COM (UP(L) -> ep[L] : NONE)
#define KEEPS_NUD (st[F] == Nudging -> ep[F] : NONE)
#if MUT == 106
#define KEEPS_BYE(s) NONE
#else
#define KEEPS_BYE(s) ((st[s] == Closing && !bd[s]) -> ep[s] : NONE)
#endif
/* a side that repeats something, or sends heartbeats because something of its is outstanding */
#if MUT == 114
#define TALKS(s) (st[s] == Requesting || st[s] == Nudging || (UP(s) && acked[s] < sub[s]))
#else
#define TALKS(s) (st[s] == Requesting || st[s] == Nudging || st[s] == Prepared || (UP(s) && acked[s] < sub[s]))
#endif
/* what a side that ended tells whoever still talks to it */
#if MUT == 105
#define TELLS_BYE(s) NONE
#else
#define TELLS_BYE(s) ((dp[s] && bye[s] && !gone[s]) -> ep[s] : NONE)
#endif
#if MUT == 108
#define TELLS_REJ(s) NONE
#else
#define TELLS_REJ(s) ((st[s] == Failed && rej[s] && !gone[s]) -> ep[s] : NONE)
#endif
#define TOLD_BYE(s) (TALKS(s) && TELLS_BYE(PEER(s)) != NONE)
#define TOLD_REJ(s) (TALKS(s) && TELLS_REJ(PEER(s)) != NONE)
#if MUT == 113
#define ANSWERS(s) (st[s] != Closed)
#else
#define ANSWERS(s) true
#endif
#define GOT_REQ(e)  ((!quiet && SENT_REQ(e)) || KEEPS_REQ == (e))
#define GOT_REP(e)  ((!quiet && rep[e]) || KEEPS_REP == (e))
#define GOT_COM(e)  ((!quiet && com[e]) || KEEPS_COM == (e))
#define GOT_NUD(e)  ((!quiet && nud[e]) || KEEPS_NUD == (e))
#define GOT_BYE(s)  (bye[PEER(s)] && (!quiet || KEEPS_BYE(PEER(s)) != NONE || TOLD_BYE(s)))
#define GOT_ACK(s)  (ack[PEER(s)] && (!quiet || (KEEPS_BYE(s) != NONE && !gone[PEER(s)] && ANSWERS(PEER(s)))))
#define GOT_REJ(s)  (rej[PEER(s)] && (!quiet || TOLD_REJ(s)))
#define TAKES_REP (st[L] == Requesting -> ep[L] : NONE)
#define TAKES_NUD (((st[L] == Closed && !dp[L]) || st[L] == Requesting || UP(L)) -> ep[L] : NONE)
#define TAKES_REQ (((LIVE(F) && st[F] != Fencing) || (st[F] == Closed && !dp[F])) -> ep[F] + 1 : NONE)
#define TAKES_COM (st[F] == Prepared -> ep[F] : NONE)
#if MUT == 109
#define OLDEST(s) 0
#else
#define OLDEST(s) dep[s]
#endif
#define TAKES_BYE(s) (((st[s] == Closed && !dp[s]) || (st[s] == Closing && !bd[s])) -> 0 : (LIVE(s) -> OLDEST(s) : NONE))
#define TAKES_ACK(s) ((st[s] == Closing && !bd[s]) -> 0 : NONE)
#define TAKES_REJ(s) (LIVE(s) -> dep[s] : NONE)

#ifdef TRACE
#define SAY(...) printf(__VA_ARGS__)
#else
#define SAY(...) skip
#endif
#define END(s) SAY("mend end %d %e %d takes REP %d NUDGE %d REQ %d COMMIT %d BYE>0 %d BYE>1 %d BYE_ACK>0 %d BYE_ACK>1 %d REJ>0 %d REJ>1 %d keeps REQ %d REP %d COMMIT %d NUDGE %d BYE>1 %d BYE>0 %d tells BYE>1 %d BYE>0 %d REJ>1 %d REJ>0 %d\n", \
  s, st[s], ep[s], TAKES_REP, TAKES_NUD, TAKES_REQ, TAKES_COM, TAKES_BYE(L), TAKES_BYE(F), TAKES_ACK(L), TAKES_ACK(F), \
  TAKES_REJ(L), TAKES_REJ(F), KEEPS_REQ, KEEPS_REP, KEEPS_COM, KEEPS_NUD, KEEPS_BYE(L), KEEPS_BYE(F), \
  TELLS_BYE(L), TELLS_BYE(F), TELLS_REJ(L), TELLS_REJ(F))

/* --- data: one SEND each way --- */
byte sub[2], acked[2], rxn[2];
byte wire[2];                          /* epoch of the SEND of s that is in flight, 0 for none */
byte acc[2];                           /* epoch on which the QP of s accepts, 0 for none */
bool lost[2];                          /* the SEND of s on its present QP will not get through */

inline settle(s) { if :: st[s] == Replaying && acked[s] == sub[s] -> st[s] = Active; SAY("mend log %d\n", s) :: else fi }
inline startReplay(s, r) {
  assert(r >= acked[s] && r <= sub[s]);
  acked[s] = r; dep[s] = ep[s]; st[s] = Replaying; lost[s] = false;
  if :: acked[s] < sub[s] -> wire[s] = ep[s] :: else fi;
  SAY("mend replay %d %d\n", s, r); settle(s)
}
inline submit(s) { sub[s] = 1; if :: UP(s) -> wire[s] = ep[s] :: else fi }
inline order(s) { fencing[s] = true }
inline lose(s) { st[s] = Fencing; order(s) }
inline fenced(s) { SAY("mend fenced %d %d %d %d\n", s, rxn[s], acked[s], sub[s]); qp[s] = false; fencing[s] = false; acc[s] = 0 }
inline request() {
  ep[L] = ep[L] + 1; reqRx[ep[L]] = rxn[L]; qp[L] = true; st[L] = Requesting; SAY("mend send 0 REQ %d %d\n", ep[L], rxn[L])
}
inline toPrepared(n) {
  ep[F] = n; acc[F] = n; repRx[n] = rxn[F]; rep[n] = true; qp[F] = true; st[F] = Prepared; SAY("mend send 1 REP %d %d\n", n, rxn[F]); fpend = 0
}
inline nudge() { nud[ep[F]] = true; st[F] = Nudging; SAY("mend send 1 NUDGE %d 0\n", ep[F]) }

/* --- the end --- */
inline finish(s) { st[s] = Closed; SAY("mend closed %d\n", s) }
inline advance(s) {
  bd[s] = true;
  if
#if MUT == 103
  :: true -> finish(s)
#else
  :: qp[s] -> order(s)
  :: else -> finish(s)
#endif
  fi
}
inline beginClosing(s, peer_is_gone) {
  st[s] = Closing; dp[s] = true;
  if :: peer_is_gone -> advance(s)
     :: else -> bye[s] = true; SAY("mend send %d BYE %d 0\n", s, ep[s])
  fi
}
inline fail(s, tell) {
  assert(!cl[s]);                      /* a side that closes is never failed */
  assert(!gaveup[s]); gaveup[s] = true; expired = true;
  st[s] = Failed;
  if :: qp[s] -> order(s) :: else fi;
  if :: tell -> rej[s] = true; SAY("mend send %d REJ %d 0\n", s, ep[s]) :: else fi;
  SAY("mend gaveup %d 1\n", s)
}
inline sayAck(s) { ack[s] = true; SAY("mend send %d BYE_ACK %d 0\n", s, ep[s]) }

#define N 1
#define MAYCLOSE(s) (!cl[s] && LIVE(s) && sub[s] == N && rxn[s] == N)
#define OUTSTANDING(s) (acked[s] < sub[s])
#if MUT == 101
#define MUSTFLUSH(s) false
#else
#define MUSTFLUSH(s) OUTSTANDING(s)
#endif
#if MUT == 110
#define HAS_DEADLINE(s) ((DL >> (s)) & 1 && st[s] != Nudging)
#else
#define HAS_DEADLINE(s) ((DL >> (s)) & 1)
#endif

/* what both roles do */
inline common(s) {
  do
  :: d_step { MAYCLOSE(s) -> SAY("mend step %d close %d\n", s, OUTSTANDING(s)); cl[s] = true;
       if :: MUSTFLUSH(s) :: else -> beginClosing(s, false) fi; END(s) }
  :: d_step { cl[s] && LIVE(s) && !OUTSTANDING(s) -> SAY("mend step %d flushed 0\n", s); beginClosing(s, false); END(s) }
  :: d_step { TAKES_BYE(s) != NONE && GOT_BYE(s) && ep[PEER(s)] >= TAKES_BYE(s) -> SAY("mend step %d BYE %d\n", s, ep[PEER(s)]); sayAck(s);
       if :: st[s] == Closed -> dp[s] = true
          :: st[s] == Closing -> advance(s)
          :: else -> beginClosing(s, true)
       fi; END(s) }
  :: d_step { st[s] == Failed && !ack[s] && GOT_BYE(s) -> SAY("mend step %d BYE %d\n", s, ep[PEER(s)]); sayAck(s); END(s) }
  :: d_step { TAKES_ACK(s) != NONE && GOT_ACK(s) -> SAY("mend step %d BYE_ACK %d\n", s, ep[PEER(s)]); advance(s); END(s) }
#if MUT != 104
  :: d_step { st[s] == Closing && !bd[s] -> SAY("mend step %d waited 0\n", s); advance(s); END(s) }
#endif
  :: d_step { st[s] == Closing && fencing[s] -> SAY("mend step %d fence 0\n", s); fenced(s); if :: bd[s] -> finish(s) :: else fi; END(s) }
  :: d_step { st[s] == Failed && fencing[s] -> SAY("mend step %d fence 0\n", s); fenced(s); END(s) }
  :: d_step { TAKES_REJ(s) != NONE && GOT_REJ(s) && ep[PEER(s)] >= TAKES_REJ(s) -> SAY("mend step %d REJ %d\n", s, ep[PEER(s)]);
#if MUT == 111
       fail(s, false);
#else
       if :: cl[s] -> beginClosing(s, true) :: else -> fail(s, false) fi;
#endif
       END(s) }
#if MUT == 112
  :: d_step { st[s] == Failed && rej[PEER(s)] && !quiet -> SAY("mend step %d REJ %d\n", s, ep[PEER(s)]); fail(s, false); END(s) }
#endif
  :: d_step { HAS_DEADLINE(s) && LIVE(s) && (st[s] != Active || cl[s]) -> SAY("mend step %d deadline 0\n", s);
#if MUT == 107
       fail(s, true);
#else
       if :: cl[s] -> expired = true; SAY("mend gaveup %d 0\n", s); beginClosing(s, false) :: else -> fail(s, true) fi;
#endif
       END(s) }
#ifdef EXITS
  :: d_step { st[s] == Closed && dp[s] && !gone[s] -> gone[s] = true }
#endif
  :: d_step { acked[s] < rxn[PEER(s)] && (!quiet || (UP(s) && UP(PEER(s)) && ep[L] == ep[F])) ->
       SAY("mend step %d data 0\n", s); acked[s] = rxn[PEER(s)]; settle(s); END(s) }
  /* something is outstanding and the QP is dead, or the peer's is gone: an error completion or a failed probe says so */
  :: d_step { UP(s) && (lost[s] || acc[PEER(s)] != ep[s]) && acked[s] < sub[s] ->
       SAY("mend step %d lost 0\n", s); wire[s] = 0; lose(s); END(s) }
  od
}

proctype Leader() {
end:  do
  :: d_step { sub[L] < N && LIVE(L) -> SAY("mend step 0 submit 0\n"); submit(L); END(L) }
  :: d_step { sub[L] < N && st[L] == Closed && !dp[L] -> SAY("mend step 0 submit 0\n"); submit(L); request(); END(L) }
  :: d_step { st[L] == Closed && TAKES_NUD == 0 && GOT_NUD(0) -> SAY("mend step 0 NUDGE 0\n"); request(); END(L) }
#if MUT == 102
  :: d_step { st[L] == Closed && dp[L] && ep[L] > 0 && ep[L] < EM-1 && !quiet && nud[ep[L]] -> SAY("mend step 0 NUDGE %d\n", ep[L]); request(); END(L); assert(false) }
#endif
  :: d_step { st[L] == Fencing -> SAY("mend step 0 fence 0\n"); fenced(L); request(); END(L) }
  :: d_step { TAKES_REP != NONE && GOT_REP(ep[L]) -> SAY("mend step 0 REP %d\n", ep[L]); com[ep[L]] = true; acc[L] = ep[L];
       SAY("mend send 0 COMMIT %d 0\n", ep[L]); startReplay(L, repRx[ep[L]]); END(L) }
  :: d_step { st[L] != Closed && TAKES_NUD != NONE && GOT_NUD(ep[L]) -> SAY("mend step 0 NUDGE %d\n", ep[L]); lose(L); END(L) }
  od
}
inline gotReq(n) {
  d_step { TAKES_REQ <= n && GOT_REQ(n) -> SAY("mend step 1 REQ %d\n", n);
    if :: st[F] == Closed || st[F] == Nudging -> toPrepared(n) :: else -> fpend = n; lose(F) fi; END(F) }
}
proctype Follower() {
end:  do
  :: d_step { sub[F] < N && LIVE(F) -> SAY("mend step 1 submit 0\n"); submit(F); END(F) }
  :: d_step { sub[F] < N && st[F] == Closed && !dp[F] -> SAY("mend step 1 submit 0\n"); submit(F); nudge(); END(F) }
  :: gotReq(1)
#if EM > 2
  :: gotReq(2)
#endif
#if EM > 3
  :: gotReq(3)
#endif
#if EM > 4
  :: gotReq(4)
#endif
#if MUT == 102
  :: d_step { st[F] == Closed && dp[F] && ep[F] > 0 && !quiet && SENT_REQ(ep[F]+1) -> SAY("mend step 1 REQ %d\n", ep[F]+1); toPrepared(ep[F]+1); END(F); assert(false) }
#endif
  :: d_step { st[F] == Fencing -> SAY("mend step 1 fence 0\n"); fenced(F); if :: fpend > 0 -> toPrepared(fpend) :: else -> nudge() fi; END(F) }
  :: d_step { TAKES_COM != NONE && GOT_COM(ep[F]) -> SAY("mend step 1 COMMIT %d\n", ep[F]); startReplay(F, reqRx[ep[F]]); END(F) }
  od
}
proctype EndL() { end: common(L) }
proctype EndF() { end: common(F) }

inline nic(s) {                        /* the peer's QP executes the SEND; delivery at once */
  d_step { wire[s] > 0 && wire[s] == acc[PEER(s)] && rxn[PEER(s)] == 0 -> assert(st[PEER(s)] != Closed);
    SAY("mend step %d receive %d\n", PEER(s), wire[s]); wire[s] = 0; rxn[PEER(s)] = 1;
    if :: PEER(s) == F && st[F] == Prepared -> startReplay(F, reqRx[ep[F]]) :: else fi; END(PEER(s)) }
}
#ifdef EAGER
#define MAYREST (faults == FM)
#else
#define MAYREST true
#endif
#define FAULT !quiet && faults < FM
proctype World() {
end:  do
  :: nic(L) :: nic(F)
  :: d_step { FAULT && UP(L) && wire[L] > 0 -> faults++; wire[L] = 0; lost[L] = true }
  :: d_step { FAULT && UP(F) && wire[F] > 0 -> faults++; wire[F] = 0; lost[F] = true }
  :: d_step { FAULT && (UP(L) || st[L] == Requesting) -> faults++; SAY("mend step 0 suspect 0\n"); lose(L); END(L) }
  :: d_step { FAULT && (UP(F) || st[F] == Prepared) -> faults++; SAY("mend step 1 suspect 0\n"); fpend = 0; lose(F); END(F) }
  :: d_step { !quiet && MAYREST -> quiet = true }
  od
}
#define ENDED(s) ((st[s] == Closed && dp[s]) || st[s] == Failed || (expired && UP(s) && acked[s] == sub[s]))
proctype Watch() { timeout -> assert(ENDED(L) && ENDED(F)); assert(expired || (rxn[L] == N && rxn[F] == N)); assert(acc[L] == 0 || UP(L)); assert(acc[F] == 0 || UP(F)) }
#if GOAL == 1
#define REACHED (st[L] == Closed && dp[L] && st[F] == Closed && dp[F] && ep[L] == 2 && ack[L] && ack[F])
#elif GOAL == 2
#define REACHED (st[L] == Failed && st[F] == Failed && ep[F] == 1)
#elif GOAL == 3
#define REACHED (st[F] == Closing && !bd[F] && fencing[F] && st[L] == Requesting)
#elif GOAL == 4
#define REACHED (st[L] == Closing && bd[L] && st[F] == Nudging && ep[F] == 1)
#elif GOAL == 5
#define REACHED (st[L] == Closing && st[F] == Closing && !bd[L] && !bd[F])
#elif GOAL == 6
#define REACHED (expired && !gaveup[L] && !gaveup[F] && st[F] == Closed && st[L] == Closed)
#elif GOAL == 7
#define REACHED (st[F] == Failed && st[L] == Closing && bd[L] && !bye[L])
#elif GOAL == 9
#define REACHED (st[L] == Closing && bd[L] && !bye[L] && acked[L] == N && acked[F] == N && ep[L] == 1 && rxn[L] == N)
#elif GOAL == 8
#define REACHED (st[L] == Failed && st[F] == Closing && bd[F] && !bye[F])
#endif
#ifdef GOAL
proctype Goal() { d_step { REACHED -> assert(false) } }
#define RUN_GOAL ; run Goal()
#else
#define RUN_GOAL
#endif
init { atomic { st[L] = Closed; st[F] = Closed; run Leader(); run Follower(); run EndL(); run EndF(); run World(); run Watch() RUN_GOAL } }
