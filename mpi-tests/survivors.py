#!/usr/bin/env python3
"""A job of four that goes on when a process is lost (Open MPI 5 with --with-ft ulfm): the application is told by
MPI_ERR_PROC_FAILED, shrinks its communicator and goes on among three, with verified data, to a good end.

  survivors.py BUILD killed   a rank is killed: the runtime tells, mend says nothing and waits for nothing
  survivors.py BUILD late     the same while the launcher stands still, so that it hears of it in two ways at once
  survivors.py BUILD cut      no packet gets to or from a rank any more: mend gives it up and names it, and the others do
                              not fall with it
  survivors.py BUILD listen   the same while rank 0 only receives: it has no endpoint for who is lost
  survivors.py BUILD device   the only device of a rank dies: that rank reports itself and ends, nobody else is named

With --no-faults nobody is lost and the test must fail.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ending import HEADLINE  # noqa: E402
from flap import IB_TIMEOUT, softhcactl  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

NP = 4
LOST = 2
MAX_OUTAGE_S = 3
GO_ON_S = 2  # traffic among the survivors
# From the loss to the end, beyond what the survivors do: to be told, to agree, to finalize.
KILLED_S = 10.0
CUT_S = MAX_OUTAGE_S + 8.0
LIMITS = {"cut": CUT_S, "listen": CUT_S}  # the others: KILLED_S
ITSELF = "has given up: the device of this"
# When 5.0's launcher notices a process' end before its closed connection, it goes on counting that process, and its barrier in
# MPI_Finalize never ends. With fault tolerance MPI_Finalize has one among the living before, so that one is left out.
LIVING = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]


def kill(running: jobs.Running) -> None:
    os.kill(jobs.ranks_of(running.run_id, "survivors")[LOST], signal.SIGKILL)


def confine(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def kill_behind(running: jobs.Running) -> None:
    """Without LIVING's parameter 4 of 8 such jobs hung, over Open MPI's shared memory as over mend."""
    launcher = running.process.pid
    cores = os.sched_getaffinity(0)
    confine(launcher, {min(cores)})
    os.kill(launcher, signal.SIGSTOP)
    kill(running)
    time.sleep(0.3)
    os.kill(launcher, signal.SIGCONT)
    time.sleep(0.3)
    confine(launcher, cores)


def strike(args: argparse.Namespace, running: jobs.Running) -> None:
    if args.mode == "killed":
        kill(running)
    elif args.mode == "late":
        kill_behind(running)
    else:
        rules = f"device-fatal:rank={LOST}" if args.mode == "device" else f"drop:peer={LOST}:times=all; drop:rank={LOST}:times=all"
        softhcactl(args.build, running.fabric, "fault", "add", rules)


def judge(args: argparse.Namespace, result: jobs.Result, took: float) -> list[str]:
    wrong = []
    if result.timed_out or result.returncode != 0:
        wrong.append("still running" if result.timed_out else f"exit status {result.returncode}")
    if f"survivors {NP - 1}" not in result.output or not verdict.OK_LINE.search(result.output):
        wrong.append("the survivors did not get to their end")
    wrong += [f"process left behind: {words}" for words in result.left_processes]
    stats, bad = verdict.ledger(result)
    wrong += bad
    if sorted(stats) != [rank for rank in range(NP) if rank != LOST]:
        wrong.append(f"statistics of ranks {sorted(stats)}")
    wrong += [f"rank {rank}: dup_rx is {one['dup_rx']}" for rank, one in stats.items() if one["dup_rx"]]
    limit = GO_ON_S + LIMITS.get(args.mode, KILLED_S)
    if took > limit:
        wrong.append(f"the end came {took:.1f} s after the loss")
    named = re.findall(r"Remote: +\S+, process \S+,(\d+)\]", result.output)
    cut = args.mode in ("cut", "listen")
    if not cut and HEADLINE in result.output:
        wrong.append("mend gave up on somebody although the runtime knew")
    if cut and str(LOST) not in named:
        wrong.append(f"nobody named rank {LOST} as given up: {named}")
    itself = re.findall(ITSELF + r".*?Local: +\S+, process \S+,(\d+)\]", result.output, re.DOTALL)
    if itself != ([str(LOST)] if args.mode == "device" else []):
        wrong.append(f"ranks that gave up on themselves: {itself}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", choices=("killed", "late", "cut", "listen", "device"))
    parser.add_argument("--no-faults", action="store_true", help="leave the job alone: must fail")
    args = parser.parse_args()
    args.build = args.build.resolve()
    words = ["--seconds", str(GO_ON_S), "--patience", "2" if args.no_faults else "70"]
    words += ["--listen"] if args.mode == "listen" else []
    # A rank that is killed is not waited for at all, one that is cut off for so long, and so is one that aborts because nobody
    # was lost: of that the runtime does not tell.
    patience = MAX_OUTAGE_S if args.mode in LIMITS or args.no_faults else 50
    limit = 40.0 if args.no_faults else 90.0  # 5.0's launcher may hang when several ranks abort
    running = jobs.Running(jobs.Job(
        build=args.build, np=NP, program=args.build / "mpi-tests" / "survivors", args=words, timeout=limit,
        mca=[("btl_mend_ib_timeout", str(IB_TIMEOUT)), ("btl_mend_max_outage_s", str(patience))],
        mpirun_args=LIVING))
    wrong = [] if running.under_way() else ["the job never came up"]
    struck = time.monotonic()
    if not args.no_faults and not wrong:
        strike(args, running)
    result = running.finish()
    took = time.monotonic() - struck
    wrong += judge(args, result, took)
    return verdict.conclude("survivors", wrong, result,
                            f"{args.mode}, the end came {took:.1f} s after the loss, {GO_ON_S} s of it traffic")


if __name__ == "__main__":
    sys.exit(main())
