#!/usr/bin/env python3
"""Ranks that are silent, but not dead: nobody may take them for dead, so nothing may be recovered.

  silence.py BUILD stopped    one rank is stopped (SIGSTOP) under traffic for longer than all heartbeats may stay away,
                              then goes on: the others noticed, asked its device, and waited
  silence.py BUILD computing  one rank computes without entering MPI while the others wait for it
  silence.py BUILD forking    the same, and it starts other programs meanwhile

With --no-faults nobody is stopped and the test must fail.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flap import stalls_of  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

SILENCE_S = 6  # heartbeats come every 0.5 s, the third that stays away is noticed: four times that


def run_stopped(args: argparse.Namespace) -> tuple[jobs.Result, list[str]]:
    build, wrong = args.build.resolve(), []
    running = jobs.Running(jobs.Job(build=build, np=args.np, program=build / "mpi-tests" / "steady",
                                    args=["--seconds", str(SILENCE_S + 30), "--until", jobs.ENOUGH, "--stalls", "1000"],
                                    timeout=SILENCE_S + 50.0))
    up = running.under_way()
    if not up:
        wrong.append("the job never came up")
    pid = jobs.ranks_of(running.run_id, "steady").get(args.np - 1) if up else None
    began = ended = time.monotonic()
    if pid and not args.no_faults:
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        time.sleep(SILENCE_S)
        ended = time.monotonic()  # before SIGCONT: on a busy machine the job can be over it before this process goes on
        os.kill(pid, signal.SIGCONT)
    running.enough()
    result = running.finish()
    if not any(a < began + 1.0 and b > ended for a, b in stalls_of(result.output)):
        wrong.append("nobody felt that a rank was stopped")
    stats, _ = verdict.ledger(result)
    if verdict.total(stats, "heartbeat_misses") == 0:
        wrong.append("no heartbeat stayed away")
    if verdict.total(stats, "hb_false_alarm") == 0:
        wrong.append("nobody asked the device of the stopped rank")
    return result, wrong


def run_computing(args: argparse.Namespace) -> tuple[jobs.Result, list[str]]:
    build = args.build.resolve()
    words = ["--seconds", str(SILENCE_S), *(["--fork"] if args.mode == "forking" else [])]
    result = jobs.run(jobs.Job(build=build, np=args.np, program=build / "mpi-tests" / "compute", args=words,
                               timeout=SILENCE_S + 40.0))
    return result, [] if result.seconds > SILENCE_S else [f"it took only {result.seconds:.1f} s"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", choices=("stopped", "computing", "forking"))
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--no-faults", action="store_true", help="stop nobody: must fail")
    args = parser.parse_args()
    result, wrong = (run_stopped if args.mode == "stopped" else run_computing)(args)
    # A healthy run: no recovery, nothing replayed, nothing doubled.
    wrong += verdict.faults(result, verdict.Demands(np=args.np))
    stats, _ = verdict.ledger(result)
    counts = " ".join(f"{name}={verdict.total(stats, name)}" for name in
                      ("recoveries", "heartbeat_misses", "hb_false_alarm", "sends"))
    return verdict.conclude("silence", wrong, result, f"{args.mode} np {args.np}, {result.seconds:.1f} s; {counts}")


if __name__ == "__main__":
    sys.exit(main())
