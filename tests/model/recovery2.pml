/* Recovery protocol of mend (docs/protocol.md), second model; run as cases.json says. A change of the protocol or of
 * plugin/conn/fsm*.cpp that changes a transition changes this file in the same commit.
 * both roles, data in both directions, opening and recovery by one code path.
 *   L leads (allocates epochs), F follows (can only NUDGE). Both start Closed; either or both may submit first.
 * Modelled: SENDs each way (NL from L, NF from F), one PUT + FIN pair in direction PD, RC packets in flight per QP and
 *   direction, acks (CQE) that never come back, link loss in one or both directions, ghost packets of a fenced sender, false
 *   suspicion on either side in every state, repeated failure within a handshake, and a control plane that loses, duplicates
 *   and reorders.
 * Control plane: as every type carries its epoch and REQ(e)/REP(e) are identical bytes each time, the network is the SET of
 *   datagrams ever sent. A member may arrive at any time, any number of times, in any order, or never. `quiet` is the
 *   moment after which no old datagram (ghost) arrives any more and no fault happens; from then on only what the sender's state
 *   RETRANSMITS arrives. So a state in which only a datagram that nobody repeats could help is found as a deadlock.
 * Liveness: every transition changes the state, nothing is forced. If no deadlock exists but the finished state (Watch) and the
 *   graph has no cycle (-DNP without any progress label), every execution whatever the schedule ends with everything
 *   delivered and both Active; the only fairness needed is that a retransmitted datagram arrives some day.
 * Not modelled: BYE, rails, deadline, REJ (but MUT 82), window and SRQ credits, atomics, gets, the oracle (recovery.pml has it).
 *
 * -DMUT=n removes or bends one rule:
 *  11 F1 follower answers without fencing its old QP     12 F1 leader asks without fencing its old QP
 *  13 F1 follower samples rx_next before the drain       14 F1 leader does
 *  21 F2 REQ(e<cur) accepted                             22 F2 duplicate REQ(e==cur) not answered
 *  23 F2 duplicate REQ(e==cur) answered with a fresh QP instead of the identical REP
 *  31 F3 REP of any epoch used                           32 F3 REP(e) used again in Replaying/Active(e)
 *  41 F4 new QP accepts what is in flight for the old    51 F5 follower sends as soon as it has sent REP
 *  52 F5 "HB of e" taken literally: HB(e) of a leader still Requesting(e) releases the follower
 *  61 COMMIT sent once (combine with -DHB: leader's HB(Active,e) also releases the follower)
 *  71 NUDGE sent once                                    72 NUDGE(e<cur) obeyed
 *  81 F7 applied to every datagram that carries rx_next  82 REQ(e<cur) answered with REJ, leader believes it
 *  91 follower in Replaying has no way out on link loss (letter of the diagram: only Active --LinkLost--> Fencing)
 *  92 follower in Nudging(e) does not answer REQ(e) and NUDGE(e) is a no-op in Requesting(e)
 *  93 COMMIT(e) obeyed in Nudging(e)
 * -DWRITTEN: NUDGE(e) in Requesting(e) is a no-op and Nudging(e) answers REQ(e) with the identical REP of its dead QP.
 *   Default (mended): NUDGE(e) in Requesting(e) means e+1, Nudging(e) stays silent on REQ(e).
 * -DTRACE prints every step of a machine in the form that trace.h describes; conformance_test.cpp replays it in the real ones.
 * -DGOAL=n makes reaching goal n an error: its trail is a schedule that gets there.
 */
#ifndef MUT
#define MUT 0
#endif
#ifndef NL
#define NL 1          /* SENDs L -> F */
#endif
#ifndef NF
#define NF 1          /* SENDs F -> L */
#endif
#ifndef PD
#define PD 2          /* direction of the PUT whose FIN is that direction's last SEND: 0 = L->F, 1 = F->L, 2 = no PUT */
#endif
#ifndef FM
#define FM 1          /* faults */
#endif
#define EM (FM+2)     /* epochs 0 .. FM+1: L3 says that no fault-free epoch is ever burnt */
#define DEP 3
#define L 0
#define F 1
#define PUT 9
#define X(s,e) ((s)*EM+(e))
#define PEER(s) (1-(s))

