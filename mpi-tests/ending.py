#!/usr/bin/env python3
"""How a job ends when it cannot go on, and how it goes on when it is told to wait for ever.

  ending.py BUILD outage      a link stays down: the cause is named, no rank says it twice, within max_outage_s + 2 s
  ending.py BUILD forever     the same with max_outage_s = 0: the job waits, and ends well once the link is back
  ending.py BUILD unhealable  a completion that no new queue pair would cure: the job ends within 2 s and names it
  ending.py BUILD killed      a rank is killed with SIGKILL: the job ends within 5 s

With --messages mend offers messages only (btl_mend_flags): then Open MPI takes processes from it at once that another BTL
serves, here each rank itself.

Whatever ends, nothing stays: no process after mpirun, no segment after the next job of the fabric. With --no-faults the
job is left alone and the test must fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flap import IB_TIMEOUT, port  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

MAX_OUTAGE_S = 3
MESSAGE_LIMIT_S = 2.0  # from max_outage, or from a fault that is final, to the message
SECONDS = 40  # of traffic, unless something ends it
MPIRUN_S = 1.5  # what mpirun may need to take down the other ranks
KILLED_LIMIT_S = 5.0
FOREVER_DOWN_S = 6.0
# Who ends, why, and what to do: what every message that ends a job must name.
HEADLINE = "has given up on a process"
NAMES = {
    "both processes": r"Local: +\S+, process \S+ Remote: +\S+, process \S+",
    "peer": r"connection \d+ -> \d+ on \S+",
    "rail and port": r"rail \S+:\d+",
    "GID": r"GID [0-9a-f:.]+ \(index \d+\)",
    "queue pair": r"QP \d+",
}


class Hold(threading.Thread):
    """How long this machine let a process wait that wanted to run: for so long the job may have waited as well."""

    NAP_S = 0.01

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.start()

    def run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(self.NAP_S)
            now = time.monotonic()
            self.longest = max(self.longest, now - before - self.NAP_S)
            before = now


class Trial:
    """One job under way, and what is wrong with how it goes."""

    def __init__(self, args: argparse.Namespace, mca: dict[str, object], env: dict[str, str]) -> None:
        mca = mca | ({"flags": "send"} if args.messages else {})
        self.args = args
        self.build = args.build.resolve()
        self.wrong: list[str] = []
        self.struck = 0.0  # when it was, on time.monotonic(); 0: nothing happened
        self.said = 0.0  # when the first message that ends the job was seen
        self.held = 0.0  # how long this process was kept waiting at most while it watched
        self.running = jobs.Running(jobs.Job(
            build=self.build, np=args.np, program=self.build / "mpi-tests" / "steady",
            args=["--seconds", str(SECONDS), "--until", jobs.ENOUGH, *(["--messages"] if args.messages else [])],
            mca=[("btl_mend_ib_timeout", str(IB_TIMEOUT)), *((f"btl_mend_{k}", str(v)) for k, v in mca.items())],
            env=env, timeout=SECONDS + 30.0))
        self.up = self.running.under_way()
        self.expect(self.up, "the job never came up")
        self.hold = Hold()
        if args.no_faults:
            self.running.enough()

    def strike(self) -> bool:
        """Once traffic is under way; False if nothing shall happen."""
        if not self.up or self.args.no_faults:
            return False
        self.struck = time.monotonic()
        return True

    def port(self, state: str) -> None:
        port(self.build, self.running.fabric, state)

    def watch(self, limit: float) -> None:
        """Until mpirun has ended; notes when the first message came."""
        until = time.monotonic() + limit
        running = True
        while running and time.monotonic() < until:
            running = self.running.process.poll() is None
            if not self.said and HEADLINE in self.running.output_path.read_text(errors="replace"):
                self.said = time.monotonic()
            time.sleep(0.02 if running else 0)
        self.ended = time.monotonic()
        self.held = self.hold.longest

    def expect(self, good: bool, otherwise: str) -> None:
        if not good:
            self.wrong.append(otherwise)

    def ends_clean(self) -> jobs.Result:
        """The job is over and leaves no process; the next job of the fabric leaves no segment of it."""
        fabric = self.running.fabric
        result = self.running.finish(keep_files=True)
        self.expect(not result.timed_out, "the job did not end")
        self.expect(result.timed_out or result.returncode != 0, "the job ended with exit status 0")
        self.wrong += [f"process left behind: {words}" for words in result.left_processes]
        after = jobs.run(jobs.Job(build=self.build, np=2, program=self.build / "mpi-tests" / "ring", args=["--quick"],
                                  fabric=fabric))
        self.wrong += [f"the next job: {line}" for line in verdict.faults(after, verdict.Demands(np=2))]
        return result


def messages_by_rank(output: str) -> dict[str, list[str]]:
    """Local process -> its messages, each on one line."""
    found: dict[str, list[str]] = {}
    parts = re.split(r"^mend, the self-healing RDMA transport, has given up", output, flags=re.MULTILINE)
    for part in parts[1:]:
        text = " ".join(re.split(r"^-{20,}$", part, maxsplit=1, flags=re.MULTILINE)[0].split())
        local = re.search(r"Local: +\S+, process (\S+)", text)
        found.setdefault(local.group(1) if local else "unknown", []).append(text)
    return found


def judge_messages(trial: Trial, output: str, **also: str) -> None:
    said = messages_by_rank(output)
    trial.expect(bool(said), "nobody said why the job ended")
    for local, texts in said.items():
        trial.expect(len(texts) == 1, f"{local} said it {len(texts)} times")
        for what, pattern in (NAMES | also).items():
            trial.expect(re.search(pattern, texts[0]) is not None, f"{local} does not name: {what}")


def judge_times(trial: Trial, patience: float) -> None:
    """The message and the end, counted from the fault."""
    if not trial.struck or not trial.said:
        return
    message, end = trial.said - trial.struck, trial.ended - trial.struck
    limit = patience + MESSAGE_LIMIT_S + trial.held
    trial.expect(patience - 0.5 <= message <= limit, f"the message came after {message:.1f} s")
    trial.expect(end <= limit + MPIRUN_S, f"the job ended after {end:.1f} s")
    print(f"the message came {message:.2f} s after the fault, the end of the job {end:.2f} s; this machine held "
          f"{trial.held:.2f} s")


def outage(args: argparse.Namespace) -> tuple[Trial, jobs.Result]:
    trial = Trial(args, {"max_outage_s": MAX_OUTAGE_S}, {})
    if trial.strike():
        trial.port("down")
    trial.watch(30.0)
    result = trial.ends_clean()
    judge_messages(trial, result.output, cause="no connection within max_outage_s",
                   how_long=r"\d\.\d s after the trouble began", advice="Check the link of this port at both ends")
    judge_times(trial, MAX_OUTAGE_S)
    return trial, result


def forever(args: argparse.Namespace) -> tuple[Trial, jobs.Result]:
    trial = Trial(args, {"max_outage_s": 0}, {})
    if trial.strike():
        trial.port("down")
        time.sleep(FOREVER_DOWN_S)
        trial.port("up")
    trial.running.enough()
    result = trial.running.finish()
    trial.wrong += verdict.faults(result, verdict.Demands(np=args.np, healthy=False))
    stats, _ = verdict.ledger(result)
    for rank, one in sorted(stats.items()):
        trial.expect(one["recoveries"] > 0, f"rank {rank} never had to recover")
        longest = one["max_outage_us"] / 1e6
        # A rank that waits for the other one sends nothing that could fail: only heartbeats find out, 2 s later.
        trial.expect(longest >= FOREVER_DOWN_S - 3, f"rank {rank}: the longest outage was {longest:.1f} s")
    print(f"recoveries {verdict.total(stats, 'recoveries')}, replayed {verdict.total(stats, 'replayed')}, longest "
          f"outage {max((one['max_outage_us'] for one in stats.values()), default=0) / 1e6:.1f} s")
    return trial, result


def unhealable(args: argparse.Namespace) -> tuple[Trial, jobs.Result]:
    with tempfile.TemporaryDirectory(prefix="mend-ending-") as directory:
        env = {"SOFTHCA_FAULT_LOG": f"{directory}/faults"}
        if not args.no_faults:
            env["SOFTHCA_FAULTS"] = "status=LOC_LEN_ERR:qp=rc:rank=0:op=send:n=1000"
        trial = Trial(args, {}, env)
        trial.watch(30.0)
        hits = [json.loads(line) for path in Path(directory).glob("faults.*") for line in path.read_text().splitlines()]
    trial.expect(len(hits) == 1, f"the device log shows {len(hits)} faults")
    if hits:
        trial.struck = hits[0]["time"] / 1e9
    result = trial.ends_clean()
    judge_messages(trial, result.output)
    trial.expect(re.search(r"last completion:\s+(IBV_WC_)?LOC_LEN_ERR", result.output) is not None,
                 "the status is not named")
    judge_times(trial, 0.0)
    return trial, result


def killed(args: argparse.Namespace) -> tuple[Trial, jobs.Result]:
    trial = Trial(args, {}, {})
    if trial.strike():
        os.kill(jobs.ranks_of(trial.running.run_id, "steady")[args.np - 1], signal.SIGKILL)
    trial.watch(30.0)
    result = trial.ends_clean()
    took = trial.ended - trial.struck
    trial.expect(took <= KILLED_LIMIT_S + trial.held, f"the job ended {took:.1f} s after a rank was killed")
    print(f"the job ended {took:.2f} s after a rank was killed; this machine held {trial.held:.2f} s")
    return trial, result


MODES = {"outage": outage, "forever": forever, "unhealable": unhealable, "killed": killed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--no-faults", action="store_true", help="leave the job alone: must fail")
    args = parser.parse_args()
    trial, result = MODES[args.mode](args)
    trial.expect(trial.struck > 0, "the injector never struck")
    return verdict.conclude("ending", trial.wrong, result, f"{args.mode} np {args.np}, {result.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
