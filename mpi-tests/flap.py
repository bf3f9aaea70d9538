#!/usr/bin/env python3
"""A job whose link goes down again and again, for longer than the device's own retries, while it exchanges verified data.

The job must end well; the injector must have struck, every rank's queue pairs must have been recreated, something must
have been replayed, and nothing may have been lost or doubled. With --no-faults the same test must fail: that is checked
by the test `mpi.flap.needs_faults`.

What a flap cost is what the application saw of it: the round of messages that was under way when the link went down
ended so much later than the link came back. --story prints that as one line for a person; --check MS limits its median.

With --gids the addresses of the port change places in its GID table while it is down, so that its index has to be looked up
anew after each flap.

  flap.py BUILD [--np N] [--flaps N] [--down SECONDS] [--gids] [--story] [--check MS] [--json FILE] [--no-faults]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

# 4.096 us x 2^10 x (7 + 1): the device gives up on a request after 34 ms; a link that is down for longer breaks the QP.
IB_TIMEOUT = 10
PLACES = (1, 3)  # the routable address of softhca0 is at index 1, and changes between that and an empty place


def softhcactl(build: Path, fabric: str, *words: str) -> None:
    subprocess.run([build / "bin" / "softhcactl", "--fabric", fabric, *words], check=True, capture_output=True, timeout=20)


def port(build: Path, fabric: str, state: str) -> None:
    softhcactl(build, fabric, "port", "softhca0", "1", state)


def break_link(build: Path, fabric: str, down_s: float, gids: bool) -> tuple[float, float]:
    """When the link went down and when it was told to come up, on the clock that the job's ranks print.

    The second is taken before softhcactl starts: on a busy machine the job can be over its outage before that ends.
    """
    began = time.monotonic()
    port(build, fabric, "down")
    if gids:
        softhcactl(build, fabric, "gid", "softhca0", "1", *map(str, PLACES))
    time.sleep(down_s)
    ended = time.monotonic()
    port(build, fabric, "up")
    return began, ended


def stalls_of(output: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in re.findall(r"^stall ([\d.]+) ([\d.]+)$", output, re.MULTILINE)]


def standstill(flap: tuple[float, float], stalls: list[tuple[float, float]]) -> tuple[float, float] | None:
    """The stall that this flap caused: the one that began before the link was up and ended after it."""
    down, up = flap
    return next((stall for stall in stalls if stall[0] < up < stall[1] and stall[1] > down), None)


def story(flaps: list, costs: list[float], lasted: list[float], stats: dict) -> str:
    lost = "lost 0, duplicated " + str(verdict.total(stats, "dup_rx"))
    each = ", ".join(f"{1000 * s:.0f}" for s in lasted)
    late = ", ".join(f"{1000 * s:.0f}" for s in costs)
    return (f"The link broke {len(flaps)} times under verified traffic; the job stood still for {each} ms and went on "
            f"{late} ms after the link was back; {verdict.total(stats, 'replayed')} messages and transfers were "
            f"replayed, {lost}.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--flaps", type=int, default=3)
    parser.add_argument("--down", type=float, default=0.4)
    parser.add_argument("--gids", action="store_true", help="the port's GIDs move while it is down")
    parser.add_argument("--story", action="store_true", help="print only the line for a person if all went well")
    parser.add_argument("--check", type=float, default=0, help="most milliseconds beyond the outage, median")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-faults", action="store_true")
    return parser.parse_args()


def run_job(args: argparse.Namespace) -> tuple[jobs.Result, list[tuple[float, float]]]:
    build = args.build.resolve()
    # A busy machine takes its time: the job goes on until all flaps are over, and a second longer.
    seconds = int(args.flaps * (args.down + 1.2)) + 60
    running = jobs.Running(jobs.Job(
        build=build, np=args.np, program=build / "mpi-tests" / "steady",
        args=["--seconds", str(seconds), "--until", jobs.ENOUGH, "--stalls", "50"],
        mca=[("btl_mend_ib_timeout", str(IB_TIMEOUT))], timeout=seconds + 30.0))
    flaps = []
    try:
        if running.under_way():
            for _ in range(0 if args.no_faults else args.flaps):
                flaps.append(break_link(build, running.fabric, args.down, args.gids))
                time.sleep(1.2)
    finally:
        running.enough()
        result = running.finish()
    return result, flaps


def judge(args: argparse.Namespace, result: jobs.Result, stats: dict, flaps: list, costs: list[float]) -> list[str]:
    wrong = verdict.faults(result, verdict.Demands(np=args.np, healthy=False))
    if not flaps:
        wrong.append("the injector never struck")
    for rank, one in sorted(stats.items()):
        if one["recoveries"] == 0:
            wrong.append(f"rank {rank} never had to recover")
    if verdict.total(stats, "replayed") == 0:
        wrong.append("nothing was replayed")
    if args.gids:
        want = PLACES[len(flaps) % 2]
        wrong += [f"rank {rank} uses GID index {rail['gid_index']}, want {want}"
                  for rank, one in sorted(stats.items()) for rail in one["rails"] if rail["gid_index"] != want]
    if len(costs) < len(flaps):
        wrong.append(f"only {len(costs)} of {len(flaps)} flaps were felt by the application")
    if args.check and costs and 1000 * statistics.median(costs) > args.check:
        wrong.append(f"the median cost beyond the outage is above {args.check:.0f} ms")
    return wrong


def main() -> int:
    args = arguments()
    result, flaps = run_job(args)
    stats, _ = verdict.ledger(result)
    stalls = stalls_of(result.output)
    felt = [(flap, stall) for flap in flaps if (stall := standstill(flap, stalls))]
    costs = [stall[1] - flap[1] for flap, stall in felt]
    lasted = [stall[1] - stall[0] for _, stall in felt]
    wrong = judge(args, result, stats, flaps, costs)
    if args.story and not wrong:
        print("   " + story(flaps, costs, lasted, stats))
        return 0
    print(f"flaps {len(flaps)}, down {args.down} s each; recoveries {verdict.total(stats, 'recoveries')}, replayed "
          f"{verdict.total(stats, 'replayed')}, in doubt {verdict.total(stats, 'in_doubt')}, doubled "
          f"{verdict.total(stats, 'dup_rx')}, longest outage "
          f"{max((s['max_outage_us'] for s in stats.values()), default=0) / 1000:.0f} ms; beyond the outage "
          f"{', '.join(f'{1000 * c:.0f}' for c in costs)} ms")
    if args.json:
        args.json.write_text(json.dumps({"down_s": args.down, "beyond_outage_s": costs, "standstill_s": lasted,
                                         "recoveries": verdict.total(stats, "recoveries"),
                                         "replayed": verdict.total(stats, "replayed")}) + "\n")
    for line in wrong:
        print("flap FAILED:", line)
    if wrong:
        print(result.output[-4000:])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
