#!/usr/bin/env python3
"""A job whose link goes down again and again, for longer than the device's own retries, while it exchanges verified data.

The job must end well; the injector must have struck, every rank's queue pairs must have been recreated, something must
have been replayed, and nothing may have been lost or doubled. With --no-faults the same test must fail: that is checked
by the test `mpi.flap.needs_faults`.

  flap.py BUILD [--np N] [--flaps N] [--down SECONDS] [--no-faults]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

# 4.096 us x 2^10 x (7 + 1): the device gives up on a request after 34 ms; a link that is down for longer breaks the QP.
IB_TIMEOUT = 10


def wait_for_ranks(fabric: str, count: int, limit: float) -> bool:
    """True once every rank has opened the device."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        segments = [p for p in Path("/dev/shm").glob(f"softhca.{fabric}.*") if p.name.count(".") >= 4]
        if len(segments) >= count:
            return True
        time.sleep(0.05)
    return False


def port(build: Path, fabric: str, state: str) -> None:
    subprocess.run([build / "bin" / "softhcactl", "--fabric", fabric, "port", "softhca0", "1", state],
                   check=True, capture_output=True, timeout=20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--flaps", type=int, default=3)
    parser.add_argument("--down", type=float, default=0.4)
    parser.add_argument("--no-faults", action="store_true")
    args = parser.parse_args()
    build = args.build.resolve()
    seconds = int(args.flaps * (args.down + 1.2)) + 3
    running = jobs.Running(jobs.Job(
        build=build, np=args.np, program=build / "mpi-tests" / "steady", args=["--seconds", str(seconds)],
        mca=[("btl_mend_ib_timeout", str(IB_TIMEOUT))], timeout=seconds + 60.0))
    struck = 0
    if wait_for_ranks(running.fabric, args.np, 30.0):
        time.sleep(1.0)
        for _ in range(0 if args.no_faults else args.flaps):
            port(build, running.fabric, "down")
            time.sleep(args.down)
            port(build, running.fabric, "up")
            struck += 1
            time.sleep(1.2)
    result = running.finish()
    wrong = verdict.faults(result, verdict.Demands(np=args.np, healthy=False))
    stats, _ = verdict.ledger(result)
    if struck == 0:
        wrong.append("the injector never struck")
    for rank, one in sorted(stats.items()):
        if one["recoveries"] == 0:
            wrong.append(f"rank {rank} never had to recover")
    if verdict.total(stats, "replayed") == 0:
        wrong.append("nothing was replayed")
    print(f"flaps {struck}, down {args.down} s each; recoveries {verdict.total(stats, 'recoveries')}, replayed "
          f"{verdict.total(stats, 'replayed')}, in doubt {verdict.total(stats, 'in_doubt')}, doubled "
          f"{verdict.total(stats, 'dup_rx')}, longest outage "
          f"{max((s['max_outage_us'] for s in stats.values()), default=0) / 1000:.0f} ms")
    for line in wrong:
        print("flap FAILED:", line)
    if wrong:
        print(result.output[-4000:])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
