/* Recovery protocol of mend (docs/protocol.md), first model: one data direction A -> B, leader = A, follower = B.
 * cases.json says with which options it is run and what must come out; a change of the protocol changes this file.
 * Models: PUT(i) (one-sided write to cell i), FIN(i) (two-sided SEND, seq i, only
 * posted once PUT(i) is known complete), link breaks with loss of in-flight packets
 * AND loss of acks, ghost packets of an old QP, lossy, duplicating and reordering UD control plane,
 * false suspicion (A may start recovery at any time), repeated failures.
 * Mutations (-DMUT=n) remove one rule each; every one of them must break an assertion.
 *   1 follower answers REP without fencing (QP->ERR) its old QP
 *   2 follower snapshots rx_next before draining its receive CQ
 *   3 receiver does not deduplicate by sequence number
 *   4 sender does not use "a later delivered send proves the earlier put ran" (rule P2)
 *   5 follower accepts a REQ of an old epoch (no epoch fence on control messages)
 *   6 leader resumes on REP of any epoch (stale REP accepted)
 *   7 new epoch reuses the same QPN/PSN (old wire content is accepted by the new QP)
 *   9 (with ORACLE) executed count taken from the previous epoch instead of the last DATA epoch
 *   8 leader keeps counting CQEs of the old QP after the switch (wr_id without epoch)
 */
#ifndef MUT
#define MUT 0
#endif
#ifndef N
#define N 2          /* number of put+fin pairs */
#endif
#ifndef EM
#define EM 3         /* epochs 0..EM-1: EM-1 recoveries */
#endif
#define W 4
mtype = { PUT, FIN, REQ, REP, REJ };

chan wire[EM] = [W] of { mtype, byte };       /* RC packets in flight, per QP incarnation */
chan rcq      = [W] of { byte, byte };        /* B's receive CQ: epoch, seq */
/* UD control plane: lossy, duplicating, REORDERING (two parallel FIFOs per direction) */
chan udAB  = [2] of { mtype, byte };        chan udAB2 = [1] of { mtype, byte };        /* type, epoch */
chan udBA  = [2] of { mtype, byte, byte };  chan udBA2 = [1] of { mtype, byte, byte };  /* type, epoch, rx_next */
inline sendREP(ee, nn) { if :: nfull(udBA) -> udBA!REP,ee,nn :: nfull(udBA2) -> udBA2!REP,ee,nn :: true -> skip fi }

bool rqAlive[EM];      /* B's QP(e) accepts packets */
byte execd[EM];        /* ops executed by B's QP(e), in order */
byte mem[N];           /* target cells */
bool reused[N];        /* B's application has got FIN(i) and reused cell i */
byte rxNext;           /* B: next expected send sequence (counted when taken off the CQ) */
byte bEpoch;
bool aDone;

/* B's NIC: executes packets of any live QP incarnation, in order per QP */
inline nic(e) {
  atomic {
    (rqAlive[e] && nempty(wire[e])) ->
      if
      :: wire[e]?PUT,x ->
           assert(!reused[x]);             /* I4: no put may hit memory the target already reused */
           mem[x] = x + 1
      :: wire[e]?FIN,x -> rcq!e,x
      fi;
      execd[e]++; x = 0
  }
}
proctype NicB() { byte x;
  do
  :: nic(0)
  :: nic(1)
#if EM > 2
  :: nic(2)
#endif
#if EM > 3
  :: nic(3)
#endif
  :: atomic { (aDone && empty(rcq)) -> break }
  od
}

inline deliver(s) {
  if
#if MUT == 3
  :: s < rxNext -> assert(false)           /* I1: duplicate delivered */
#else
  :: s < rxNext -> skip                    /* duplicate: drop */
#endif
  :: s == rxNext -> assert(mem[s] == s + 1 || reused[s]); /* I4: data visible when FIN is delivered */
                    mem[s] = 99; reused[s] = true; rxNext++
  :: s > rxNext -> assert(false)           /* I1: gap */
  fi
}

proctype B() { byte e, s, snap; mtype t;
  do
  :: atomic { rcq?e,s -> deliver(s); e = 0; s = 0 }
#ifdef POLL   /* target polls memory and reuses the cell without waiting for FIN (SHIFT trilemma) */
  :: atomic { !reused[0] && mem[0] == 1 -> reused[0] = true; mem[0] = 99 }
#if N > 1
  :: atomic { !reused[1] && mem[1] == 2 -> reused[1] = true; mem[1] = 99 }
#endif
#endif
  :: atomic { (nempty(udAB) || nempty(udAB2)) ->
      if :: udAB?t,e :: udAB2?t,e fi;
      if
#if MUT == 5
      :: true ->
#else
      :: e < bEpoch -> skip                /* stale REQ */
      :: e == bEpoch && bEpoch > 0 -> sendREP(e, rxNext)
      :: e > bEpoch ->
#endif
#if MUT == 2
          snap = rxNext;
#endif
#if MUT != 1
          rqAlive[bEpoch] = false;         /* fence: QP -> ERR */
#endif
          do :: nempty(rcq) -> rcq?_,s; deliver(s) :: empty(rcq) -> break od; /* drain */
          bEpoch = e; rqAlive[e] = true;   /* fresh QP, RTR */
#if MUT != 2
          snap = rxNext;
#endif
          sendREP(e, snap)
#if MUT == 5
      :: false -> skip
#endif
      fi; e = 0; s = 0; snap = 0 }
  :: atomic { (aDone && empty(rcq)) -> break }
  od
}