mtype = { Closed, Fencing, Requesting, Prepared, Nudging, Replaying, Active };
mtype st[2];
byte ep[2];               /* current epoch (L: pending one while Requesting) */
byte fpend;               /* F Fencing: epoch of the REQ that made it fence; 0 = it lost the link itself */
bool quiet; byte faults;

/* --- the set of datagrams ever sent --- */
byte reqRx[EM];           /* REQ(e).rx_next; REQ(1..ep[L]) are in the set */
bool rep[EM]; byte repRx[EM];
bool com[EM], nud[EM];
#define SENT_REQ(e) ((e) <= ep[L] && (e) > 0)
#define UP(s) (st[s] == Replaying || st[s] == Active)
/* the epoch of which a side keeps repeating a message (REP: in answer to a repeated REQ) */
#define NONE 255
#define KEEPS_REQ (st[L] == Requesting -> ep[L] : NONE)
#if MUT == 22
#define KEEPS_REP NONE
#elif defined(WRITTEN)
#define KEEPS_REP ((st[F] == Prepared || UP(F) || st[F] == Nudging) -> ep[F] : NONE)
#else
#define KEEPS_REP ((st[F] == Prepared || UP(F)) -> ep[F] : NONE)
#endif
#if MUT == 61
#ifdef HB
#define KEEPS_COM (st[L] == Active -> ep[L] : NONE)
#else
#define KEEPS_COM NONE
#endif
#else
#define KEEPS_COM (UP(L) -> ep[L] : NONE)
#endif
#if MUT == 71
#define KEEPS_NUD NONE
#else
#define KEEPS_NUD (st[F] == Nudging -> ep[F] : NONE)
#endif
/* the epoch of which a side takes a message; anything else that arrives changes nothing. REQ: this epoch and later ones */
#define TAKES_REP (st[L] == Requesting -> ep[L] : NONE)
#if !defined(WRITTEN) && MUT != 92
#define TAKES_NUD ((st[L] == Closed || st[L] == Requesting || UP(L)) -> ep[L] : NONE)
#else
#define TAKES_NUD ((st[L] == Closed || UP(L)) -> ep[L] : NONE)
#endif
#define TAKES_REQ (st[F] != Fencing -> ep[F] + 1 : NONE)
#define TAKES_COM (st[F] == Prepared -> ep[F] : NONE)
/* what arrives: a ghost (any time before quiet) or what the sender's state keeps repeating */
#define GOT_REQ(e)  ((!quiet && SENT_REQ(e)) || KEEPS_REQ == (e))
#define GOT_REP(e)  ((!quiet && rep[e]) || KEEPS_REP == (e))
#if MUT == 52
#define GOT_COM(e)  ((!quiet && SENT_REQ(e)) || KEEPS_COM == (e))
#else
#define GOT_COM(e)  ((!quiet && com[e]) || KEEPS_COM == (e))
#endif
#define GOT_NUD(e)  ((!quiet && nud[e]) || KEEPS_NUD == (e))

/* --- the trace --- */
#ifdef TRACE
#define SAY(...) printf(__VA_ARGS__)
#else
#define SAY(...) skip
#endif
#define END(s) SAY("mend end %d %e %d takes REP %d NUDGE %d REQ %d COMMIT %d keeps REQ %d REP %d COMMIT %d NUDGE %d\n", s, st[s], ep[s], \
                   TAKES_REP, TAKES_NUD, TAKES_REQ, TAKES_COM, KEEPS_REQ, KEEPS_REP, KEEPS_COM, KEEPS_NUD)

/* --- RC --- */
chan wire[2*EM] = [DEP] of { byte };        /* X(s,e): packets of sender s in flight on QP(e) */
chan rcq[2] = [DEP] of { byte, byte };      /* receive CQ: epoch, seq */
byte alive[2*EM];                           /* X(s,e): QP(e) of s: 0 not yet RTR, 1 accepts, 2 fenced (RESET) */
byte brk[2];                                /* sender s's current QP: 0 ok; 1 no more acks, requests may still arrive;
                                             * 2 a request was lost, so on RC none arrives any more */
bool mism;                                  /* the two current QPs do not point at each other */

