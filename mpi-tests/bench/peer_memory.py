#!/usr/bin/env python3
"""What one more connected peer costs in memory.

Rank 0 of a large job and of one half as large talks to every peer and then reads its own anonymous memory; the
difference, divided by the number of further peers, is the cost of one, whenever it is paid. The same difference over
vader is what Open MPI itself spends and is taken off. The embedded device keeps its send queues in this memory, so
the figure is taken with the default send queue, which is the one that is checked, and with the smallest, which leaves
what mend spends outside the queue pair. Receive buffers may grow by two per queue pair.

  peer_memory.py --build build/release [--np 64] [--check 24] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

LINE = re.compile(r"^peer-memory (\d+) (\d+)$", re.MULTILINE)

CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "mend": ("mend", []),
    "small queues": ("mend", [("btl_mend_send_queue_depth", "8")]),
    "vader": ("vader", []),
}


def run(options: argparse.Namespace, np: int, btl: str,
        mca: list[tuple[str, str]]) -> tuple[dict[int, int], dict]:
    """peers -> KiB of rank 0, and rank 0's statistics."""
    job = jobs.Job(build=options.build, np=np, timeout=options.timeout, btl=btl,
                   program=options.build / "mpi-tests" / "bench" / "peer_memory",
                   mca=[("mpi_yield_when_idle", "1"), *mca])
    result = jobs.run(job)
    demands = verdict.Demands(np=np, mend=btl == "mend", ok_line=False)
    if wrong := verdict.faults(result, demands):
        sys.exit(f"peer_memory: np {np}: {'; '.join(wrong)}\n{result.output[-2000:]}")
    stats, _ = verdict.ledger(result)
    return {int(p): int(k) for p, k in LINE.findall(result.output)}, stats.get(0, {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True)
    add("--np", type=int, default=64)
    add("--timeout", type=float, default=150.0)
    add("--check", type=float, default=0.0, help="exit 1 above so many KiB per peer")
    add("--json", type=Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    half = options.np // 2
    slopes, stats = {}, {}
    for name, (btl, mca) in CASES.items():
        used, stats[options.np, name] = run(options, options.np, btl, mca)
        used_half, stats[half, name] = run(options, half, btl, mca)
        slopes[name] = (used[options.np - 1] - used_half[half - 1]) / half
        print(f"# {name}: {used_half[half - 1]} KiB with {half - 1} peers, {used[options.np - 1]} "
              f"KiB with {options.np - 1}: {slopes[name]:.1f} KiB per peer")
    outside = slopes["small queues"] - slopes["vader"]
    per_peer = slopes["mend"] - slopes["vader"]
    print(f"host memory per additional peer {outside:.1f} KiB, with the device's send queue "
          f"{per_peer:.1f} KiB")
    names = ("srq_depth", "qps_live_max", "mr_bytes_max")
    figures = {np: {name: stats[np, "mend"].get(name, 0) for name in names}
               for np in (half, options.np)}
    for np, one in figures.items():
        print(f"{np} ranks: {one['srq_depth']} receive buffers, {one['qps_live_max']} live queue "
              f"pairs, {one['mr_bytes_max'] >> 10} KiB registered")
    few, many = figures[half], figures[options.np]
    rule_broken = many["srq_depth"] < 2 * many["qps_live_max"]
    grown = (many["srq_depth"] - few["srq_depth"] >
             2 * (many["qps_live_max"] - few["qps_live_max"]))
    if options.json:
        options.json.write_text(json.dumps({"np": options.np, "kib_per_peer": per_peer,
                                            "by_ranks": figures}) + "\n")
    if rule_broken:
        print("peer_memory: fewer than two receive buffers per live queue pair", file=sys.stderr)
    if grown:
        print("peer_memory: receive buffers grow faster than two per queue pair", file=sys.stderr)
    if options.check and per_peer > options.check:
        print(f"peer_memory: {per_peer:.1f} KiB is more than {options.check}", file=sys.stderr)
        return 1
    return 1 if rule_broken or grown else 0


if __name__ == "__main__":
    sys.exit(main())
