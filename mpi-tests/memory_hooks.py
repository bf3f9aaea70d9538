#!/usr/bin/env python3
"""When Open MPI writes its memory hooks over libc: before mend has a thread, for a thread that is in munmap at that moment
dies of SIGILL; and not where there is no device.

  memory_hooks.py BUILD first   the hooks are written, and none of the threads of then is mend's or its device's
  memory_hooks.py BUILD aside   without an RDMA device mend steps aside, and no hook is written
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

NP = 2
WRITTEN = re.compile(r"^hooks_watch: libopen-pal\S* writes code, threads:(.*)$", re.MULTILINE)
OURS = ("libstdc++", "libucs", "libsofthca", "mca_btl_mend")  # std::thread begins in libstdc++


def job_of(build: Path, btl: str, mca: list[tuple[str, str]]) -> jobs.Job:
    watch = build / "mpi-tests" / "libhooks_watch.so"
    return jobs.Job(build=build, np=NP, program=build / "mpi-tests" / "ring", btl=btl, mca=mca,
                    rank_env={"LD_PRELOAD": str(watch)})


def run_first(build: Path) -> tuple[jobs.Result, list[str]]:
    result = jobs.run(job_of(build, "mend", []))
    writes = WRITTEN.findall(result.output)
    wrong = verdict.faults(result, verdict.Demands(np=NP, quiet=False))
    if len(writes) < NP:
        wrong.append(f"{len(writes)} hooks were seen on {NP} ranks: Open MPI writes them in another way")
    late = {name for write in writes for name in write.split() if name.startswith(OURS)}
    if late:
        wrong.append(f"the hooks are written when threads of {', '.join(sorted(late))} run")
    return result, wrong


def run_aside(build: Path) -> tuple[jobs.Result, list[str]]:
    result = jobs.run(job_of(build, "self,mend,tcp", [("btl_mend_verbs_library", "libibverbs.so.1"),
                                                      ("btl_tcp_if_include", "lo")]))
    wrong = verdict.faults(result, verdict.Demands(np=NP, mend=False))
    if result.stats_text:
        wrong.append("mend was in use")
    if writes := WRITTEN.findall(result.output):
        wrong.append(f"{len(writes)} hooks were written")
    return result, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", choices=("first", "aside"))
    args = parser.parse_args()
    if args.mode == "aside" and any(Path("/sys/class/infiniband").glob("*")):
        print("skipped: this machine has an RDMA device")
        return 77
    result, wrong = (run_first if args.mode == "first" else run_aside)(args.build.resolve())
    writes = len(WRITTEN.findall(result.output))
    return verdict.conclude("memory_hooks", wrong, result, f"{args.mode}, {result.seconds:.1f} s; {writes} writes")


if __name__ == "__main__":
    sys.exit(main())