/* --- data: op k of sender s; seq = SEQ; the PUT is op N-1, its FIN op N (the last SEND) --- */
byte sub[2], acked[2], nxt[2], exe[2], cqe[2];   /* submitted; peer's rx_next known; next to post, executed, completed on this QP */
byte rxn[2];                                /* rx_next of receiver s */
bool putDone, mem;
#define NS(s) ((s) == L -> NL : NF)
#define T(s)  (NS(s) + (PD == (s) -> 1 : 0))
#define ISPUT(s,k) (PD == (s) && (k) == NS(s)-1)
#define SEQ(s,k)   ((PD == (s) && (k) == NS(s)) -> (k)-1 : (k))
#define PUTSUB(s)  (PD == (s) && sub[s] >= NS(s))
#define SSUB(s)    (sub[s] - (PUTSUB(s) -> 1 : 0))
#define DONE(s,k)  (ISPUT(s,k) -> putDone : SEQ(s,k) < acked[s])
#define LOGEMPTY(s) (acked[s] == SSUB(s) && (!PUTSUB(s) || putDone))
#ifdef ORDERED
#define MAYSUB(s) (sub[s] < T(s))                                       /* FIN may follow its PUT on the same QP */
#else
#define MAYSUB(s) (sub[s] < T(s) && (!(PD == (s) && sub[s] == NS(s)) || putDone))   /* FIN waits for the PUT's completion */
#endif
#define ALLDONE (rxn[F] == NL && rxn[L] == NF && acked[L] == NL && acked[F] == NF && (PD == 2 || putDone) && \
                 st[L] == Active && st[F] == Active && ep[L] == ep[F])
#ifndef SHORT
#define SCRATCH hidden        /* -DSHORT for breadth-first runs (-DBFS) */
#else
#define SCRATCH
#endif
SCRATCH byte o, e, k, smp;                  /* never live between steps */

inline settle(s) {                          /* Replaying --log empty--> Active */
  if :: st[s] == Replaying && LOGEMPTY(s) -> st[s] = Active; SAY("mend log %d\n", s) :: else fi;
  assert(!(st[L] == Active && st[F] == Active) || (ep[L] == ep[F] && !mism))            /* I3 */
}
inline startReplay(s, r) {                  /* enter Replaying with the peer's progress r */
#ifndef HARM   /* -DHARM: do not stop at the early signs, show what the user would see */
  assert(r >= acked[s] && r <= SSUB(s));                                                /* F7 */
#endif
  acked[s] = r;                                                                         /* S1 */
  if :: PD == s && acked[s] == NS(s) -> putDone = true :: else fi;                      /* P2 */
  k = 0; do :: k < sub[s] && DONE(s,k) -> k++ :: else -> break od;
  nxt[s] = k; exe[s] = k; cqe[s] = k;
#ifndef HARM
  do :: k < sub[s] -> assert(!DONE(s,k)); k++ :: else -> break od;                      /* the undone ops are a suffix of the log */
#endif
  st[s] = Replaying; SAY("mend replay %d %d\n", s, r); settle(s)
}
inline deliver(s, q) {                      /* no dedup on purpose: I10 */
  assert(q == rxn[s]);                                                                  /* I1, I10: in order, no gap, no duplicate */
  if :: PD == PEER(s) && q == NS(PEER(s))-1 -> assert(mem) :: else fi;                  /* I4: FIN only with its data in memory */
  rxn[s] = rxn[s] + 1
}
inline fence(s) {                           /* RESET, drain the CQ, then sample (F1) */
  if
#if MUT == 11
  :: s == F -> skip
#elif MUT == 12
  :: s == L -> skip
#endif
  :: else -> if :: ep[s] > 0 -> alive[X(s,ep[s])] = 2;
#if MUT != 41
                   do :: len(wire[X(PEER(s),ep[s])]) > 0 -> wire[X(PEER(s),ep[s])]?o :: else -> break od
#endif
                :: else fi
  fi;
  smp = rxn[s];
  do :: len(rcq[s]) > 0 -> rcq[s]?e,o; deliver(s, o) :: else -> break od;
  if
#if MUT == 13
  :: s == F -> skip
#elif MUT == 14
  :: s == L -> skip
#endif
  :: else -> smp = rxn[s]
  fi;
  SAY("mend fenced %d %d %d %d\n", s, smp, acked[s], SSUB(s))
}
/* data side, the same for both roles */
inline post(s)  { d_step { UP(s) && nxt[s] < sub[s] && nfull(wire[X(s,ep[s])]) ->
    if :: alive[X(PEER(s),ep[s])] != 2 && !mism && brk[s] < 2 -> wire[X(s,ep[s])]!(ISPUT(s,nxt[s]) -> PUT : SEQ(s,nxt[s])) :: else fi;
    nxt[s] = nxt[s] + 1 } }
