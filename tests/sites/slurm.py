"""The Slurm job script, run by a Slurm of this test's own: one controller, one node, own munge, all in a directory.

Usage: slurm.py BUILD_DIR PROGRAM. Nothing of a Slurm that the machine may have is touched; the daemons that were
started are stopped by their process ids.
"""

import getpass
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import site_common as site

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def configuration(work, node):
    """One node, no accounting, no cgroups: what runs in a container as an ordinary user."""
    user = getpass.getuser()
    return f"""ClusterName=mendtest
SlurmctldHost={node}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={work}/munge/socket
CredType=cred/munge
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={node} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes={node} Default=YES MaxTime=10 State=UP
"""


class Cluster:
    """The daemons, in the foreground as children of this process, so that they end with it."""

    def __init__(self, work):
        self._work = work
        self._children = []
        self.node = socket.gethostname().split(".")[0]
        self.environment = site.clean_environment(SLURM_CONF=work / "slurm.conf")

    def start(self):
        munge = self._work / "munge"
        munge.mkdir(mode=0o700)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o600)
        for directory in ("state", "spool"):
            (self._work / directory).mkdir()
        (self._work / "slurm.conf").write_text(configuration(self._work, self.node))
        # --force: the directory is in /tmp, which munged would not trust on a shared machine; its mode is 0700.
        self._spawn(["munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                     f"--seed-file={munge}/seed", f"--log-file={munge}/log"])
        self._until("munged", lambda: (munge / "socket").exists())
        self._spawn(["slurmctld", "-D", "-i"])
        self._spawn(["slurmd", "-D", "-N", self.node])
        self._until("the node", lambda: "State=IDLE" in self._ask("scontrol", "show", "node", self.node))

    def job(self, job_id):
        return self._ask("scontrol", "show", "job", job_id)

    def stop(self):
        for child in reversed(self._children):
            child.terminate()
        for child in reversed(self._children):
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def logs(self):
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-2500:]}" for p in sorted(self._work.glob("*.log")))

    def _spawn(self, command):
        output = open(self._work / f"{command[0]}.out.log", "w", encoding="utf-8")
        self._children.append(subprocess.Popen(command, env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL))

    def _ask(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30).stdout

    def _until(self, what, condition, seconds=45):
        end = time.monotonic() + seconds
        while not condition():
            dead = [c.args[0] for c in self._children if c.poll() is not None]
            if dead or time.monotonic() > end:
                site.fail(f"{what} is not up; ended already: {dead}\n{self.logs()}")
            time.sleep(0.2)


def run_job(cluster, work, program):
    script = work / "prefix/share/mend/slurm-job.sh"
    variables = {"MEND_PREFIX": str(work / "prefix"), **{k: str(v) for k, v in site.through_mend(work / "stats").items()}}
    environment = {**cluster.environment, **variables}
    output = site.run(["sbatch", "--parsable", f"--output={work}/job.out", str(script), program], environment=environment)
    job_id = output.split()[-1].split(";")[0]
    end = time.monotonic() + 90
    while "JobState=COMPLETED" not in (state := cluster.job(job_id)):
        if any(f"JobState={bad}" in state for bad in ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")) or time.monotonic() > end:
            said = (work / "job.out").read_text() if (work / "job.out").exists() else ""
            site.fail(f"the job did not complete:\n{state}\n{said}\n{cluster.logs()}")
        time.sleep(0.3)
    if "NumTasks=2" not in state:
        site.fail(f"the job script did not ask for two tasks:\n{state}")
    print((work / "job.out").read_text()[-1500:])
    print(f"{site.traffic(work / 'stats')} bytes went through mend in Slurm job {job_id}")


def main():
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed (check --full installs them)")
        sys.exit(77)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    build, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    work = pathlib.Path(tempfile.mkdtemp(prefix="mend-slurm."))
    cluster = Cluster(work)
    try:
        site.install(build, work / "prefix")
        cluster.start()
        run_job(cluster, work, program)
    finally:
        cluster.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
