#!/usr/bin/env python3
"""Runs the real OSU micro-benchmarks over mend, where OSU_DIR names a directory that has them, and checks that they end
well and that mend carried them. Without OSU_DIR the test is skipped with a line that says so.

  OSU_DIR=/opt/osu osu.py BUILD_DIR
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

SKIPPED = 77
# Program, ranks, arguments, counters that must have moved.
RUNS = (
    ("osu_latency", 2, ["-m", "0:1048576"], ("sends",)),
    ("osu_bw", 2, ["-m", "1:1048576"], ("sends",)),
    ("osu_bibw", 2, ["-m", "1:1048576"], ("sends",)),
    ("osu_mbw_mr", 4, ["-m", "1:65536"], ("sends",)),
    ("osu_multi_lat", 4, ["-m", "0:65536"], ("sends",)),
    ("osu_latency_mt", 2, ["-m", "0:4096", "-t", "2"], ("sends",)),
    ("osu_allreduce", 4, ["-m", "4:65536"], ("sends",)),
    ("osu_alltoall", 4, ["-m", "1:16384"], ("sends",)),
    ("osu_bcast", 4, ["-m", "1:65536"], ("sends",)),
    ("osu_barrier", 4, [], ("sends",)),
    ("osu_ibcast", 4, ["-m", "1:16384"], ("sends",)),
    ("osu_put_latency", 2, ["-m", "1:65536", "-w", "create"], ("puts",)),
    ("osu_get_latency", 2, ["-m", "1:65536", "-w", "create"], ("gets",)),
    ("osu_put_bw", 2, ["-m", "1:65536", "-w", "create"], ("puts",)),
    ("osu_fop_latency", 2, ["-w", "create"], ("atomics",)),
    ("osu_init", 2, [], ()),
)


def find(directory: Path, name: str) -> Path | None:
    return next((path for path in sorted(directory.rglob(name))
                 if path.is_file() and os.access(path, os.X_OK)), None)


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    directory = os.environ.get("OSU_DIR", "")
    if not directory:
        print("osu: skipped, OSU_DIR does not name the OSU micro-benchmarks")
        return SKIPPED
    found = failed = 0
    for name, np, arguments, moves in RUNS:
        program = find(Path(directory), name)
        if program is None:
            print(f"osu: {name} is not there")
            continue
        found += 1
        result = jobs.run(jobs.Job(build=build, np=np, program=program, args=arguments,
                                   timeout=120.0))
        demands = verdict.Demands(np=np, ok_line=False, moves=moves, idle=not moves)
        wrong = verdict.faults(result, demands)
        failed += bool(wrong)
        print(f"osu: {name} np {np}: {'; '.join(wrong) or 'ok'} ({verdict.summary(result)})")
        if wrong:
            print(result.output[-3000:])
    if found == 0:
        print(f"osu: no program found under {directory}")
    return 1 if failed or found == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
