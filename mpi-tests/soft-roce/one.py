#!/usr/bin/env python3
"""Tests of mend on soft-RoCE that need one guest; runs inside it (cluster.py exec ... -- one.py ...).

  one.py BUILD program NAME [--np N] [--expect COUNTERS] -- ARG...   a program of mpi-tests, its data verified, mend's counters judged
  one.py BUILD broken NAME --ranks 0[,1] [--no-faults] -- ARG...     the same until queue pairs of these ranks were broken twice
  one.py BUILD unit NAME                                             a unit test that can run on any device
  one.py BUILD setup                                                 configure-scripts/soft-roce, and what it finds missing

A queue pair is broken behind mend's back: mend loads libibverbs through a library (breaker.cpp) that moves it to ERR. With
ranks 0,1 both ends of the connection break in the same instant. --no-faults breaks nothing and must fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rxe  # noqa: E402
import setup_script  # noqa: E402
from rxe import jobs, verdict  # noqa: E402

TIMEOUT_CODE = 14  # a peer whose queue pair is gone is noticed after half a second
LEAST_HITS = 2
TOGETHER_S = 0.1  # "in the same instant": the other side cannot have heard of it


def run_program(options: argparse.Namespace) -> int:
    job = rxe.job(options.build, options.np, options.name, options.args, {}, timeout=options.timeout)
    result = jobs.run(job)
    demands = verdict.Demands(np=options.np, quiet=not options.may_warn,
                              moves=tuple(word for word in options.expect.split(",") if word))
    return rxe.report(f"{options.name} np {options.np}", result, rxe.faults(result, demands))


def hits_in(directory: str) -> dict[str, list[float]]:
    """rank -> when its queue pairs were broken, in seconds (breaker.cpp)."""
    return {path.suffix[1:]: [int(line.split()[0]) / 1e9 for line in path.read_text().splitlines()]
            for path in Path(directory).glob("hits.*")}


def missing_hits(ranks: list[str], hits: dict[str, list[float]]) -> list[str]:
    """What has not happened yet: each rank was struck often enough, and once all of them in the same instant."""
    wrong = [f"queue pairs of rank {rank} were broken {len(hits.get(rank, []))} times, want {LEAST_HITS}"
             for rank in ranks if len(hits.get(rank, [])) < LEAST_HITS]
    gaps = [max(min((abs(time - one) for one in hits.get(rank, [])), default=TOGETHER_S) for rank in ranks)
            for time in hits.get(ranks[0], [])]
    if len(ranks) > 1 and min(gaps, default=TOGETHER_S) >= TOGETHER_S:
        wrong.append(f"queue pairs of ranks {' and '.join(ranks)} were never broken in the same instant")
    return wrong


def run_broken(options: argparse.Namespace) -> int:
    """The program goes on until the faults have happened, however fast it is, and a second longer."""
    ranks = options.ranks.split(",")
    with tempfile.TemporaryDirectory(prefix="mend-broken-") as directory:
        env = {"MEND_BREAK_LOG": f"{directory}/hits", "MEND_BREAK_MS": str(options.period),
               "MEND_BREAK_RANKS": "" if options.no_faults else options.ranks}
        mca = {"ib_timeout": TIMEOUT_CODE, "verbs_library": options.build / "lib" / "libmend_breaker.so"}
        enough = Path(directory) / "enough"
        running = jobs.Running(rxe.job(options.build, options.np, options.name, ["--until", str(enough), *options.args], mca,
                                       env=env, timeout=options.timeout))
        while not running.wait(0.2) and running.elapsed() < options.timeout:
            if not missing_hits(ranks, hits_in(directory)):
                enough.touch()
        result = running.finish()
        hits = hits_in(directory)
    wrong = rxe.faults(result, verdict.Demands(np=options.np, healthy=False))
    wrong += missing_hits(ranks, hits)
    wrong += rxe.healed(verdict.ledger(result)[0])
    counts = {rank: len(times) for rank, times in sorted(hits.items())}
    return rxe.report(f"{options.name} np {options.np}, retry window {rxe.window_s(TIMEOUT_CODE):.2f} s", result, wrong,
                      f", broken by rank {counts}")


def run_unit(options: argparse.Namespace) -> int:
    program = options.build / "bin" / options.name
    env = {**os.environ, "MEND_TEST_VERBS_LIBRARY": "libibverbs.so.1"}
    return subprocess.run([program], env=env, timeout=options.timeout, check=False).returncode


def run_setup(_: argparse.Namespace) -> int:
    return setup_script.test()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("build", type=Path)
    add("mode", choices=("program", "broken", "unit", "setup"))
    add("name", nargs="?", default="")
    add("--np", type=int, default=2)
    add("--expect", default="sends,recvs", help="counters that must move")
    add("--may-warn", action="store_true", help="the user may be told that receive buffers are short")
    add("--ranks", default="0", help="whose queue pairs are broken, comma separated")
    add("--period", type=int, default=700, help="milliseconds between two breaks")
    add("--timeout", type=float, default=90.0, help="seconds")
    add("--no-faults", action="store_true", help="break nothing: must fail")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.args = words[at + 1:]
    options.build = options.build.resolve()
    return {"program": run_program, "broken": run_broken, "unit": run_unit, "setup": run_setup}[options.mode](options)


if __name__ == "__main__":
    sys.exit(main())
