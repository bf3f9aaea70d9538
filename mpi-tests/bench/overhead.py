#!/usr/bin/env python3
"""What watching costs: the 8-byte latency of mend beside that of a build without heartbeats and timers.

Both have the log and the sequence numbers. The two components run in pairs, one after the other in changing order, so
that a change in the machine's load meets both; the figure is the ratio of the medians.

  overhead.py --build build/release [--pairs 31] [--check 1.05] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.bench import rows  # noqa: E402
from harness import job as jobs  # noqa: E402


def latency(build: Path, components: Path) -> float:
    bind = "core" if len(os.sched_getaffinity(0)) >= 2 else "none"
    path = f"{components}:SYSTEM_DEFAULT"
    job = jobs.Job(build=build, np=2, program=build / "mpi-tests" / "bench" / "osu_latency", args=["-l", "8"],
                   mca=[("mca_base_component_path", path), ("btl_mend_softhca_path", str(build / "lib" / "libsofthca.so"))],
                   mpirun_args=["--bind-to", bind], timeout=60.0)
    result = jobs.run(job)
    found = rows(result.output, 1)
    if result.returncode != 0 or 8 not in found:
        sys.exit(f"overhead: the run failed\n{result.output[-1500:]}")
    return found[8]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=31)
    parser.add_argument("--check", type=float, default=0, help="exit 1 if the ratio is above this")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    build = options.build.resolve()
    subprocess.run(["cmake", "--build", str(build), "--target", "mca_btl_mend_bare"], check=True,
                   stdout=subprocess.DEVNULL)
    kinds = {"watching": build / "components", "bare": build / "bare" / "components"}
    values: dict[str, list[float]] = {name: [] for name in kinds}
    for pair in range(options.pairs):
        for name in sorted(kinds, reverse=pair % 2 == 0):
            values[name].append(latency(build, kinds[name]))
    medians = {name: statistics.median(got) for name, got in values.items()}
    ratio = medians["watching"] / medians["bare"]
    print(f"# 8 B half round trip, medians of {options.pairs} pairs")
    print(f"watching {medians['watching']:.3f} us   bare {medians['bare']:.3f} us   ratio {ratio:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"pairs": options.pairs, "ratio": ratio, "values": values}) + "\n")
    if options.check and ratio > options.check:
        print(f"overhead FAILED: the limit is {options.check}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
