#!/usr/bin/env python3
"""Runs the MPI programs on a component and a device built with the address and undefined-behaviour sanitizers.

The sanitizer's library has to be loaded first, so it is preloaded into the ranks; the programs themselves and Open MPI
stay as they are. Leaks are not looked for: Open MPI keeps memory until exit on purpose.

  sanitized.py SOURCE_DIR BUILD_DIR [--all]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FEW = (("pingpong", 2), ("flood", 3), ("matching", 2), ("threads", 2), ("rma", 3), ("remap", 2),
       ("ring", 4), ("lastword", 2))
MORE = (("datatypes", 2), ("collectives", 4), ("reductions", 4), ("comms", 4), ("fetch_sum", 4),
        ("readonly", 2), ("forkexec", 2), ("put_notify", 3), ("compute", 3), ("pingpong", 3),
        ("rma", 8), ("flood", 8))


def build(source: Path, directory: Path, compiler: str) -> None:
    directory.mkdir(exist_ok=True)
    configure = ["cmake", "-S", str(source), "-B", str(directory), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DMEND_SANITIZE=address,undefined",
                 "-DBUILD_TESTING=OFF", f"-DCMAKE_CXX_COMPILER={compiler}"]
    compile_it = ["cmake", "--build", str(directory), "--target", "mca_btl_mend", "softhca"]
    for words in (configure, compile_it):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--all", action="store_true", help="all programs, not a choice")
    options = parser.parse_args()
    instrumented = options.build.resolve() / "mpi-sanitized"
    build(options.source.resolve(), instrumented, "g++")
    runner = Path(__file__).resolve().parent / "run_mpi.py"
    failed = 0
    for program, np in FEW + (MORE if options.all else ()):
        words = [sys.executable, "-B", str(runner), "--build", str(instrumented), "--np", str(np),
                 "--program", str(options.build.resolve() / "mpi-tests" / program), "--sanitized",
                 "--timeout", "120", "--"]
        words += ["burst"] if program == "lastword" else ["--quick"]
        failed += subprocess.run(words, check=False).returncode != 0
    print(f"sanitized: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