/* A: sender + leader */
byte np, nf, sw;
#define allDone (nf == N && sw == N)
byte ep;               /* current epoch */
byte olog[4];          /* op log in first-posting order: 2*i = PUT(i), 2*i+1 = FIN(i) */
byte nlog;
bool done[4];          /* op known complete: PUT by CQE / rule P2, FIN by software ack */
byte posted[EM];       /* number of ops posted on QP(e) */
byte map[4];           /* order of posting on the current QP -> op */
byte cqe;              /* CQEs consumed on the current QP */
byte dataEp;           /* last epoch on which A actually posted */

inline post(o) {
  if
  :: (o & 1) == 0 -> wire[ep]!PUT,(o >> 1)
  :: else         -> wire[ep]!FIN,(o >> 1)
  fi;
  map[posted[ep]] = o; posted[ep]++
}

proctype A() { byte i, o, e, r, j; mtype t; bool later;
  do
  /* post next op in program order */
  :: atomic { nlog < 2*N && nfull(wire[ep]) && posted[ep] < 4 ->
       /* choose any legal op: PUT(i) in order; FIN(i) after done[PUT(i)] in order */
       if
       :: np < N -> o = 2*np; np++; olog[nlog] = o; nlog++; post(o)
#ifdef ORDERED
       :: nf < np ->                  /* notification relies on same-QP ordering only */
#else
       :: nf < np && done[2*nf] ->    /* notification waits for the put's completion */
#endif
            o = 2*nf+1; nf++; olog[nlog] = o; nlog++; post(o)
       :: else -> skip
       fi; o = 0 }
  /* success CQE: RC ack that made it back (may be lost for ever by a break) */
#if MUT == 8
  :: atomic { cqe < posted[ep] && (cqe < execd[ep] || (ep > 0 && cqe < execd[ep-1])) ->
#else
  :: atomic { cqe < execd[ep] && cqe < posted[ep] ->
#endif

       if :: (map[cqe] & 1) == 0 -> done[map[cqe]] = true :: else -> skip fi; cqe++ }
  /* software ack seen by A (piggy-backed): any value <= rxNext, modelled on current epoch only */
  :: atomic { nf > 0 && sw < rxNext && bEpoch == ep -> done[2*sw+1] = true; sw++ }
  /* failure or false suspicion: start recovery */
  :: atomic { ep < EM-1 && !allDone ->
       ep++; cqe = 0 ; }                    /* old QP(ep-1): SQ fenced, no more CQEs looked at */
     /* in-flight packets of the old QP: any of them may be lost from here on (tail loss) */
     do
     :: atomic { nempty(wire[dataEp]) -> do :: nempty(wire[dataEp]) -> wire[dataEp]?_,_ :: empty(wire[dataEp]) -> break od }
     :: atomic { ep < EM-1 -> ep++ }          /* the new QP failed before it was established: next epoch */
     :: nfull(udAB) -> udAB!REQ,ep
     :: nfull(udAB2) -> udAB2!REQ,ep
     :: (nempty(udBA) || nempty(udBA2)) ->
         if :: udBA?t,e,r :: udBA2?t,e,r fi;
         if
#if MUT == 6
         :: true -> break
#else
         :: e == ep -> break
         :: else -> skip
#endif
         fi
     od;
     atomic {
       /* r = B's final rx_next for all older epochs */
       i = 0;
       do
       :: i < nf -> if :: i < r -> done[2*i+1] = true; if :: sw <= i -> sw = i+1 :: else -> skip fi :: else -> skip fi; i++
       :: else -> break
       od;
#if MUT == 7
       do :: nempty(wire[dataEp]) && nfull(wire[ep]) -> wire[dataEp]?t,e; wire[ep]!t,e :: else -> break od;
#endif
#ifdef ORACLE   /* REP carries how many WRs of the last data epoch the fenced QP executed (rq_psn) */
       i = 0;
       do
#if MUT == 9
       :: i < posted[dataEp] -> if :: i < execd[ep-1] && (map[i] & 1) == 0 -> done[map[i]] = true :: else -> skip fi; i++
#else
       :: i < posted[dataEp] -> if :: i < execd[dataEp] && (map[i] & 1) == 0 -> done[map[i]] = true :: else -> skip fi; i++
#endif
       :: else -> break
       od;
#endif
       dataEp = ep;
       /* rule P2 */
#if MUT != 4
       i = 0;
       do
       :: i < nlog ->
            if
            :: (olog[i] & 1) == 0 && !done[olog[i]] ->
                 j = i + 1; later = false;
                 do
                 :: j < nlog -> if :: (olog[j] & 1) == 1 && done[olog[j]] -> later = true :: else -> skip fi; j++
                 :: else -> break
                 od;
                 if :: later -> done[olog[i]] = true :: else -> skip fi
            :: else -> skip
            fi; i++
       :: else -> break
       od;
#endif
       /* replay what is not known complete, in original order */
       i = 0;
       do
       :: i < nlog -> if :: !done[olog[i]] -> o = olog[i]; post(o) :: else -> skip fi; i++
       :: else -> break
       od;
       i = 0; o = 0; e = 0; r = 0; j = 0; later = false
     }
  :: atomic { nf == N && sw == N -> aDone = true; break }
  od
}
init { atomic { rqAlive[0] = true; run NicB(); run B(); run A() } }
