#!/usr/bin/env python3
"""How long a broken queue pair costs the application: from the break to the first message that arrives after it.

Two ranks play ping-pong while the embedded device kills a queue pair now and then, on a random side. The device's log
has the time of each break, the program the round trips that took long; a break's cost is the time from the break to the
end of the round trip that was under way. That includes noticing the break, the handshake, the new queue pair and the
replay, so it is an upper bound of "fault noticed to first replayed delivery".

  heal.py --build build/release [--seconds 60] [--period 100] [--check P50_MS:P99_MS] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

STALL_US = 100  # a round trip takes a few microseconds


def breaks(directory: Path) -> list[int]:
    lines = [json.loads(line) for path in directory.glob("faults.*") for line in path.read_text().splitlines()]
    return sorted(line["time"] for line in lines if line.get("victim_qpn"))


def costs_of(times: list[int], stalls: list[tuple[int, int]]) -> list[float]:
    """Milliseconds per break; two breaks within one stall are one."""
    found = {}
    for time in times:
        stall = next((s for s in stalls if s[0] <= time < s[1]), None)
        if stall and stall not in found:
            found[stall] = (stall[1] - time) / 1e6
    return sorted(found.values())


def quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True)
    add("--seconds", type=int, default=60)
    add("--period", type=int, default=100, help="milliseconds between breaks, on average")
    add("--check", default="", metavar="P50_MS:P99_MS", help="exit 1 if these are exceeded")
    add("--json", type=Path)
    options = parser.parse_args()
    build = options.build.resolve()
    bind = "core" if len(os.sched_getaffinity(0)) >= 2 else "none"
    with tempfile.TemporaryDirectory(prefix="mend-heal-") as directory:
        job = jobs.Job(build=build, np=2, program=build / "mpi-tests" / "bench" / "heal",
                       args=[str(options.seconds), str(STALL_US)], mpirun_args=["--bind-to", bind],
                       env={"SOFTHCA_FAULTS": f"kill-qp:qp=rc:period={options.period}ms:jitter=0.5:side=random",
                            "SOFTHCA_FAULT_LOG": f"{directory}/faults"}, timeout=options.seconds + 60.0)
        result = jobs.run(job)
        times = breaks(Path(directory))
    wrong = verdict.faults(result, verdict.Demands(np=2, ok_line=False, healthy=False))
    stats, _ = verdict.ledger(result)
    stalls = [(int(a), int(b)) for a, b in
              (line.split()[1:3] for line in result.output.splitlines() if line.startswith("stall "))]
    costs = costs_of(times, stalls)
    if not costs:
        wrong.append(f"{len(times)} breaks, {len(stalls)} stalls, none of them belong together")
    for line in wrong:
        print("heal FAILED:", line)
    if wrong:
        print(result.output[-2000:])
        return 1
    figures = {"breaks": len(times), "measured": len(costs), "p50_ms": quantile(costs, 0.5),
               "p90_ms": quantile(costs, 0.9), "p99_ms": quantile(costs, 0.99), "max_ms": costs[-1],
               "recoveries": verdict.total(stats, "recoveries"), "replayed": verdict.total(stats, "replayed"),
               "dup_rx": verdict.total(stats, "dup_rx")}
    print(f"# break of a queue pair -> first message after it; {len(costs)} of {len(times)} breaks met a message")
    print("      p50       p90       p99       max  ms")
    print("".join(f"{figures[name]:>9.2f} " for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")))
    print(f"# recoveries {figures['recoveries']}, replayed {figures['replayed']}, duplicated {figures['dup_rx']}")
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n")
    if options.check:
        p50, p99 = (float(word) for word in options.check.split(":"))
        if figures["p50_ms"] > p50 or figures["p99_ms"] > p99:
            print(f"heal FAILED: limits are p50 {p50} ms, p99 {p99} ms")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
