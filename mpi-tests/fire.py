#!/usr/bin/env python3
"""Runs one MPI program under fire: while it checks its data, queue pairs die and ports flap by a standing schedule.

The program must end as it does without faults (it checks every byte itself). The device's own log of what it did
(SOFTHCA_FAULT_LOG) is compared with what mend says it healed: faults without recoveries, recoveries without faults, a
lost, doubled or unhealed message all fail the test. So does a run in which nothing broke (--no-faults shows that).

  fire.py --build build/release --np 2 --program ring [--schedule storm] [--seed N] [--least 3] -- --quick
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import hosts  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402
from run_mpi import program_path, shorten  # noqa: E402

# 4.096 us x 2^8 x (7 + 1): the device gives up on a request after 8 ms, so a port that is down for longer breaks QPs.
IB_TIMEOUT = 8
SCHEDULES = {
    # What a bad day looks like, for programs that run for seconds.
    "standing": "kill-qp:qp=rc:period=200ms:jitter=0.5:side=random; kill-qp:qp=rc:n=20/150:limit=12; "
                "port-down:period=3s:jitter=0.5:for=60ms",
    # The same for the short runs of the quick programs, which are over before a slower schedule has struck three times.
    # A queue pair that dies idle has nothing to replay: the rules by count strike requests.
    "storm": "kill-qp:qp=rc:period=25ms:jitter=0.5:side=random; kill-qp:qp=rc:n=15/150:limit=12",
    # Both halves of a connection at once: whose recovery is it?
    "both": "kill-qp:qp=rc:period=40ms:jitter=0.5:side=both; kill-qp:qp=rc:n=15/150:side=both:limit=12",
    # Only the other side notices, and not from an event.
    "onesided": "kill-qp:qp=rc:period=40ms:jitter=0.5:side=peer:event=no; "
                "kill-qp:qp=rc:n=15/150:side=peer:event=no:limit=12",
    # A request was executed, its sender does not know: what is repeated must not be delivered again. (Not by time: a
    # period shorter than the back-off would strike the first request of every new queue pair.)
    "lost_acks": "drop-ack:qp=rc:p=0.02",
    # A completion of the control queue pair that never comes: healing must not end with it.
    "lost_control": "kill-qp:qp=rc:period=300ms:jitter=0.5:side=random; kill-qp:qp=rc:n=15/300:limit=12; no-cqe:qp=ud:n=8:rank=1",
    # A port that was down for less time than it takes to hear of it.
    "false_alarm": "event=PORT_ERR:rank=0:at=200ms:limit=1; kill-qp:qp=rc:n=15/150:side=both:limit=12",
    # By count: the first messages of each connection, then now and then; drops end in RETRY_EXC_ERR.
    "first": "kill-qp:qp=rc:n=1/150:side=random; drop:qp=rc:n=40/400:times=all",
    # The handshake is hit too: connecting, and recovering, takes several attempts.
    "handshake": "kill-qp:qp=rc:period=50ms:jitter=0.5:side=random; kill-qp:qp=rc:n=15/150:limit=4; "
                 "drop:qp=ud:p=0.2; dup:qp=ud:p=0.2; late:qp=ud:p=0.1:delay=5ms; "
                 "fail=modify_qp:2/4:ETIMEDOUT:to=RTR; fail=create_qp:5/7:ENOMEM",
}


@dataclass
class Hits:
    """What the device did to the job, from its log."""

    total: int
    queue_pairs: int  # that it broke, each once


def read_hits(directory: Path) -> Hits:
    lines = [json.loads(line) for path in sorted(directory.glob("faults.*"))
             for line in path.read_text().splitlines()]
    broken = {(line.get("victim_rank", line.get("rank")), line["victim_qpn"]) for line in lines
              if line.get("victim_qpn")}
    return Hits(len(lines), len(broken))


def judge(options: argparse.Namespace, result: jobs.Result, hits: Hits) -> list[str]:
    demands = verdict.Demands(np=options.np, healthy=False, idle=options.idle, quiet=False, hosts=options.hosts,
                              moves=tuple(word for word in options.expect.split(",") if word))
    wrong = verdict.faults(result, demands)
    stats, _ = verdict.ledger(result)
    recoveries = verdict.total(stats, "recoveries")
    if hits.total == 0:
        wrong.append("the device log shows no fault: the injector never struck")
    if recoveries < options.least:
        wrong.append(f"{recoveries} recoveries, want {options.least}")
    if verdict.total(stats, "replayed") == 0:
        wrong.append("nothing was replayed")
    # Recovery is a matter of both sides, and one handshake may fail and be repeated; but without a fault there is none.
    if hits.total and recoveries > 4 * hits.total * max(1, options.np - 1):
        wrong.append(f"{recoveries} recoveries for {hits.total} faults: mend breaks what was whole")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True)
    add("--np", type=int, default=2)
    add("--program", required=True)
    add("--schedule", choices=sorted(SCHEDULES), default="storm")
    add("--seed", type=int, default=1, help="another seed is another bad day")
    add("--least", type=int, default=3, help="recoveries that must have happened, all ranks together")
    add("--timeout", type=float, default=60.0, help="seconds")
    add("--expect", default="", help="counters that must move: sends,puts,gets,atomics")
    add("--idle", action="store_true", help="the program itself sends nothing between ranks")
    add("--hosts", type=int, default=1, help="as of run_mpi.py")
    add("--mca", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"))
    add("--no-faults", action="store_true", help="the same without faults: must fail")
    add("args", nargs="*", help="arguments of the program, after --")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.hosts > 1 and (reason := hosts.missing()):
        print(f"fire SKIPPED: {reason}")
        return 77
    faults = f"seed={options.seed}; {SCHEDULES[options.schedule]}"
    with tempfile.TemporaryDirectory(prefix="mend-fire-") as directory:
        env = {"SOFTHCA_FAULT_LOG": f"{directory}/faults"}
        if not options.no_faults:
            env["SOFTHCA_FAULTS"] = faults
        job = jobs.Job(build=build, np=options.np, program=program_path(build, options.program), args=options.args,
                       mca=[("btl_mend_ib_timeout", str(IB_TIMEOUT)), *[tuple(pair) for pair in options.mca]],
                       env=env, hosts=options.hosts, timeout=options.timeout)
        result = jobs.run(job)
        hits = read_hits(Path(directory))
    wrong = judge(options, result, hits)
    stats, _ = verdict.ledger(result)
    if wrong:
        print(shorten(result.output))
        print(f"SOFTHCA_FAULTS='{faults}'")
    for line in wrong:
        print("fire FAILED:", line)
    counts = " ".join(f"{name}={verdict.total(stats, name)}" for name in
                      ("recoveries", "replayed", "in_doubt", "dup_rx", "qps_created"))
    print(f"fire {'FAILED' if wrong else 'ok'}: {job.program.name} np {options.np} {options.schedule}: "
          f"{result.seconds:.1f} s, device log: {hits.total} faults, {hits.queue_pairs} queue pairs; {counts}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
