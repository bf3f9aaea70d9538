/* One repair of refused keys (docs/protocol.md 1.6): a put whose remote key is refused is repaired once by KEYREQ and KEYREP, replayed
 * once, and ends the connection at the second refusal. Run as cases.json says. A change of the rules or of plugin/conn/connection_repair.cpp
 * that changes them changes this file in the same commit.
 * One requester with two puts into one region of the owner, whose key may be revoked by a fault, and which may be wrong for good
 * (-DBAD: the address is outside) or be deregistered (-DGONE). Datagrams: the set of all ever sent, as in recovery2.pml; after `quiet` only
 * what is repeated arrives. The recovery itself is that of recovery2.pml: Fencing, then Replaying or Active.
 * Checked: a put is refused twice at most; what can be repaired is never given up, whatever the link does meanwhile; one revocation costs one
 *   refusal; a region is registered once more at most, however often KEYREQ arrives; both puts end done or failed (no deadlock, -DNP no cycle).
 * -DMUT=n removes or bends one rule:
 * 201 repairs without a bound (with -DBAD)               202 KEYREQ sent once
 * 203 the replay does not wait for the keys              204 a link-like fault uses up the repair
 * 205 no answer for a region that is gone (with -DGONE)  206 every KEYREQ registers the region once more
 * 208 only the refused put gets the new key              209 a link lost during the repair ends the repair
 */
#ifndef MUT
#define MUT 0
#endif
#ifndef FM
#define FM 2          /* link-like faults */
#endif
mtype = { Fencing, Active, Failed };
mtype st = Active;
bool quiet; byte faults;

/* the requester's log: two puts */
byte key[2];          /* generation of the key it carries */
bool repaired[2], done[2];
byte refused[2];
bool submitted[2];
/* the repair under way */
bool pending; byte asked;      /* the generation that was refused */
/* the owner: 0, then 1 */
byte generation; bool known = true; bool revoked;
byte renewals;
/* datagrams ever sent */
bool keyreq[2], keyrep, gone;

#if MUT == 202
#define GOT_KEYREQ(g) (!quiet && keyreq[g])
#else
#define GOT_KEYREQ(g) (keyreq[g] && (!quiet || (pending && asked == (g) && st != Failed)))
#endif
#define GOT_KEYREP (keyrep && (!quiet || (pending && generation == 1 && known && GOT_KEYREQ(asked))))
#define GOT_GONE   (gone && (!quiet || (pending && !known && GOT_KEYREQ(asked))))
#ifdef BAD
#define VALID(g) false
#else
#define VALID(g) (known && !((g) == 0 && revoked))
#endif
#define FIRST (done[0] -> 1 : 0)        /* the log's first put that is not done */
#if MUT == 203
#define MAYPOST (st == Active)
#else
#define MAYPOST (st == Active && !pending)
#endif
#ifdef BAD
#define HOPELESS true
#else
#define HOPELESS (!known)
#endif
inline fail() { assert(HOPELESS); st = Failed }
inline refuse(i) {
  refused[i]++;
  assert(refused[i] <= 2);
  if :: !HOPELESS -> assert(refused[0] + refused[1] <= 1) :: else fi;
  if
#if MUT != 201
  :: repaired[i] -> fail()
#endif
  :: else -> repaired[i] = true; pending = true; asked = key[i]; keyreq[key[i]] = true; st = Fencing
  fi
}
proctype Requester() {
end:  do
  :: d_step { !submitted[0] -> submitted[0] = true }
  :: d_step { submitted[0] && !submitted[1] -> submitted[1] = true; key[1] = key[0] }
  :: d_step { MAYPOST && submitted[FIRST] && !done[FIRST] ->
       if :: VALID(key[FIRST]) -> done[FIRST] = true
          :: else -> refuse(FIRST)
       fi }
  :: d_step { st == Fencing -> st = Active }                            /* recovered; a pending repair holds the replay back */
  :: d_step { st != Failed && pending && GOT_KEYREP ->
       pending = false; key[FIRST] = 1;
#if MUT != 208
       key[1] = 1
#endif
     }
  :: d_step { st != Failed && pending && GOT_GONE -> pending = false; fail() }
  od
}
proctype Owner() {
end:  do
  :: d_step { known && (GOT_KEYREQ(0) || GOT_KEYREQ(1)) && (!keyrep
#if MUT == 206
       || renewals < 3
#endif
       ) ->
       if :: generation == 0 || MUT == 206 -> renewals++; assert(renewals <= 1); generation = 1 :: else fi;
       keyrep = true }
#if MUT != 205
  :: d_step { !known && !gone && (GOT_KEYREQ(0) || GOT_KEYREQ(1)) -> gone = true }
#endif
  od
}
proctype World() {
end:  do
  :: d_step { !quiet && !revoked -> revoked = true }
#ifdef GONE
  :: d_step { !quiet && known -> known = false }
#endif
  :: d_step { !quiet && faults < FM && st == Active -> faults++; st = Fencing;
#if MUT == 204
       repaired[FIRST] = true;
#endif
#if MUT == 209
       pending = false;
#endif
     }
  :: d_step { !quiet -> quiet = true }
  od
}
proctype Watch() { timeout -> assert(st == Failed || (done[0] && done[1])); assert(!HOPELESS || st == Failed || known || (done[0] && done[1])) }
init { atomic { run Requester(); run Owner(); run World(); run Watch() } }
