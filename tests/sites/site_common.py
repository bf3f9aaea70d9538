"""What the site tests share: an installation in a temporary prefix, and an MPI run that proves it used mend.

The run is forced through mend (btl self,mend on the embedded device), because on one host Open MPI would prefer vader;
how the component is found is what the tests vary.
"""

import json
import os
import pathlib
import subprocess
import sys


def fail(text):
    print(text, flush=True)
    sys.exit(1)


def run(command, *, environment=None, timeout=120, cwd=None, shell=False):
    """Output of a command that must succeed."""
    try:
        done = subprocess.run(command, env=environment, timeout=timeout, cwd=cwd, shell=shell, text=True,
                              executable="/bin/bash" if shell else None, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as late:
        fail(f"not finished after {timeout} s: {command}\n{(late.stdout or b'')[-3000:]}")
    if done.returncode:
        fail(f"status {done.returncode}: {command}\n{done.stdout[-4000:]}")
    return done.stdout


def clean_environment(**more):
    """The caller's environment without anything that tells Open MPI or mend where things are."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "MEND_", "SOFTHCA_", "PMIX_", "SLURM_"))}
    if os.getuid() == 0:
        for launcher in ("OMPI", "PRTE"):  # mpirun, and 5.0's prterun
            environment.update({f"{launcher}_ALLOW_RUN_AS_ROOT": "1", f"{launcher}_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    environment.update({k: str(v) for k, v in more.items()})
    return environment


def major():
    """Of the Open MPI in the PATH."""
    return int(run(["mpirun", "--version"]).split("(Open MPI) ")[1].split(".")[0])


def through_mend(stats):
    """Variables that send a job's traffic through mend and have it write its counters to STATS.<rank>."""
    return {"OMPI_MCA_btl": "self,mend", "OMPI_MCA_btl_mend_verbs_library": "softhca", "OMPI_MCA_btl_mend_stats": stats,
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "SOFTHCA_FABRIC": f"sites{os.getpid()}"}


def install(build, prefix):
    run(["cmake", "--install", str(build), "--prefix", str(prefix)])
    for name in ("lib/openmpi/mca_btl_mend.so", "lib/openmpi/help-mpi-btl-mend.txt", "lib/libsofthca.so",
                 "lib/openmpi/libsofthca.so", "bin/softhcactl", "share/mend/mend-mca-params.conf",
                 "share/mend/slurm-job.sh", "share/mend/pbs-job.sh", "share/doc/mend/README.md"):
        if not (pathlib.Path(prefix) / name).exists():
            fail(f"cmake --install did not put {name} under the prefix")


def traffic(stats, ranks=2):
    """Bytes that mend sent according to its counters; fails when a rank wrote none or sent nothing."""
    total = 0
    for rank in range(ranks):
        path = pathlib.Path(f"{stats}.{rank}")
        if not path.exists():
            fail(f"rank {rank} wrote no counters, so mend was not loaded ({path})")
        counters = json.loads(path.read_text())
        if counters["bytes_sent"] <= 0:
            fail(f"no byte of rank {rank} went through mend: {counters}")
        total += counters["bytes_sent"]
    return total