inline compl(s) { d_step { UP(s) && cqe[s] < exe[s] && !brk[s] ->      /* success CQE */
    SAY("mend step %d data 0\n", s); cqe[s] = exe[s]; if :: PD == s && cqe[s] >= NS(s) -> putDone = true :: else fi; settle(s); END(s) } }
/* software ack: over RC (piggyback, ack cell) it needs the peer's QP; by HB it may come or not, so only before quiet */
inline ackin(s) { d_step { acked[s] < rxn[PEER(s)] &&
    (!quiet || (UP(s) && UP(PEER(s)) && ep[L] == ep[F] && !brk[PEER(s)] && alive[X(s,ep[s])] == 1 && !mism)) ->
    SAY("mend step %d data 0\n", s); acked[s] = rxn[PEER(s)]; settle(s); END(s) } }
#define OWESACK(s) (rxn[s] > acked[PEER(s)])
/* error CQE: something of mine is outstanding (WR or ack write) and cannot get through any more */
#define LINKLOST(s) (UP(s) && (brk[s] || mism || alive[X(PEER(s),ep[s])] != 1) && (cqe[s] < nxt[s] || OWESACK(s)))

inline toPrepared(n) {
  ep[F] = n; alive[X(F,n)] = 1; brk[F] = 0; repRx[n] = smp; rep[n] = true; st[F] = Prepared; fpend = 0;
  SAY("mend send 1 REP %d %d\n", n, smp);
#if MUT == 51
  startReplay(F, reqRx[n]);
#endif
}
inline request() {                          /* L takes the next epoch */
  ep[L] = ep[L] + 1; assert(ep[L] <= 1 + faults);                                       /* L3: one epoch per fault at most */
  reqRx[ep[L]] = smp; st[L] = Requesting; SAY("mend send 0 REQ %d %d\n", ep[L], smp)
}

inline connect(n, from) {                   /* L uses REP(from) for its QP(n) */
  alive[X(L,n)] = 1; brk[L] = 0; mism = false; com[n] = true; SAY("mend send 0 COMMIT %d 0\n", n);
  startReplay(L, repRx[from])
}
inline nudge() { nud[ep[F]] = true; st[F] = Nudging; SAY("mend send 1 NUDGE %d 0\n", ep[F]) }

proctype Leader() {
end:  do
  :: d_step { MAYSUB(L) -> SAY("mend step 0 submit 0\n"); sub[L] = sub[L] + 1;
       if :: st[L] == Closed -> smp = 0; request() :: UP(L) -> skip :: else fi; END(L) }
  :: d_step { st[L] == Closed && GOT_NUD(0) -> SAY("mend step 0 NUDGE 0\n"); smp = 0; request(); END(L) }
  :: d_step { st[L] == Fencing -> SAY("mend step 0 fence 0\n"); fence(L); request(); END(L) }
  :: d_step { TAKES_REP != NONE && GOT_REP(ep[L]) -> SAY("mend step 0 REP %d\n", ep[L]); connect(ep[L], ep[L]); END(L) }
  :: d_step { st[L] != Closed && TAKES_NUD != NONE && GOT_NUD(ep[L]) -> SAY("mend step 0 NUDGE %d\n", ep[L]); st[L] = Fencing; END(L) }
  :: d_step { LINKLOST(L) -> SAY("mend step 0 lost 0\n"); st[L] = Fencing; END(L) }
  :: post(L)
  :: compl(L)
  :: ackin(L)
  :: d_step { nempty(rcq[L]) -> rcq[L]?e,o; SAY("mend step 0 receive %d\n", e); deliver(L, o); END(L) }
#if MUT == 31
  :: d_step { st[L] == Requesting && ep[L] > 1 && !quiet && rep[ep[L]-1] -> SAY("mend step 0 REP %d\n", ep[L]-1);
       connect(ep[L], ep[L]-1); brk[L] = 2; mism = true; END(L) }
#endif
#if MUT == 32
  :: d_step { UP(L) && !quiet && nxt[L] > 0 -> SAY("mend step 0 REP %d\n", ep[L]); startReplay(L, repRx[ep[L]]); END(L) }
#endif
#if MUT == 72
  :: d_step { (UP(L) || st[L] == Requesting) && ep[L] > 0 && !quiet && nud[ep[L]-1] ->
       SAY("mend step 0 NUDGE %d\n", ep[L]-1); st[L] = Fencing; END(L) }
#endif
  od
}

