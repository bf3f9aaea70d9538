/* Flow control of mend (docs/protocol.md 1.7): the window, shared receive buffers and the stash, acknowledgements, and what a recovery
 * does to them. Two sides, SENDs both ways; run as cases.json says. A change of the rules or of ops/channel*.cpp, ops/recv_pool.cpp
 * that changes them changes this file in the same commit.
 * A receive buffer is posted, then in the completion queue, then in the stash until its application is in MPI, then posted again.
 * Completions count as received when they are polled, by progress or by a fence; the acknowledgement says how many were.
 * The recovery itself (epochs, datagrams) is that of recovery2.pml; here both sides fence, learn each other's count, and go on.
 * Checked: never more than W SENDs in flight (I6); every buffer is somewhere (I6); nothing lost, doubled or out of order (I1); no recovery
 *   without a fault (slow is not broken); no deadlock; with -DNP no cycle.
 * -DCOMPUTE: an application does not enter MPI while the connection is down: a recovery may not need it.
 * -DRESP: every SEND of the leader is a request; delivering it submits a response (an atomic).
 * -DMUT=n removes or bends one rule:
 * 301 credits instead of an absolute window: the handshake's acknowledgement returns none
 * 302 COMMIT needs a receive buffer (with -DCOMPUTE)      303 acknowledgements only with W/2 owed, none when idle
 * 304 buffers in the completion queue are lost at a fence  305 a peer without buffers counts as a broken link
 * 306 a delivery waits for the window of its response (with -DRESP)
 * 307 a recovery grants a new window while late acknowledgements still count
 * 308 a received SEND counts when it is delivered, and the fence does not deliver
 */
#ifndef MUT
#define MUT 0
#endif
#ifndef N
#define N 3           /* SENDs of each side */
#endif
#ifndef W
#define W 2           /* window */
#endif
#ifndef D
#define D 1           /* receive buffers of each side */
#endif
#ifndef FM
#define FM 2          /* faults */
#endif
#define L 0
#define F 1
#define PEER(s) (1-(s))

/* sender s: submitted, next to post, acknowledged, executed by the peer's device */
byte sub[2], nxt[2], acked[2], exe[2];
/* receiver s: counted, told to the peer, delivered; buffers */
byte rxn[2], told[2], given[2];
byte posted[2], cq[2], stash[2];
byte cell[2];         /* acknowledgement on its way to s (the ack cell: only grows) */
#if MUT == 301 || MUT == 307
byte credit[2];
#endif
bool up; bool fenced[2];
byte faults, recoveries;

#ifdef RESP
#define MAYSUB(s) ((s) == L && sub[s] < N)
#else
#define MAYSUB(s) (sub[s] < N)
#endif
#if MUT == 301 || MUT == 307
#define OPEN(s) (credit[s] > 0)
#else
#define OPEN(s) (nxt[s] < acked[s] + W)
#endif
#if MUT == 303
#define MAYACK(s) (rxn[s] - told[s] >= 2)
#else
#define MAYACK(s) (rxn[s] > told[s])
#endif
#ifdef COMPUTE
#define INMPI(s) up
#else
#define INMPI(s) true
#endif
#if MUT == 306
#define MAYRESPOND(s) (OPEN(s) && up)
#else
#define MAYRESPOND(s) true
#endif
#if MUT == 302
#define MAYCOMMIT (posted[F] > 0)
#else
#define MAYCOMMIT true
#endif
#define LEDGER(s) assert(posted[s] + cq[s] + stash[s] == D)

inline takeAck(s, value) {
  if :: value > acked[s] ->
#if MUT == 301 || MUT == 307
        credit[s] = credit[s] + value - acked[s];
#endif
        acked[s] = value
     :: else
  fi
}
inline poll(s) {                        /* one completion: counted, and put into the stash */
  cq[s]--; stash[s]++;
#if MUT != 308
  rxn[s]++
#endif
}
proctype Side(byte s) {
end:  do
  /* the application */
  :: d_step { MAYSUB(s) -> sub[s]++ }
  :: d_step { INMPI(s) && stash[s] > 0 && MAYRESPOND(s) ->              /* the upcall, then posted again */
       stash[s]--; given[s]++; posted[s]++;
#if MUT == 308
       rxn[s]++;
#endif
#ifdef RESP
       if :: s == F -> sub[F]++ :: else fi;
#endif
       LEDGER(s) }
  /* progress, and the service thread */
  :: d_step { cq[s] > 0 -> poll(s); LEDGER(s) }
  :: d_step { up && nxt[s] < sub[s] && OPEN(s) ->                       /* carries an acknowledgement */
       nxt[s]++; told[s] = rxn[s];
#if MUT == 301 || MUT == 307
       credit[s]--;
#endif
       assert(nxt[s] - acked[s] <= W) }
  :: d_step { up && MAYACK(s) -> told[s] = rxn[s]; cell[PEER(s)] = rxn[s] }   /* the ack cell: no window, no buffer */
  :: d_step { up && cell[s] > acked[s] -> takeAck(s, cell[s]) }
  /* the peer's device: needs a buffer, else it waits (RNR) */
  :: d_step { up && exe[s] < nxt[s] && posted[PEER(s)] > 0 ->
       assert(exe[s] == rxn[PEER(s)] + cq[PEER(s)] || MUT == 308);                      /* I1 */
       exe[s]++; posted[PEER(s)]--; cq[PEER(s)]++; takeAck(PEER(s), told[s]); LEDGER(PEER(s)) }
#if MUT == 305
  :: d_step { up && exe[s] < nxt[s] && posted[PEER(s)] == 0 -> up = false }
#endif
  /* recovery */
  :: d_step { !up && !fenced[s] ->
#if MUT == 304
       cq[s] = 0;
#else
       do :: cq[s] > 0 -> poll(s) :: else -> break od;
#endif
       fenced[s] = true; LEDGER(s) }
  od
}
inline resume(s) {
#if MUT == 301
  acked[s] = rxn[PEER(s)];
#elif MUT == 307
  credit[s] = W;
#else
  takeAck(s, rxn[PEER(s)]);
#endif
  assert(rxn[PEER(s)] <= nxt[s]);
  assert(MUT != 308 || rxn[PEER(s)] >= exe[s]);                                         /* else sent again: I1 */
  nxt[s] = rxn[PEER(s)]; exe[s] = rxn[PEER(s)]; told[PEER(s)] = rxn[PEER(s)];
#if MUT == 301 || MUT == 307
  skip
#else
  assert(nxt[s] == acked[s])
#endif
}
proctype World() {
end:  do
  :: d_step { up && faults < FM -> faults++; up = false }
  :: d_step { !up && fenced[L] && fenced[F] && MAYCOMMIT -> resume(L); resume(F); fenced[L] = false; fenced[F] = false; up = true;
       recoveries++; assert(recoveries <= faults) }
  od
}
#define DONE(s) (given[s] == N && acked[s] == N && posted[s] == D)
proctype Watch() { timeout -> assert(up && DONE(L) && DONE(F)) }
init { atomic { posted[L] = D; posted[F] = D; up = true;
#if MUT == 301 || MUT == 307
  credit[L] = W; credit[F] = W;
#endif
  run Side(L); run Side(F); run World(); run Watch() } }
