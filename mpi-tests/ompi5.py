#!/usr/bin/env python3
"""mend with a newer Open MPI: built in another Debian (./configure-scripts/debian-chroot), its MPI tests run there.

  ompi5.py root    that Debian alone
  ompi5.py build   the component and a choice of programs
  ompi5.py smoke   the same, and a choice of tests: messages, one-sided operations, a schedule of faults
  ompi5.py full    mpi-tests/ but for soft-RoCE and OSU; all unit tests and those of sites; the figures beside shared memory

Debian 13 (trixie) has Open MPI 5.0. --suite sid takes the newest that Debian has: what is installed there is brought up to date
first, and mend is built afresh. build/SUITE is the build directory. Where no such Debian can be made (not root, no network)
this is skipped, status 77.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
IMPOSSIBLE = 125  # debian-chroot: no root can be made
SKIPPED = 77
ANSWER_S = 60  # for a question that is answered at once, unless another run changes that Debian meanwhile

# What the choice needs to be built, and its tests.
PROGRAMS = ("ring", "pingpong", "rma", "fetch_sum", "survivors")
TARGETS = ("mca_btl_mend", "softhca", "softhcactl", *(f"mpi_{program}" for program in PROGRAMS))
SMOKE = (r"^mpi\.(ring\.np3\.default|pingpong\.np2\.default|pingpong\.np2\.two_rails|rma\.np2\.default|rma\.np3\.default|"
         r"fetch_sum\.np2\.default|fire\.ring\.np2\.storm|survivors\.(killed|late|cut|listen|device))$")

CHROOT = str(ROOT / "configure-scripts" / "debian-chroot")
STABLE = "trixie"


def fail(what: str) -> NoReturn:
    print(f"ompi5 FAILED: {what}", flush=True)
    sys.exit(1)


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired as late:
        said = b"".join(stream for stream in (late.stdout, late.stderr) if isinstance(stream, bytes)).decode(errors="replace")
        fail(f"no answer within {ANSWER_S} s: {' '.join(command)}\n{said[-2000:] or 'it said nothing'}")


class Debian:
    """A Debian of that suite, and mend's build directory for it."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.moves = suite != STABLE
        self.build_directory = f"build/{suite}"
        self.inside = [CHROOT, suite, "--"]

    def make(self, groups: str) -> int:
        command = [CHROOT, "--packages", groups, *(["--upgrade"] if self.moves else []), self.suite, "--", "true"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        return ask(*self.inside, *command)

    def step(self, what: str, *command: str) -> None:
        began = time.monotonic()
        status = subprocess.run([*self.inside, *command], cwd=ROOT, check=False).returncode
        print(f"ompi5: {what}: {time.monotonic() - began:.0f} s", flush=True)
        if status:
            fail(f"{what}: status {status}")

    def version(self) -> str:
        found = re.search(r"Open MPI\) (\S+)", self.ask("mpirun", "--version").stdout)
        return found.group(1) if found else "unknown"

    def wants(self, version: str) -> str:
        """What Open MPI was wanted there, or "" if it is this one."""
        if not self.moves:
            return "" if version.startswith("5.0.") else "5.0"
        major = re.match(r"\d+", version)
        return "" if major and int(major.group()) >= 5 else "5.0 or later"

    def build(self, targets: tuple[str, ...]) -> None:
        if self.moves:  # packages keep the dates they were made at, by which nobody sees that a header has changed
            shutil.rmtree(ROOT / self.build_directory, ignore_errors=True)
        launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        probe = self.ask("sh", "-c", "command -v ccache")
        self.step("configure", "cmake", "-S", ".", "-B", self.build_directory, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                  "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *(launcher if probe.returncode == 0 else []))
        self.step("build", "cmake", "--build", self.build_directory, *(["--target", *targets] if targets else []))

    def test(self, what: str, *choice: str) -> None:
        self.step(what, "ctest", "--test-dir", self.build_directory, *choice, "--no-tests=error", "--output-on-failure")


def refusals(debian: Debian, other: Path) -> None:
    """A component for another major is not loaded, and the loader says which library it wanted; for both directions."""
    mine, foreign = (ROOT / debian.build_directory / name for name in ("components", "components-of-another"))
    foreign.mkdir(exist_ok=True)
    shutil.copy(other / "components" / "mca_btl_mend.so", foreign)
    show = ["ompi_info", "--param", "btl", "mend", "--level", "9"]
    for where, prefix, directory, wants in (("5.0 given 4.1's", debian.inside, foreign, "libopen-pal.so.40"),
                                            ("4.1 given 5.0's", [], mine, "libopen-pal.so.80")):
        variables = [f"OMPI_MCA_mca_base_component_path={directory}:SYSTEM_DEFAULT",
                     "OMPI_MCA_mca_base_component_show_load_errors=1"]
        done = ask(*prefix, "env", *variables, *show)
        said = done.stdout + done.stderr
        if "unable to open mca_btl_mend" not in said or wants not in said or "btl_mend_max_outage_s" in said:
            fail(f"{where}: it was not refused for want of {wants}\n{said[-2000:]}")
        print(f"ompi5: {where} refuses it: {wants} is not there")
    # The same question must be answered otherwise for the right component, or the answers above mean nothing.
    done = debian.ask("env", f"OMPI_MCA_mca_base_component_path={mine}", *show)
    if "btl_mend_max_outage_s" not in done.stdout:
        fail(f"5.0 does not load its own component\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run(debian: Debian, what: str, other: Path | None) -> int:
    began = time.monotonic()
    status = debian.make("run,build,full" if what == "full" else "run,build")
    if status == IMPOSSIBLE:
        print("ompi5 skipped: the line above says why")
        return SKIPPED
    if status:
        fail(f"the root could not be made: status {status}")
    ompi = debian.version()
    print(f"ompi5: a Debian {debian.suite} with Open MPI {ompi}: {time.monotonic() - began:.0f} s", flush=True)
    if wanted := debian.wants(ompi):
        fail(f"Open MPI there is {ompi}, want {wanted}")
    if what in ("build", "smoke", "full"):
        debian.build(() if what == "full" else TARGETS)
    if what == "smoke":
        debian.test(what, "--tests-regex", SMOKE)
        if other:
            refusals(debian, other)
    if what == "full":
        debian.test(what, "--label-regex", "^(mpi|unit|sites)$", "--label-exclude", "soft-roce|bench")
        debian.step("figures", "python3", "-B", "mpi-tests/bench/bench.py", "--build", debian.build_directory, "--quick",
                    "--peers", "mend,vader")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("root", "build", "smoke", "full"))
    parser.add_argument("--suite", default=STABLE, help=f"the release of Debian: {STABLE} (the default), sid, ...")
    parser.add_argument("--other", type=Path, help=f"the build directory for Open MPI 4.1: {STABLE} must refuse its component")
    options = parser.parse_args()
    if options.other and options.suite != STABLE:
        parser.error(f"--other goes with {STABLE} only: later ones have a library of the name that 4.1's component wants")
    return run(Debian(options.suite), options.what, options.other)


if __name__ == "__main__":
    sys.exit(main())