inline gotReq(n) {
  d_step { TAKES_REQ <= n && GOT_REQ(n) -> SAY("mend step 1 REQ %d\n", n);
    if :: st[F] == Closed || st[F] == Nudging -> smp = rxn[F]; toPrepared(n)            /* nothing left to fence */
       :: else -> fpend = n; st[F] = Fencing
    fi; END(F) }
}
proctype Follower() {
end:  do
  :: d_step { MAYSUB(F) -> SAY("mend step 1 submit 0\n"); sub[F] = sub[F] + 1;
       if :: st[F] == Closed -> nudge() :: else fi; END(F) }
  :: gotReq(1)
#if FM > 0
  :: gotReq(2)
#endif
#if FM > 1
  :: gotReq(3)
#endif
#if FM > 2
  :: gotReq(4)
#endif
  :: d_step { st[F] == Fencing -> SAY("mend step 1 fence 0\n"); fence(F);
       if :: fpend > 0 -> e = fpend; toPrepared(e) :: else -> nudge() fi; END(F) }
  :: d_step { TAKES_COM != NONE && GOT_COM(ep[F]) -> SAY("mend step 1 COMMIT %d\n", ep[F]); startReplay(F, reqRx[ep[F]]); END(F) }  /* F5 */
  :: d_step { nempty(rcq[F]) -> rcq[F]?e,o; SAY("mend step 1 receive %d\n", e); deliver(F, o);
       if :: st[F] == Prepared && e == ep[F] -> startReplay(F, reqRx[ep[F]]) :: else fi; END(F) }        /* F5: first receive */
#if MUT == 91
  :: d_step { LINKLOST(F) && st[F] == Active -> SAY("mend step 1 lost 0\n"); st[F] = Fencing; END(F) }
#else
  :: d_step { LINKLOST(F) -> SAY("mend step 1 lost 0\n"); st[F] = Fencing; END(F) }
#endif
  :: post(F)
  :: compl(F)
  :: ackin(F)
#if MUT == 21
  :: d_step { (st[F] == Prepared || UP(F)) && ep[F] > 1 && !quiet -> SAY("mend step 1 REQ %d\n", ep[F]-1);
       fpend = ep[F]-1; st[F] = Fencing; END(F) }
#endif
#if MUT == 23
  :: d_step { (st[F] == Prepared || UP(F)) && !quiet && UP(L) && ep[L] == ep[F] && !mism -> mism = true; brk[L] = 2; brk[F] = 2 }
#endif
#if MUT == 81     /* a late REQ(cur) or HB with an rx_next that acks have overtaken: "Failed(DataLoss)" */
  :: d_step { !quiet && ep[F] > 0 && SENT_REQ(ep[F]) && reqRx[ep[F]] < acked[F] -> assert(false) }
#endif
#if MUT == 82     /* a reordered or duplicated REQ(e<cur): REJ, "peer fails" */
  :: d_step { !quiet && ep[F] > 1 -> assert(false) }
#endif
#if MUT == 93
  :: d_step { st[F] == Nudging && ep[F] > 0 && GOT_COM(ep[F]) -> SAY("mend step 1 COMMIT %d\n", ep[F]); startReplay(F, reqRx[ep[F]]); END(F) }
#endif
  od
}

