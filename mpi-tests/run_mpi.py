#!/usr/bin/env python3
"""Runs one MPI program as a test: bounded in time, in a fabric of its own, judged by its exit status, its own checks
and by the statistics of every rank, which must show that mend moved the data.

  run_mpi.py --build build/release --np 2 --program ring -- --quick
  run_mpi.py --build build/release --np 4 --program rma --expect puts,gets,atomics --mca btl_mend_max_inline 0
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import hosts  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import openmpi  # noqa: E402
from harness import verdict  # noqa: E402

OUTPUT_LINES = 120  # of a failed run's output that are shown at each end


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True, help="the build directory (components/, mpi-tests/)")
    add("--np", type=int, default=2)
    add("--btl", default="mend", help="mend, tcp, vader or a list such as self,vader,mend")
    add("--program", required=True, help="name under mpi-tests/ of the build, or a path")
    add("--mca", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"))
    add("--env", action="append", default=[], metavar="KEY=VALUE")
    add("--mpirun", action="append", default=[], metavar="WORD", help="further word for mpirun")
    add("--timeout", type=float, default=60.0, help="seconds")
    add("--expect", default="", help="counters that must move: sends,puts,gets,atomics")
    add("--forbid", default="", help="counters that must stay 0")
    add("--most", action="append", default=[], metavar="COUNTER=N",
        help="a counter that must not be above N, all ranks together")
    add("--may-warn", action="store_true", help="the user may be told that receive buffers are short")
    add("--hosts", type=int, default=1, help="what Open MPI takes for so many hosts, on this one; skipped (77) where impossible")
    add("--rails", type=int, default=1, help="rails that every rank must have")
    add("--striped", action="store_true", help="every rank must have moved bytes over several rails")
    add("--foreign", action="store_true", help="a program without the mpi-test ok line (OSU)")
    add("--idle", action="store_true", help="the program itself sends nothing between ranks")
    add("--spawns", action="store_true", help="the program starts further jobs")
    add("--sanitized", action="store_true", help="preload the address sanitizer into the ranks")
    add("--show", action="store_true", help="print the job's output also if it passed")
    add("args", nargs="*", help="arguments of the program, after --")
    return parser.parse_args()


def program_path(build: Path, name: str) -> Path:
    path = build / "mpi-tests" / name
    if "/" in name or not path.exists():
        path = Path(name)
    if not path.exists():
        sys.exit(f"run_mpi: no program {name} (looked in {build / 'mpi-tests'})")
    return path.resolve()


def sanitizer_environment() -> dict[str, str]:
    found = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True,
                           check=True).stdout.strip()
    # Open MPI and its plugins leak on purpose at exit; the component's own leaks are the unit tests' business.
    return {"LD_PRELOAD": str(Path(found).resolve()),
            "ASAN_OPTIONS": "detect_leaks=0:handle_segv=1:abort_on_error=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}


def names(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def shorten(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > 2 * OUTPUT_LINES:
        dropped = len(lines) - 2 * OUTPUT_LINES
        lines[OUTPUT_LINES:-OUTPUT_LINES] = [f"... {dropped} lines ..."]
    return "\n".join(lines)


def main() -> int:
    options = arguments()
    build = options.build.resolve()
    if options.hosts > 1 and (reason := hosts.missing()):
        print(f"run_mpi SKIPPED: {reason}")
        return 77
    mca = [tuple(pair) for pair in options.mca] + (openmpi.beside_sanitizers() if options.sanitized else [])
    job = jobs.Job(build=build, np=options.np, program=program_path(build, options.program),
                   args=options.args, btl=options.btl, mca=mca,
                   env=dict(pair.split("=", 1) for pair in options.env),
                   rank_env=sanitizer_environment() if options.sanitized else {},
                   mpirun_args=options.mpirun, hosts=options.hosts, timeout=options.timeout)
    demands = verdict.Demands(np=options.np, mend="mend" in options.btl,
                              ok_line=not options.foreign, moves=names(options.expect),
                              still=names(options.forbid), idle=options.idle,
                              more_ranks=options.spawns, quiet=not options.may_warn, rails=options.rails,
                              striped=options.striped, hosts=options.hosts,
                              bounds={name: int(value) for name, value in
                                      (pair.split("=", 1) for pair in options.most)})
    result = jobs.run(job)
    wrong = verdict.faults(result, demands)
    if wrong or options.show:
        print(shorten(result.output))
    for line in wrong:
        print(f"run_mpi FAILED: {line}")
    title = f"{job.program.name} np {options.np} {options.btl}"
    print(f"run_mpi {'FAILED' if wrong else 'ok'}: {title}: {verdict.summary(result)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
