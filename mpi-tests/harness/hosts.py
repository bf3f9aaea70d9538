"""Several hosts on one: each has its own name (a UTS namespace) and its own Open MPI daemon, so that Open MPI takes its
ranks for ranks of different hosts: no shared memory between them, windows and communicators set up as between hosts.

They share everything else, /dev/shm and loopback in particular, so the embedded device carries the traffic between them
(btl_mend_test_one_machine). Needs root or user namespaces.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import openmpi

AGENT = Path(__file__).resolve().parent / "host_agent.sh"
PREFIX = "testhost"


def missing() -> str:
    """Why there cannot be several hosts here; empty if there can."""
    done = subprocess.run([str(AGENT), f"{PREFIX}0", "hostname"], capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout.strip() == f"{PREFIX}0":
        return ""
    return f"no host names of its own for a process here (unshare --uts): {done.stderr.strip()}"


def wrapper() -> list[str]:
    """Starts mpirun, which is on the first of them."""
    return [str(AGENT), "--exec", f"{PREFIX}0"]


def mpirun_arguments(hosts: int, np: int) -> list[str]:
    """The ranks by host, as evenly as can be, the first host's first."""
    if not 2 <= hosts <= np:
        raise ValueError(f"{hosts} hosts for {np} ranks")
    slots = [np // hosts + (1 if host < np % hosts else 0) for host in range(hosts)]
    # Open MPI does not know that the hosts share the cores: a rank that waits for a lock would not let its holder run.
    return ["-H", ",".join(f"{PREFIX}{host}:{slots[host]}" for host in range(hosts)), *launcher(),
            "--mca", "mpi_yield_when_idle", "1", "--mca", "btl_mend_test_one_machine", "1"]


def launcher() -> list[str]:
    """How mpirun reaches the hosts. 5.0 fills the first host's cores beyond its slots unless told to go by slots, and its
    daemons do not talk over the loopback interface while there is another."""
    if openmpi.major() >= 5:
        return ["--map-by", "slot", "--mca", "plm_ssh_agent", str(AGENT)]
    return ["--mca", "plm_rsh_agent", str(AGENT), "--mca", "oob_tcp_if_include", "lo"]