inline nic(s, n) {                          /* the receiver's QP(n) executes the next packet of sender s */
  d_step { alive[X(PEER(s),n)] == 1 && nempty(wire[X(s,n)]) && nfull(rcq[PEER(s)]) ->
#ifndef HARM
    assert(n == ep[PEER(s)]);                                                           /* I2 */
#endif
    wire[X(s,n)]?o;
    if :: o == PUT -> assert(rxn[PEER(s)] < NS(s)); mem = true                          /* I4: not after FIN was delivered */
       :: else -> rcq[PEER(s)]!n,o
    fi;
    if :: n == ep[s] -> exe[s] = exe[s] + 1 :: else fi }
}
#if MUT == 41
inline ghost(s, n) {                        /* same QPN and PSN: the new QP takes the old one's packet */
  d_step { alive[X(PEER(s),n)] == 1 && alive[X(PEER(s),n-1)] == 2 && nempty(wire[X(s,n-1)]) && nfull(rcq[PEER(s)]) ->
    wire[X(s,n-1)]?o;
    if :: o == PUT -> assert(rxn[PEER(s)] < NS(s)); mem = true :: else -> rcq[PEER(s)]!n,o fi }
}
#endif
inline drop(s, n) {                         /* tail loss: what is still in flight on a broken or fenced QP */
  d_step { nempty(wire[X(s,n)]) && (n < ep[s] || brk[s] > 0 || st[s] == Fencing || alive[X(s,n)] == 2) ->
    do :: len(wire[X(s,n)]) > 0 -> wire[X(s,n)]?o :: else -> break od; o = 0;
    if :: n == ep[s] && UP(s) -> brk[s] = 2 :: else fi }
}
proctype Nic() {
end:  do
  :: nic(L,1) :: nic(F,1) :: drop(L,1) :: drop(F,1)
#if FM > 0
  :: nic(L,2) :: nic(F,2) :: drop(L,2) :: drop(F,2)
#endif
#if FM > 1
  :: nic(L,3) :: nic(F,3) :: drop(L,3) :: drop(F,3)
#endif
#if FM > 2
  :: nic(L,4) :: nic(F,4) :: drop(L,4) :: drop(F,4)
#endif
#if MUT == 41
  :: ghost(L,2) :: ghost(F,2)
#endif
  od
}

#define FAULT !quiet && faults < FM
#ifdef EAGER                                /* for simulations: no rest before every fault has happened */
#define MAYREST (faults == FM)
#else
#define MAYREST true
#endif
#define LINKED (UP(L) && alive[X(F,ep[L])] == 1)
proctype World() {
end:  do
  :: d_step { FAULT && LINKED && !brk[L] -> faults++; brk[L] = 1 }                        /* requests L->F or their acks */
  :: d_step { FAULT && LINKED && !brk[F] -> faults++; brk[F] = 1 }
  :: d_step { FAULT && LINKED && !brk[L] && !brk[F] -> faults++; brk[L] = 1; brk[F] = 1 }
  :: d_step { FAULT && (UP(L) || st[L] == Requesting) -> faults++; SAY("mend step 0 suspect 0\n"); st[L] = Fencing; END(L) }      /* suspicion, true or false */
  :: d_step { FAULT && (UP(F) || st[F] == Prepared) -> faults++; SAY("mend step 1 suspect 0\n"); fpend = 0; st[F] = Fencing; END(F) }
  :: d_step { !quiet && MAYREST -> quiet = true }
  od
}
proctype Watch() { timeout -> assert(ALLDONE) }                                          /* L1, L2: nothing moves => finished */
/* goals: schedules that random simulation seldom finds */
#if GOAL == 1
#define REACHED (ALLDONE && ep[L] == 3)
#elif GOAL == 2
#define REACHED (st[F] == Nudging && ep[F] == 2 && st[L] == Requesting && ep[L] == 3)
#elif GOAL == 3
#define REACHED (st[F] == Fencing && fpend == 0 && ep[F] == 2 && st[L] == Replaying)
#elif GOAL == 4
#define REACHED (st[L] == Fencing && st[F] == Fencing && ep[F] == 2)
#elif GOAL == 5
#define REACHED (st[F] == Prepared && ep[F] == 3 && st[L] == Active)
#endif
#ifdef GOAL
proctype Goal() { d_step { REACHED -> assert(false) } }
#define RUN_GOAL ; run Goal()
#else
#define RUN_GOAL
#endif
init { atomic { st[L] = Closed; st[F] = Closed; run Leader(); run Follower(); run Nic(); run World(); run Watch() RUN_GOAL } }
