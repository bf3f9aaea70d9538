#!/usr/bin/env python3
"""What one more connected peer costs in memory: rank 0 of a large job talks to one peer after the other and reads its own
anonymous memory in between; mend's statistics tell how much of that are receive buffers.

The slope is taken between a quarter of the peers and all of them, so that start-up and pools that grow in steps do not
blur it. Receive buffers may grow with the queue pairs (two per live one), so they are reported apart.

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


def run(options: argparse.Namespace, np: int) -> tuple[dict[int, int], dict]:
    """peers -> KiB of rank 0, and rank 0's statistics."""
    job = jobs.Job(build=options.build, np=np, timeout=options.timeout, btl=options.btl,
                   program=options.build / "mpi-tests" / "bench" / "peer_memory",
                   mca=[("mpi_yield_when_idle", "1")])
    result = jobs.run(job)
    demands = verdict.Demands(np=np, mend=options.btl == "mend", ok_line=False)
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
    add("--btl", default="mend")
    add("--timeout", type=float, default=150.0)
    add("--check", type=float, default=0.0, help="exit 1 above so many KiB per peer")
    add("--json", type=Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    used, large = run(options, options.np)
    _, small = run(options, 2)
    first, last = options.np // 4, options.np - 1
    per_peer = (used[last] - used[first]) / (last - first)
    depths = {"2": small.get("srq_depth"), str(options.np): large.get("srq_depth")}
    live = large.get("qps_live_max")
    print(f"# anonymous memory of rank 0 with {first} peers: {used[first]} KiB, with {last}: "
          f"{used[last]} KiB")
    print(f"host memory per additional peer {per_peer:.1f} KiB")
    print(f"receive buffers: {depths['2']} at 2 ranks, {depths[str(options.np)]} at {options.np} "
          f"ranks; most live queue pairs {live}")
    rule_broken = live is not None and large["srq_depth"] < 2 * live
    grown = live is not None and large["srq_depth"] > max(2 * live + 64, 2 * small["srq_depth"])
    if options.json:
        options.json.write_text(json.dumps({"np": options.np, "kib_per_peer": per_peer,
                                            "srq_depth": depths, "qps_live_max": live}) + "\n")
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
