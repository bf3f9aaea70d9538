"""Judges a finished job: did it pass, and did mend carry it? A test that cannot tell mend from another transport proves
nothing, so the statistics of every rank are read and weighed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.job import Result

OK_LINE = re.compile(r"^mpi-test ok payload=(\d+)$", re.MULTILINE)
NOISE = ("runtime error:", "AddressSanitizer", "ThreadSanitizer", "LeakSanitizer")
SHOWN = 6000  # characters of a failed job's output
COUNTERS = ("sends", "recvs", "puts", "gets", "atomics")


@dataclass
class Demands:
    """What a run has to show besides exit status 0."""

    np: int
    mend: bool = True
    ok_line: bool = True  # the program prints "mpi-test ok"
    moves: tuple[str, ...] = ()  # counters that must not be 0
    still: tuple[str, ...] = ()  # counters that must be 0
    idle: bool = False  # the program sends nothing between ranks of its own
    more_ranks: bool = False  # the program spawns a job, which writes statistics of its own
    rails: int = 1  # that every rank must have
    hosts: int = 0  # different ones that the ranks must see themselves on; 0: any number
    striped: bool = False  # large contiguous messages went over more than one of them
    healthy: bool = True  # nothing broke on purpose, so nothing may have been healed
    quiet: bool = True  # mend says nothing at verbosity 0
    bounds: dict[str, int] = field(default_factory=dict)  # counter -> highest legal sum


def ledger(result: Result) -> tuple[dict[int, dict], list[str]]:
    """rank -> statistics, and what is wrong with the files."""
    return parsed(result.stats_text, lambda rank: rank)


def spawned(result: Result) -> tuple[dict[str, dict], list[str]]:
    """The same of spawned jobs: "job.rank" -> statistics."""
    return parsed(result.spawned_text, lambda name: int(name.rpartition(".")[2]))


def parsed(texts: dict, rank_of: Callable) -> tuple[dict, list[str]]:
    stats, wrong = {}, []
    for rank, text in texts.items():
        lines = text.splitlines()
        try:
            if len(lines) != 1:
                raise ValueError(f"{len(lines)} lines")
            stats[rank] = json.loads(lines[0])
            if stats[rank]["rank"] != rank_of(rank):
                raise ValueError(f"it says rank {stats[rank]['rank']}")
        except (ValueError, KeyError, TypeError) as error:
            wrong.append(f"statistics of rank {rank} are not one JSON line: {error}")
    return stats, wrong


def total(stats: dict[int, dict], name: str) -> int:
    return sum(int(one.get(name, 0)) for one in stats.values())


def payload_gap(stats: dict[int, dict], payload: int) -> str | None:
    """None if mend moved at least `payload` bytes. A put counts at its origin only, a get likewise, a send on both
    sides; so one of the two sums alone is conclusive unless the job used puts and gets."""
    sent, received = total(stats, "bytes_sent"), total(stats, "bytes_received")
    moved = sent + received
    if total(stats, "gets") == 0:
        moved = sent
    elif total(stats, "puts") == 0:
        moved = received
    if moved >= payload:
        return None
    return f"the program moved {payload} bytes, mend only {moved} (sent {sent}, received {received})"


def mend_faults(result: Result, demands: Demands, payload: int) -> list[str]:
    stats, wrong = ledger(result)
    missing = sorted(set(range(demands.np)) - set(stats))
    if missing:
        wrong.append(f"no statistics from rank(s) {missing}: mend was not in use there")
        return wrong
    children, wrong_too = spawned(result)
    wrong += wrong_too
    if bool(children) != (demands.more_ranks and "spawn: refused" not in result.output):
        wrong.append(f"statistics of {len(children)} spawned processes")
    stats |= children
    if not demands.idle and sum(total(stats, name) for name in ("sends", "puts", "gets")) == 0:
        wrong.append("mend moved nothing")
    wrong += [f"{name} is 0" for name in demands.moves if total(stats, name) == 0]
    wrong += [f"{name} is {total(stats, name)}" for name in demands.still if total(stats, name)]
    if gap := payload_gap(stats, payload):
        wrong.append(gap)
    if total(stats, "sends") != total(stats, "recvs"):
        wrong.append(f"{total(stats, 'sends')} messages were sent, {total(stats, 'recvs')} received")
    for name in ("dup_rx", "srq_lost"):
        wrong += [f"rank {rank}: {name} is {one.get(name)}"
                  for rank, one in stats.items() if one.get(name) != 0]
    if demands.healthy:
        wrong += [f"{name} is {total(stats, name)} although nothing broke"
                  for name in ("recoveries", "replayed", "in_doubt", "failovers")
                  if total(stats, name)]
    named = {one.get("host") for one in stats.values()}
    if demands.hosts and len(named) != demands.hosts:
        wrong.append(f"the ranks were on {len(named)} host(s), want {demands.hosts}")
    for rank, one in stats.items():
        used = [rail for rail in one.get("rails", []) if rail["bytes_sent"] or
                rail["bytes_received"]]
        if len(one.get("rails", [])) < demands.rails:
            wrong.append(f"rank {rank}: {len(one.get('rails', []))} rail(s), want {demands.rails}")
        if demands.striped and len(used) < 2:
            wrong.append(f"rank {rank}: {len(used)} rail(s) carried bytes, want 2")
        if one.get("srq_depth", 0) < 2 * one.get("qps_live_max", 0):
            wrong.append(f"rank {rank}: {one.get('srq_depth')} receive buffers for "
                         f"{one.get('qps_live_max')} live queue pairs, want two for each")
    wrong += [f"{name} is {total(stats, name)}, legal is {bound}"
              for name, bound in demands.bounds.items() if total(stats, name) > bound]
    return wrong


def faults(result: Result, demands: Demands) -> list[str]:
    """Everything that is wrong with the run; empty if it passed."""
    wrong = []
    if result.timed_out:
        wrong.append(f"still running after {result.seconds:.0f} s")
    elif result.returncode != 0:
        wrong.append(f"exit status {result.returncode}")
    wrong += [f"process left behind: {words}" for words in result.left_processes]
    if not result.timed_out and result.returncode == 0:
        wrong += [f"file left behind: {name}" for name in result.left_files]
    wrong += [f"the output contains '{word}'" for word in NOISE if word in result.output]
    ok = OK_LINE.search(result.output)
    if demands.ok_line and not ok:
        wrong.append("the program did not report success")
    if demands.mend and not result.timed_out and result.returncode == 0:
        wrong += mend_faults(result, demands, int(ok.group(1)) if ok else 0)
        if demands.quiet and (said := [line for line in result.output.splitlines()
                                       if re.search(r"\bmend\b|softhca", line)]):
            wrong.append(f"mend is not silent: {said[0]}")
    return wrong


def summary(result: Result) -> str:
    stats, _ = ledger(result)
    counts = " ".join(f"{name}={total(stats, name)}" for name in (*COUNTERS, "bytes_sent",
                                                                  "bytes_received", "qps_created",
                                                                  "srq_depth"))
    return f"{result.seconds:.1f} s {counts}" if stats else f"{result.seconds:.1f} s"


def conclude(test: str, wrong: list[str], result: Result, said: str) -> int:
    """Prints the verdict of a test, and how the output of its job ended if it failed; the exit status."""
    if wrong:
        print(result.output[-SHOWN:])
    for line in wrong:
        print(f"{test} FAILED: {line}")
    print(f"{test} {'FAILED' if wrong else 'ok'}: {said}")
    return 1 if wrong else 0
