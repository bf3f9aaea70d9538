#!/usr/bin/env python3
"""Tests of mend between two guests; runs in guest a (cluster.py exec --guests 2 ... -- two.py ...). Rank 0 is on a, rank 1 on b.

  two.py BUILD connect               verified traffic; the path MTU is the smaller one, the GID the routable one
  two.py BUILD windows               puts, gets and atomics on windows of both hosts
  two.py BUILD down --host a|b --seconds S [--times N --gap S]
                                     the link of that host goes down under traffic: a port event there, silence here
  two.py BUILD interrupted --host a|b
                                     it goes down a second time while mend repairs what the first time broke
  two.py BUILD absent [--unresolved] nothing gets through while the job connects, then the link goes down as well;
                                     unresolved: not even the Ethernet address of the other host is known
  two.py BUILD netem --rule RULE     tc netem on both hosts, such as 'loss 10%' or 'delay 50ms'
  two.py BUILD finalize --host a|b --word cut|parting
                                     the link goes down when the ranks finalize, with a message under way or without
  two.py BUILD gid                   an address is removed and added again elsewhere in the GID table
  two.py BUILD stopped               the rank of b is stopped for 10 s
  two.py BUILD killed                the rank of b is killed

Every test states the time for which the device itself repeats packets (the retry window); what is to be healed lasts
longer. --no-faults leaves the links alone, and the tests of links must fail.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rxe  # noqa: E402
from lossy import absent, disturbed, interrupted  # noqa: E402
from pair import (ADDRESSES, BEYOND_S, HOSTS, SETTLE_S, SHARED, STALL_MS, TIMEOUT_CODE, Pair, break_link,  # noqa: E402
                  link, pids_of, take_down)
from rxe import IPV4_MAPPED, RAIL, on, verdict  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flap import stalls_of, standstill  # noqa: E402

ALIKE_S = 2.5  # both ends tell about the same length of an outage; one has to find out by itself
STOPPED_S = 10.0
KILLED_S = 5.0  # unless a test asks for another limit (--within)
OTHERS = 6  # addresses at most that are added until one takes the place of another
FINALIZE_S = 6.0  # the link is down for so long while the ranks finalize
PARTED_S = 12.0  # a job whose ranks cannot even say goodbye is over by then


def connect(options: argparse.Namespace) -> int:
    # A link-local GID reaches nobody once IPv6 is off, and packets of 4096 bytes do not fit where 1500 do.
    on("b", f"sysctl -qw net.ipv6.conf.{RAIL}.disable_ipv6=1 && ip link set {RAIL} mtu 1500")
    try:
        pair = Pair(options, "ring", ["--quick"])
        sizes = [on(host, "ibv_devinfo -d rxe0 | sed -n 's/.*active_mtu:[[:space:]]*\\([0-9]*\\).*/\\1/p'") for host in HOSTS]
        pair.expect(sizes == ["4096", "1024"], f"the ports have MTUs of {sizes}")
        result, stats = pair.finish(verdict.Demands(np=2, moves=("sends", "recvs")))
    finally:
        on("b", f"sysctl -qw net.ipv6.conf.{RAIL}.disable_ipv6=0 && ip link set {RAIL} mtu 4200")
    rails = [rail for _, one in sorted(stats.items()) for rail in one["rails"]]
    agreed = [rail["path_mtu"] for rail in rails]
    pair.expect(agreed == [1024, 1024], f"the queue pairs have path MTUs of {agreed}, want the smaller one")
    gids = [rail["gid"] for rail in rails]
    pair.expect(gids == [f"::ffff:{address}" for address in ADDRESSES], f"the GIDs are {gids}, want those of {ADDRESSES}")
    return rxe.report("connect", result, pair.wrong, f", MTUs {sizes}, path MTUs {agreed}, GIDs {gids}")


def windows(options: argparse.Namespace) -> int:
    pair = Pair(options, "rma", ["--quick"])
    result, _ = pair.finish(verdict.Demands(np=2, moves=("puts", "gets", "atomics")))
    return rxe.report("windows", result, pair.wrong)


def down(options: argparse.Namespace) -> int:
    lasts = options.times * (options.seconds + options.gap)
    pair = Pair.steady(options, "--stalls", str(STALL_MS), timeout=lasts + 90.0)
    flaps = []
    if pair.under_way():
        time.sleep(SETTLE_S)
        for _ in range(0 if options.no_faults else options.times):
            flaps.append(break_link(pair, options.host, options.seconds))
            time.sleep(options.gap)
        # A job that still stands still does not end before it has gone on, however late enough() comes.
        pair.running.wait(min(options.beyond, BEYOND_S) + 3.0)
    result, stats = pair.finish(verdict.Demands(np=2, healthy=False))
    window = rxe.window_s(TIMEOUT_CODE)
    pair.expect(bool(flaps), "no link went down")
    pair.expect(options.seconds > window, "a link that is down for less than the retry window breaks nothing")
    pair.wrong += rxe.healed(stats)
    costs = []
    if len(flaps) == 1:
        told = rxe.outages(stats)
        pair.expect(max(told) - min(told) <= ALIKE_S, f"the ranks tell of outages of {told} s")
    if flaps:
        # Of several in quick succession only the last one is certain to be felt on its own.
        stall = standstill(flaps[-1], stalls_of(result.output))
        if pair.expect(stall is not None, "the application felt nothing"):
            costs = [stall[1] - flaps[-1][1]]
            pair.expect(costs[0] <= options.beyond, f"traffic went on {costs[0]:.1f} s after the link was up")
    return rxe.report(f"link of {options.host} down {options.times} x {options.seconds} s, retry window {window:.2f} s", result,
                      pair.wrong, f", went on {', '.join(f'{cost:.2f}' for cost in costs)} s after the link was up")


def finalize(options: argparse.Namespace) -> int:
    """The link goes down when the ranks are about to finalize. cut: rank 0 has said something by then that only arrives when
    the link is up again. parting: there is nothing left but to say goodbye, and the link stays down."""
    go = SHARED / f"go-{time.time_ns()}"
    pair = Pair(options, "lastword", [options.word, str(go)], timeout=90.0)
    went_down = went_up = ended = 0.0
    if pair.hears("lastword finalizing"):
        went_down = time.monotonic()
        if not options.no_faults:
            went_down = take_down(pair, options.host)
        go.touch()
        # Whether it is over is asked before the link is told to come up, which takes a while in an emulated guest.
        over = pair.running.wait(FINALIZE_S if options.word == "cut" else PARTED_S)
        ended = time.monotonic()
        went_up = link(options.host, "up")
        if options.word == "cut":
            pair.expect(not over, "the job was over before the link was up")
        else:
            pair.expect(over, f"the job was not over {PARTED_S:.0f} s after the link was down")
        if not over:
            pair.running.wait(60.0)
            ended = time.monotonic()
    result, stats = pair.finish(verdict.Demands(np=2, healthy=False))
    go.unlink(missing_ok=True)
    pair.expect(went_down > 0 and not options.no_faults, "no link went down")
    if options.word == "cut":
        pair.expect(ended - went_up <= BEYOND_S + 3.0, f"the job ended {ended - went_up:.1f} s after the link was up")
        pair.wrong += rxe.healed(stats)
    return rxe.report(f"link of {options.host} down in finalize, {options.word}", result, pair.wrong,
                      f", ended {ended - went_down:.1f} s after the link was down")


def gid_index(host: str, address: str) -> int:
    """Where an IPv4 address is in the GID table; -1: nowhere."""
    pattern = "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" % tuple(map(int, address.split(".")))
    found = on(host, f"grep -l {pattern} /sys/class/infiniband/{rxe.DEVICE}/ports/1/gids/* || true")
    return min((int(path.rpartition("/")[2]) for path in found.splitlines()), default=-1)


def gid_at(host: str, index: int) -> str:
    return on(host, f"cat /sys/class/infiniband/{rxe.DEVICE}/ports/1/gids/{index} 2>/dev/null || true")


def occupy(host: str, index: int) -> list[str]:
    """Gives the host other addresses until one of them has this place in the GID table. The kernel keeps the place of a
    removed address until the last queue pair lets go of it, so the first ones may go elsewhere."""
    added = []
    for number in range(1, OTHERS + 1):
        added.append(f"198.18.{70 + number}.2/24")
        on(host, f"ip addr add {added[-1]} dev {RAIL}")
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            if IPV4_MAPPED in gid_at(host, index):
                return added
            time.sleep(0.1)
    return added


def gid(options: argparse.Namespace) -> int:
    """The address of b goes away for a second, others come, one of them takes its place in the GID table, and when it has
    come back elsewhere the others go: mend has to find a GID three times, in the end the old one at another index."""
    address = ADDRESSES[1]
    on("b", f"sysctl -qw net.ipv6.conf.{RAIL}.disable_ipv6=1")  # no link-local GID to fall back on
    pair = Pair.steady(options, "--stalls", str(STALL_MS))
    was = gid_index("b", address)
    gone = went = 0.0
    if pair.under_way() and not options.no_faults:
        time.sleep(SETTLE_S)
        on("b", f"ip addr del {address}/24 dev {RAIL}")
        time.sleep(1.0)
        gone = time.monotonic()  # b has no address now, however long `ip` took; soon it has others, and traffic goes on
        others = occupy("b", was)
        time.sleep(SETTLE_S)
        on("b", f"ip addr add {address}/24 dev {RAIL}")
        time.sleep(SETTLE_S)
        went = time.monotonic()
        on("b", "; ".join(f"ip addr del {other} dev {RAIL}" for other in others))
        pair.running.wait(BEYOND_S + 3.0)
    now = gid_index("b", address)
    result, stats = pair.finish(verdict.Demands(np=2, healthy=False))
    on("b", f"sysctl -qw net.ipv6.conf.{RAIL}.disable_ipv6=0")
    pair.expect(now not in (-1, was), f"the GID was at index {was} and is at {now}")
    known = [(rail["gid"], rail["gid_index"]) for rail in stats.get(1, {}).get("rails", [])]
    pair.expect(known == [(f"::ffff:{address}", now)], f"mend uses the GID {known} on b")
    # What was under way may have arrived before the fence, so nothing need be replayed.
    pair.wrong += [f"rank {rank} recovered {one['recoveries']} times, want 2" for rank, one in sorted(stats.items())
                   if one["recoveries"] < 2]
    stalls = stalls_of(result.output)
    pair.expect(any(first < gone < last for first, last in stalls), "the application felt nothing")
    late = [last - went for first, last in stalls if last > went]
    pair.expect(all(cost <= options.beyond for cost in late), f"traffic went on {late} s after the last change")
    return rxe.report(f"GID index {was} -> {now}", result, pair.wrong, f", stalls {stalls}")


def stopped(options: argparse.Namespace) -> int:
    pair = Pair.steady(options, "--stalls", "1000")
    began = ended = 0.0
    if pair.under_way() and not options.no_faults:
        time.sleep(SETTLE_S)
        pids = on("b", pids_of("steady")).split()
        pair.expect(len(pids) == 1, f"processes on b: {pids}")
        on("b", f"kill -STOP {' '.join(pids)}")
        began = time.monotonic()
        time.sleep(STOPPED_S)
        ended = time.monotonic()  # before, because the rank goes on before that is known here
        on("b", f"kill -CONT {' '.join(pids)}")
        pair.running.wait(4.0)
    result, stats = pair.finish(verdict.Demands(np=2))
    pair.expect(began > 0 and any(first < began + 1.0 and last > ended for first, last in stalls_of(result.output)),
                "nobody felt that a rank was stopped")
    misses = verdict.total(stats, "heartbeat_misses")
    pair.expect(misses > 0, "no heartbeat stayed away")
    return rxe.report("rank stopped", result, pair.wrong, f", {misses} heartbeats stayed away")


def killed(options: argparse.Namespace) -> int:
    pair = Pair.steady(options)
    struck = 0.0
    if pair.under_way():
        time.sleep(SETTLE_S)
        on("b", f"kill -KILL $({pids_of('steady')})")
        struck = time.monotonic()
        pair.running.wait(60.0)  # a job that hangs is judged below
    took = time.monotonic() - struck
    result = pair.running.finish()
    pair.expect(not result.timed_out, "the job did not end")
    pair.expect(result.returncode != 0, "the job ended with exit status 0")
    pair.expect(took <= options.within, f"the job ended {took:.1f} s after a rank was killed")
    pair.expect("signal 9" in result.output, "nobody said that a process was killed")
    left = on("b", pids_of("steady"))
    pair.expect(not left and not result.left_processes, f"left behind: {left} {result.left_processes}")
    return rxe.report("rank killed", result, pair.wrong, f", ended after {took:.1f} s")


MODES = {"connect": connect, "down": down, "absent": absent, "netem": disturbed, "finalize": finalize, "gid": gid,
         "interrupted": interrupted, "stopped": stopped, "killed": killed, "windows": windows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("build", type=Path)
    add("mode", choices=sorted(MODES))
    add("--host", choices=HOSTS, default="b")
    add("--seconds", type=float, default=5.0)
    add("--times", type=int, default=1)
    add("--gap", type=float, default=1.0, help="seconds between two outages")
    add("--beyond", type=float, default=BEYOND_S, help="seconds at most from link up until traffic goes on")
    add("--within", type=float, default=KILLED_S, help="seconds at most from the death of a rank to the end of the job")
    add("--rule", default="loss 1%")
    add("--word", choices=("cut", "parting"), default="cut")
    add("--unresolved", action="store_true")
    add("--no-faults", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return MODES[options.mode](options)


if __name__ == "__main__":
    sys.exit(main())
