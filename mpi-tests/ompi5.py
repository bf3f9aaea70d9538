#!/usr/bin/env python3
"""mend with Open MPI 5.0: built in a Debian 13 (./configure-scripts/debian-chroot), its MPI tests run there.

  ompi5.py smoke   the component and a choice of programs: messages, one-sided operations, a schedule of faults
  ompi5.py full    mpi-tests/ but for soft-RoCE, OSU and benchmarks; all unit tests and those of sites

Where no such Debian can be made (not root, no network) this is skipped, status 77. build/trixie is the build directory.
"""

from __future__ import annotations

import argparse
import re
import shutil
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
         r"fetch_sum\.np2\.default|fire\.ring\.np2\.storm|survivors\.(killed|late|cut))$")

CHROOT = str(ROOT / "configure-scripts" / "debian-chroot")
INSIDE = [CHROOT, SUITE, "--"]


def make_root(groups: str) -> int:
    return subprocess.run([CHROOT, "--packages", groups, SUITE, "--", "true"], cwd=ROOT, check=False).returncode


def inside(*command: str) -> int:
    return subprocess.run([*INSIDE, *command], cwd=ROOT, check=False).returncode


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def step(what: str, *command: str) -> None:
    began = time.monotonic()
    status = inside(*command)
    print(f"ompi5: {what}: {time.monotonic() - began:.0f} s", flush=True)
    if status:
        sys.exit(f"ompi5 FAILED: {what}: status {status}")


def build(targets: tuple[str, ...]) -> None:
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    probe = ask(*INSIDE, "sh", "-c", "command -v ccache")
    step("configure", "cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
         "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *(launcher if probe.returncode == 0 else []))
    step("build", "cmake", "--build", BUILD, *(["--target", *targets] if targets else []))


def refusals(other: Path) -> None:
    """A component for another major is not loaded, and the loader says which library it wanted; for both directions."""
    mine, foreign = ROOT / BUILD / "components", ROOT / BUILD / "components-of-another"
    foreign.mkdir(exist_ok=True)
    shutil.copy(other / "components" / "mca_btl_mend.so", foreign)
    show = ["ompi_info", "--param", "btl", "mend", "--level", "9"]
    for where, prefix, directory, wants in (("5.0 given 4.1's", INSIDE, foreign, "libopen-pal.so.40"),
                                            ("4.1 given 5.0's", [], mine, "libopen-pal.so.80")):
        variables = [f"OMPI_MCA_mca_base_component_path={directory}:SYSTEM_DEFAULT", "OMPI_MCA_mca_base_component_show_load_errors=1"]
        done = ask(*prefix, "env", *variables, *show)
        said = done.stdout + done.stderr
        if "unable to open mca_btl_mend" not in said or wants not in said or "btl_mend_max_outage_s" in said:
            sys.exit(f"ompi5 FAILED: {where}: it was not refused for want of {wants}\n{said[-2000:]}")
        print(f"ompi5: {where} refuses it: {wants} is not there")
    # The same question must be answered otherwise for the right component, or the answers above mean nothing.
    done = ask(*INSIDE, "env", f"OMPI_MCA_mca_base_component_path={mine}", *show)
    if "btl_mend_max_outage_s" not in done.stdout:
        sys.exit(f"ompi5 FAILED: 5.0 does not load its own component\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def version() -> str:
    found = re.search(r"Open MPI\) (\S+)", ask(*INSIDE, "mpirun", "--version").stdout)
    return found.group(1) if found else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("root", "build", "smoke", "full"))
    parser.add_argument("--other", type=Path, help="the build directory for Open MPI 4.1: its component must be refused")
    options = parser.parse_args()
    what = options.what
    began = time.monotonic()
    status = make_root("run,build,full" if what == "full" else "run,build")
    if status == IMPOSSIBLE:
        print("ompi5 skipped: the line above says why")
        return SKIPPED
    if status:
        print(f"ompi5 FAILED: the root could not be made: status {status}")
        return 1
    ompi = version()
    print(f"ompi5: a Debian {SUITE} with Open MPI {ompi}: {time.monotonic() - began:.0f} s", flush=True)
    if not ompi.startswith("5.0."):
        print(f"ompi5 FAILED: Open MPI there is {ompi}, want 5.0")
        return 1
    if what == "root":
        return 0
    if what in ("build", "full"):
        build(TARGETS if what == "build" else ())
    if what == "smoke":
        step("smoke", "ctest", "--test-dir", BUILD, "--tests-regex", SMOKE, "--no-tests=error", "--output-on-failure")
    if what == "smoke" and options.other:
        refusals(options.other)
    if what == "full":
        step("full", "ctest", "--test-dir", BUILD, "--label-regex", "^(mpi|unit|sites)$", "--label-exclude", "soft-roce|bench",
             "--no-tests=error", "--output-on-failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
