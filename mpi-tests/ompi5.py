#!/usr/bin/env python3
"""mend with Open MPI 5.0: built in a Debian 13 (./configure-scripts/debian-chroot), its MPI tests run there.

  ompi5.py smoke   the component and a choice of programs: messages, one-sided operations, a schedule of faults
  ompi5.py full    the whole of mpi-tests/, and all unit tests

Where no such Debian can be made (not root, no network) this is skipped, status 77. build/trixie is the build directory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITE = "trixie"
BUILD = f"build/{SUITE}"
IMPOSSIBLE = 125  # debian-chroot: no root can be made
SKIPPED = 77

# What the choice needs to be built, and its tests.
PROGRAMS = ("ring", "pingpong", "rma", "fetch_sum", "survivors")
TARGETS = ("mca_btl_mend", "softhca", "softhcactl", *(f"mpi_{program}" for program in PROGRAMS))
SMOKE = (r"^mpi\.(ring\.np3\.default|pingpong\.np2\.default|pingpong\.np2\.two_rails|rma\.np2\.default|rma\.np3\.default|"
         r"fetch_sum\.np2\.default|fire\.ring\.np2\.storm|survivors\.killed)$")


def inside(*command: str) -> int:
    script = str(ROOT / "configure-scripts" / "debian-chroot")
    return subprocess.run([script, SUITE, "--", *command], cwd=ROOT, check=False).returncode


def step(what: str, *command: str) -> None:
    began = time.monotonic()
    status = inside(*command)
    print(f"ompi5: {what}: {time.monotonic() - began:.0f} s", flush=True)
    if status:
        sys.exit(f"ompi5 FAILED: {what}: status {status}")


def build(targets: tuple[str, ...]) -> None:
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    probe = subprocess.run([str(ROOT / "configure-scripts" / "debian-chroot"), SUITE, "--", "sh", "-c", "command -v ccache"],
                           cwd=ROOT, capture_output=True, check=False)
    step("configure", "cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
         "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *(launcher if probe.returncode == 0 else []))
    step("build", "cmake", "--build", BUILD, *(["--target", *targets] if targets else []))


def version() -> str:
    script = str(ROOT / "configure-scripts" / "debian-chroot")
    said = subprocess.run([script, SUITE, "--", "mpirun", "--version"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"Open MPI\) (\S+)", said.stdout)
    return found.group(1) if found else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("root", "build", "smoke", "full"))
    what = parser.parse_args().what
    began = time.monotonic()
    status = inside("true")
    if status == IMPOSSIBLE:
        print("ompi5 skipped: the line above says why")
        return SKIPPED
    if status:
        print(f"ompi5 FAILED: the root could not be made: status {status}")
        return 1
    print(f"ompi5: a Debian {SUITE} with Open MPI {version()}: {time.monotonic() - began:.0f} s", flush=True)
    if not version().startswith("5.0."):
        print(f"ompi5 FAILED: Open MPI there is {version()}, want 5.0")
        return 1
    if what == "root":
        return 0
    if what in ("build", "full"):
        build(TARGETS if what == "build" else ())
    if what == "smoke":
        step("smoke", "ctest", "--test-dir", BUILD, "--tests-regex", SMOKE, "--no-tests=error", "--output-on-failure")
    if what == "full":
        step("full", "ctest", "--test-dir", BUILD, "--label-regex", "^(mpi|unit)$", "--label-exclude", "soft-roce|bench|hosts",
             "--no-tests=error", "--output-on-failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
