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
from pair import ADDRESSES, HOSTS, SETTLE_S, STALL_MS, TIMEOUT_CODE, Pair, link, take_down  # noqa: E402
from rxe import RAIL, on, verdict  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flap import stalls_of, standstill  # noqa: E402

DISTURBED_S = 8.0
STILL_S = DISTURBED_S / 2  # at most, within one round of messages
DISCARD = 9  # a port where nobody listens
LEAST_LOSSES = 3  # packets that must have been sent and lost before the link goes down as well
OUTAGE_S = 2.0
ROUNDS = 3  # a repair without anything to replay cannot be interrupted: then once more
# UDP to RoCE's port whose first byte is the opcode of a reliable connection. Datagrams, such as mend's control messages,
# have another one.
CONNECTED_PACKETS = "match ip protocol 17 0xff match u16 4791 0xffff at 22 match u8 0 0xe0 at 28"
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
            down = take_down(pair, "a")  # before anything is let through again
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


def deafen(host: str) -> None:
    """What the other one sends on a connection is not heard any more; control messages are. Dropped where it arrives:
    the device that sends it must not be told."""
    on(host, f"tc qdisc add dev {RAIL} clsact && "
             f"tc filter add dev {RAIL} ingress protocol ip u32 {CONNECTED_PACKETS} action drop")


def undeafen(host: str) -> int:
    """How many packets were not heard."""
    said = on(host, f"tc -s filter show dev {RAIL} ingress; tc qdisc del dev {RAIL} clsact", check=False)
    return sum(map(int, re.findall(r"dropped (\d+)", said)))


def interrupted(options: argparse.Namespace) -> int:
    """The link goes down a second time before mend has repaired what the first time broke: both sides have a new queue pair
    by then and replay what is missing, which cannot come to an end because nothing on a connection gets through."""
    pair = Pair.steady(options, "--stalls", str(STALL_MS), timeout=180.0, mpirun_args=("--mca", "btl_base_verbose", "100"))
    flap = (0.0, 0.0)
    rounds = lost = 0
    if pair.under_way():
        while rounds < ROUNDS and not options.no_faults and not pair.wrong and pair.said("Replaying -> Fencing") == 0:
            rounds += 1
            time.sleep(SETTLE_S)
            began = pair.said("-> Replaying")
            down = take_down(pair, options.host)
            for host in HOSTS:
                deafen(host)
            time.sleep(max(0.0, down + OUTAGE_S - time.monotonic()))
            link(options.host, "up")
            pair.hears("-> Replaying", began + 2, limit=20.0)  # on both sides
            down = take_down(pair, options.host)
            lost += sum(undeafen(host) for host in HOSTS)
            time.sleep(max(0.0, down + OUTAGE_S - time.monotonic()))
            flap = (down, link(options.host, "up"))
        pair.running.wait(options.beyond + 3.0)
    result, stats = pair.finish(verdict.Demands(np=2, healthy=False, quiet=False))
    pair.expect(lost > 0, "no packet of a replay was lost")
    # The log says which attempt it was, the statistics that there was one.
    pair.expect("Replaying -> Fencing" in result.output, "no rank says that its replay was interrupted")
    given_up = rxe.abandoned(stats)
    pair.expect(given_up > 0, "every queue pair that was made for a repair repaired something")
    pair.wrong += rxe.healed(stats)
    stall = standstill(flap, stalls_of(result.output))
    cost = stall[1] - flap[1] if stall else float("inf")
    pair.expect(cost <= options.beyond, f"traffic went on {cost:.1f} s after the link was up")
    return rxe.report(f"link of {options.host} down again during recovery", result, pair.wrong,
                      f", {given_up} attempts abandoned in {rounds} round(s), {lost} packets lost, "
                      f"went on {cost:.2f} s after the link was up")


def share_lost(rule: str) -> float:
    """What a rule such as 'loss 10%' drops; 0: nothing."""
    found = re.search(r"loss ([\d.]+)%", rule)
    return float(found.group(1)) / 100 if found else 0.0


def disturbed(options: argparse.Namespace) -> int:
    pair = Pair.steady(options, "--stalls", str(STALL_MS))
    counts = [(0, 0), (0, 0)]
    before = after = 0.0
    began = ended = 0.0
    if pair.under_way() and not options.no_faults:
        before = round_trip_s(ADDRESSES[1])
        for host in HOSTS:
            netem(host, options.rule)
        began = time.monotonic()
        time.sleep(DISTURBED_S)
        ended = time.monotonic()
        after = round_trip_s(ADDRESSES[1])
        counts = [netem_off(host) for host in HOSTS]
    result, _ = pair.finish(verdict.Demands(np=2, healthy=False))
    # Packets are no proof: a device that repeats the same one all the time sends many.
    still = [min(last, ended) - max(first, began) for first, last in stalls_of(result.output)]
    longest = max(still, default=0.0)
    pair.expect(ended > began, "the network was not disturbed")
    pair.expect(longest <= STILL_S, f"the application stood still for {longest:.1f} of {DISTURBED_S:.0f} s")
    share = share_lost(options.rule)
    for host, (sent, lost) in zip(HOSTS, counts):
        want = share * (sent + lost)
        pair.expect(share == 0 or lost > 0 and want / 3 <= lost <= want * 3,
                    f"{host} lost {lost} of {sent + lost} packets, want some {want:.0f}")
    if found := re.search(r"delay (\d+)ms", options.rule):
        delay = 2 * int(found.group(1)) / 1000  # on both ways
        pair.expect(before < delay <= after,
                    f"a round trip took {before:.3f} s before and {after:.3f} s after, want {delay} s more")
    return rxe.report(f"netem {options.rule}, retry window {rxe.window_s(TIMEOUT_CODE):.2f} s", result, pair.wrong,
                      f", stood still for {longest:.1f} of {DISTURBED_S:.0f} s, passed and lost {counts}, "
                      f"round trip {1000 * before:.0f} ms, disturbed {1000 * after:.0f} ms")
