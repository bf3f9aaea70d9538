"""Which Open MPI this is, and what its major versions want differently from whoever starts a job."""

from __future__ import annotations

import functools
import re
import subprocess
import sys


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except FileNotFoundError:
        return ""


@functools.cache
def major() -> int:
    """4 or 5: that of the mpirun which starts the jobs."""
    found = re.search(r"\(Open MPI\) (\d+)\.", _said("mpirun", "--version"))
    if not found:
        sys.exit("mpirun does not say which Open MPI it is")
    return int(found.group(1))


def shared_memory() -> str:
    """The BTL of Open MPI inside a host: vader until 4.1, then called sm."""
    return "vader" if major() < 5 else "sm"


def btl_list(names: str) -> str:
    """A list of BTLs as 4.1 calls them, in the words of this version."""
    return ",".join(shared_memory() if name == "vader" else name for name in names.split(","))


def one_sided(btl: str) -> str:
    """The osc component for a list of BTLs: 4.1's tcp has no remote atomics and osc/rdma does not take it."""
    return "pt2pt" if btl == "self,tcp" and major() < 5 else "rdma"


def beside_sanitizers() -> list[tuple[str, str]]:
    """Open MPI writes its memory hooks over the first bytes of mprotect and its like. Where libasan has put itself before those
    (GCC 14 does it in 5 bytes each) that destroys its neighbours; the ranks of 5.0 would end by SIGILL."""
    return [("memory", "^patcher")] if major() >= 5 else []


@functools.cache
def environment() -> tuple[tuple[str, str], ...]:
    """5.0 hands Open MPI's component path on to PMIx, which complains of each file that is not its own, unless it has been
    told its own path."""
    directory = _said("pkg-config", "--variable=libdir", "pmix").strip() if major() >= 5 else ""
    return (("PMIX_MCA_pmix_mca_base_component_path", f"{directory}/pmix"),) if directory else ()
