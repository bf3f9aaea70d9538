"""Tests between two guests whose network loses or delays packets (two.py)."""

from __future__ import annotations

import argparse
import re
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rxe  # noqa: E402
from pair import ADDRESSES, HOSTS, TIMEOUT_CODE, Pair, link  # noqa: E402
from rxe import RAIL, on, verdict  # noqa: E402

DISTURBED_S = 8.0
DISCARD = 9  # a port where nobody listens
LEAST_LOSSES = 3  # packets that must have been sent and lost before the link goes down as well
OUTAGE_S = 2.0
CONNECTED_S = 8.0  # from link up until traffic is under way: two attempts to connect, 2.5 s apart at most, and a start-up


def netem(host: str, rule: str) -> None:
    on(host, f"tc qdisc replace dev {RAIL} root netem {rule}")


def netem_off(host: str) -> tuple[int, int]:
    """Packets that it let pass, and packets that it dropped."""
    said = on(host, f"tc -s qdisc show dev {RAIL}; tc qdisc del dev {RAIL} root", check=False)
    found = re.search(r"netem.*?Sent \d+ bytes (\d+) pkt \(dropped (\d+)", said, re.DOTALL)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def dropped(host: str) -> int:
    """By the rule that is in force."""
    found = re.search(r"dropped (\d+)", on(host, f"tc -s qdisc show dev {RAIL}"))
    return int(found.group(1)) if found else 0


def round_trip_s(address: str, times: int = 5) -> float:
    """The shortest of some on the rail, without RDMA: until a host refuses a connection to a port where nobody listens."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        with socket.socket() as caller:
            caller.settimeout(5.0)
            caller.connect_ex((address, DISCARD))
        took.append(time.monotonic() - began)
    return min(took)


def introduce(options: argparse.Namespace) -> None:
    """Whether the hosts know each other's Ethernet addresses. Where they do not, the device has nobody to send to."""
    macs = [on(host, f"cat /sys/class/net/{RAIL}/address") for host in HOSTS]
    for host, address, mac in zip(HOSTS, reversed(ADDRESSES), reversed(macs)):
        forget(host, address)
        if not options.unresolved:
            on(host, f"ip neigh replace {address} lladdr {mac} nud permanent dev {RAIL}")


def forget(host: str, address: str) -> None:
    on(host, f"ip neigh flush dev {RAIL}; ip neigh del {address} dev {RAIL}", check=False)


def unanswered(options: argparse.Namespace, pair: Pair, before: int) -> bool:
    """Waits until one has asked and no answer came: a device for a connection or, where it has nobody to send to, the kernel
    for the address."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until and pair.running.process.poll() is None:
        time.sleep(0.1)
        if options.unresolved:
            states = [on(host, f"ip neigh show {address} dev {RAIL}") for host, address in zip(HOSTS, reversed(ADDRESSES))]
            asked = any("FAILED" in state or "INCOMPLETE" in state for state in states)
        else:
            asked = packets("sent") - before >= LEAST_LOSSES
        if asked and sum(dropped(host) for host in HOSTS) >= LEAST_LOSSES:
            return True
    return False


def packets(which: str) -> int:
    """Sent or rcvd by the devices of both hosts."""
    return sum(int(on(host, f"cat /sys/class/infiniband/{rxe.DEVICE}/ports/1/hw_counters/{which}_pkts")) for host in HOSTS)


def absent(options: argparse.Namespace) -> int:
    """The ports are active when the job starts, or mend would not use them; but nothing gets through."""
    introduce(options)
    if not options.no_faults:
        for host in HOSTS:
            netem(host, "loss 100%")
    asked, heard = packets("sent"), packets("rcvd")
    lost = 0
    up = came = 0.0
    pair = Pair.steady(options)
    try:
        pair.expect(unanswered(options, pair, asked), "nobody asked in vain")
        if not options.no_faults:
            down = link("a", "down")  # before anything is let through again
            lost = sum(netem_off(host)[1] for host in HOSTS)
        asked, heard = packets("sent") - asked, packets("rcvd") - heard
        if not options.no_faults:
            time.sleep(max(0.0, down + OUTAGE_S - time.monotonic()))
            up = link("a", "up")
        if pair.under_way():
            came = time.monotonic()
    finally:
        for host, address in zip(HOSTS, reversed(ADDRESSES)):
            netem_off(host)
            forget(host, address)
    result, stats = pair.finish(verdict.Demands(np=2, healthy=False))
    pair.expect(lost >= LEAST_LOSSES, f"{lost} packets were lost, want {LEAST_LOSSES}")
    pair.expect(heard == 0, f"the devices heard {heard} packets")
    pair.expect((asked == 0) == options.unresolved, f"the devices sent {asked} packets")
    pair.expect(came - up <= CONNECTED_S, f"traffic began {came - up:.1f} s after the link was up")
    # Nothing was ever connected, so there was nothing to repair.
    pair.expect(verdict.total(stats, "recoveries") == 0, "a connection was repaired that cannot have existed")
    return rxe.report("no network while the job connects", result, pair.wrong,
                      f", asked {asked} times, {lost} packets lost, traffic {came - up:.1f} s after the link was up")


def share_lost(rule: str) -> float:
    """What a rule such as 'loss 10%' drops; 0: nothing."""
    found = re.search(r"loss ([\d.]+)%", rule)
    return float(found.group(1)) / 100 if found else 0.0


def disturbed(options: argparse.Namespace) -> int:
    pair = Pair.steady(options)
    counts = [(0, 0), (0, 0)]
    passed = 0
    before = after = 0.0
    if pair.under_way() and not options.no_faults:
        before = round_trip_s(ADDRESSES[1])
        for host in HOSTS:
            netem(host, options.rule)
        began = rxe.packets_sent()
        time.sleep(DISTURBED_S)
        passed = rxe.packets_sent() - began
        after = round_trip_s(ADDRESSES[1])
        counts = [netem_off(host) for host in HOSTS]
    result, _ = pair.finish(verdict.Demands(np=2, healthy=False))
    pair.expect(passed > 0, "nothing moved while the network was disturbed")
    share = share_lost(options.rule)
    for host, (sent, lost) in zip(HOSTS, counts):
        want = share * (sent + lost)
        pair.expect(share == 0 or lost > 0 and want / 3 <= lost <= want * 3,
                    f"{host} lost {lost} of {sent + lost} packets, want some {want:.0f}")
    if found := re.search(r"delay (\d+)ms", options.rule):
        delay = 2 * int(found.group(1)) / 1000  # on both ways
        pair.expect(before < delay <= after, f"a round trip took {before:.3f} s before and {after:.3f} s after, want {delay} s more")
    return rxe.report(f"netem {options.rule}, retry window {rxe.window_s(TIMEOUT_CODE):.2f} s", result, pair.wrong,
                      f", {passed} packets, passed and lost {counts}, round trip {1000 * before:.0f} ms, disturbed {1000 * after:.0f} ms")
