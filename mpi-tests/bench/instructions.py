#!/usr/bin/env python3
"""Instructions per 8-byte send and its receive, spent in mend and in all that mend calls (ucs and opal included), without
ob1 and without the device.

How: `turns` runs under callgrind, which counts only inside the program's function measured_turn(), that is after start-up
and connecting. The ranks enter MPI only when their messages have arrived, so nobody spins. From the call graph:

    entered  calls into the component from libmpi, libopen-pal, ob1, bml and osc (send entry points and btl_progress)
  - device   calls from the component into the verbs library
  - upcalls  calls from the component into ob1 and bml (receive and completion callbacks); what these call in the
             component is entered again and thus counted
  = cost; divided by rounds x batch it is what one rank spends on one send plus one receive.

With a batch of 1 every message also pays for the polls that find nothing around it; the larger batch is the rate of a
stream. 400 is the limit of a single message, 300 the next goal.

Threads of mend that nobody waits for (service, worker) are entered from ucs and libc and are not counted.

  instructions.py --build build/release [--component mca_btl_mend.so] [--check 1:400,16:340] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.callgraph import edges  # noqa: E402
from harness import job as jobs  # noqa: E402

USERS = ("libmpi.so", "libopen-pal.so", "mca_pml_ob1.so", "mca_bml_r2.so", "mca_osc_rdma.so")
DEVICES = ("libsofthca.so", "libibverbs.so")
UPWARDS = ("mca_pml_ob1.so", "mca_bml_r2.so", "mca_osc_rdma.so", "libmpi.so")


def belongs(name: str, family: tuple[str, ...]) -> bool:
    return any(name.startswith(member) for member in family)


def cost(path: Path, component: str) -> dict[str, int]:
    sums = {"entered": 0, "device": 0, "upcalls": 0}
    for (caller, callee), count in edges(path).items():
        if callee.object == component and belongs(caller.object, USERS):
            sums["entered"] += count
        elif caller.object == component and belongs(callee.object, DEVICES):
            sums["device"] += count
        elif caller.object == component and belongs(callee.object, UPWARDS):
            sums["upcalls"] += count
    sums["cost"] = sums["entered"] - sums["device"] - sums["upcalls"]
    return sums


def profile(options: argparse.Namespace, batch: int, rounds: int) -> list[dict[str, int]]:
    """One run under callgrind; the sums of each rank."""
    with tempfile.TemporaryDirectory(prefix="mend-callgrind-") as directory:
        out = Path(directory) / "out.%q{OMPI_COMM_WORLD_RANK}"
        program = options.build / "mpi-tests" / "bench" / "turns"
        job = jobs.Job(build=options.build, np=2, program=Path(shutil.which("valgrind") or ""),
                       args=["--tool=callgrind", f"--callgrind-out-file={out}", "--quiet",
                             "--toggle-collect=measured_turn", str(program), str(batch), str(rounds), f"{directory}/turn"],
                       btl=options.btl, timeout=options.timeout)
        result = jobs.run(job)
        if result.returncode != 0 or result.timed_out:
            raise RuntimeError(f"the run under callgrind failed\n{result.output[-3000:]}")
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for file in Path(directory).glob("out.*"):
                shutil.copy(file, options.keep / f"callgrind.{file.name}.batch{batch}")
        return [cost(Path(directory) / f"out.{rank}", options.component) for rank in range(2)]


def per_message(options: argparse.Namespace, batch: int) -> dict[str, float]:
    rounds = max(20, options.messages // batch)
    ranks = profile(options, batch, rounds)
    return {key: sum(one[key] for one in ranks) / (2 * rounds * batch) for key in ranks[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True)
    add("--component", default="mca_btl_mend.so")
    add("--btl", default="mend")
    add("--messages", type=int, default=400, help="per rank and run (default 400)")
    add("--batches", default="1,16", help="messages per turn")
    add("--timeout", type=float, default=90.0)
    add("--check", default="", help="limits as batch:cost,...; exit 1 if a batch costs more per message")
    add("--json", type=Path)
    add("--keep", type=Path, help="directory for the callgrind files")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if shutil.which("valgrind") is None:
        print("instructions: valgrind is not installed; nothing measured")
        return 77
    figures = {}
    print(f"# instructions per 8 B send + receive in {options.component} and what it calls")
    print(f"{'batch':>6}{'cost':>10}{'entered':>10}{'device':>10}{'upcalls':>10}")
    for batch in map(int, options.batches.split(",")):
        try:
            one = per_message(options, batch)
        except RuntimeError as error:
            print(f"instructions: {error}", file=sys.stderr)
            return 1
        figures[batch] = one
        print(f"{batch:>6}" + "".join(f"{one[key]:>10.1f}" for key in
                                      ("cost", "entered", "device", "upcalls")))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if any(one["cost"] <= 0 for one in figures.values()):
        print("instructions: no calls into the component were seen", file=sys.stderr)
        return 1
    over = 0
    for word in filter(None, options.check.split(",")):
        batch, limit = (int(part) for part in word.split(":"))
        if (spent := figures[batch]["cost"]) > limit:
            print(f"instructions: batch {batch} costs {spent:.0f}, more than {limit}", file=sys.stderr)
            over = 1
    return over


if __name__ == "__main__":
    sys.exit(main())
