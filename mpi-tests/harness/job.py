"""Starts one mpirun job, bounds it in time, and leaves nothing behind.

Every process of a job carries MEND_TEST_RUN=<id> in its environment, so what belongs to it is found whatever process
group or session it moved to, and nothing else is ever signalled. Every job has its own softhca fabric.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from . import hosts, openmpi

MARK = "MEND_TEST_RUN"
GRACE_S = 15.0  # how long a process may need to end after mpirun has; only one that is left behind takes so long
UNDER_WAY = "under way"  # what programs say that are broken into from outside (programs/curfew.h)
UNDER_WAY_S = 30.0
ENOUGH = "enough"  # for --until: a file in the job's directory, where its ranks start


@dataclass
class Job:
    """What to run. `btl` is mend, tcp, vader or a literal list such as "self,vader,mend"."""

    build: Path
    np: int
    program: Path
    args: list[str] = field(default_factory=list)
    btl: str = "mend"
    mca: list[tuple[str, str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    rank_env: dict[str, str] = field(default_factory=dict)  # for the ranks only (LD_PRELOAD)
    mpirun_args: list[str] = field(default_factory=list)
    timeout: float = 60.0
    fabric: str | None = ""  # "" = one of its own, None = what the component chooses
    wrapper: list[str] = field(default_factory=list)  # starts mpirun
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)  # resource limits
    hosts: int = 1  # more than one: hosts.py
    base: Path | None = None  # where its files go: with ranks on several hosts, a directory that all of them have


@dataclass
class Result:
    returncode: int
    output: str
    seconds: float
    timed_out: bool
    left_processes: list[str]
    left_files: list[str]
    stats_text: dict[int, str]  # rank -> content of its stats file
    mpirun_pid: int = 0
    spawned_text: dict[str, str] = field(default_factory=dict)  # "job.rank" of a spawned job -> the same


def mca_arguments(job: Job) -> list[str]:
    btl = openmpi.btl_list(job.btl if "," in job.btl else f"self,{job.btl}")
    pairs = [("pml", "ob1"), ("btl", btl), ("osc", openmpi.one_sided(btl))]
    pairs.append(("btl_base_warn_component_unused", "0"))
    if "mend" in btl:
        pairs.append(("mca_base_component_path", f"{job.build / 'components'}:SYSTEM_DEFAULT"))
        pairs.append(("btl_mend_verbs_library", "softhca"))
    named = {key for key, _ in job.mca}
    merged = [pair for pair in pairs if pair[0] not in named] + job.mca
    return [word for key, value in merged for word in ("--mca", key, value)]


def environment(job: Job, run_id: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_MCA_", "SOFTHCA_"))}
    env[MARK] = run_id
    if job.fabric is not None:
        env["SOFTHCA_FABRIC"] = job.fabric or f"t{run_id}"
    if os.geteuid() == 0 or job.hosts > 1:
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    env.update(openmpi.environment())
    env.update(job.env)
    return env


def command(job: Job, stats_prefix: str) -> list[str]:
    several = job.hosts > 1
    words = [*job.wrapper, *(hosts.wrapper() if several else []), "mpirun", "--oversubscribe", "-np", str(job.np), *mca_arguments(job)]
    if "mend" in job.btl:
        words += ["--mca", "btl_mend_stats", stats_prefix]
    if several:
        words += hosts.mpirun_arguments(job.hosts, job.np)
    for key, value in job.rank_env.items():
        words += ["-x", f"{key}={value}"]
    return [*words, *job.mpirun_args, str(job.program), *job.args]


def processes_of(run_id: str) -> dict[int, str]:
    """pid -> command line of every living process that carries the mark."""
    needle = f"{MARK}={run_id}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state != "Z":
            found[int(entry.name)] = words.strip()
    return found


def ranks_of(run_id: str, program: str) -> dict[int, int]:
    """rank -> pid of the processes of a job that run `program`."""
    found = {}
    for pid, words in processes_of(run_id).items():
        if Path(words.split(" ")[0]).name != program:
            continue
        try:
            variables = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {int(v.partition(b"=")[2]): pid for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")}
    return found


def signal_all(run_id: str, number: int) -> None:
    for pid in processes_of(run_id):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def kill_all(run_id: str) -> None:
    """Asks mpirun and the ranks to end, then insists."""
    for number, wait in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        signal_all(run_id, signal.SIGCONT)
        signal_all(run_id, number)
        until = time.monotonic() + wait
        while processes_of(run_id) and time.monotonic() < until:
            time.sleep(0.05)


def stacks(run_id: str) -> str:
    """Where the processes of a job hang, for the log of a test that ran out of time."""
    if shutil.which("gdb") is None:
        return ""
    text = []
    for pid, words in list(processes_of(run_id).items())[:8]:
        if words.startswith("mpirun"):
            continue
        gdb = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off",
               "-ex", "thread apply all bt 14"]
        try:
            done = subprocess.run(gdb, capture_output=True, text=True, timeout=20, check=False)
        except subprocess.TimeoutExpired:
            continue
        kept = [line for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]
        text.append(f"--- pid {pid}: {words}\n" + "\n".join(kept))
    return "\n".join(text)


def files_of(fabric: str | None) -> list[str]:
    if fabric is None:
        return []
    return sorted(str(p) for p in Path("/dev/shm").glob(f"softhca.{fabric}.*"))


def set_limits(job: Job):
    import resource

    def apply() -> None:
        for which, value in job.limits.items():
            resource.setrlimit(which, value)

    return apply if job.limits else None


def end_on_sigterm() -> None:
    """A program that is told to end unwinds, and its jobs with it; without this they would run on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Running:
    """A job under way; `finish()` waits for it, judges nothing, cleans up and says what was left behind."""

    def __init__(self, job: Job) -> None:
        end_on_sigterm()
        self.job = job
        self.run_id = uuid.uuid4().hex[:12]
        self.directory = tempfile.TemporaryDirectory(prefix="mend-mpi-", dir=job.base)
        self.output_path = Path(self.directory.name) / "output"
        self.env = environment(job, self.run_id)
        self.fabric = self.env.get("SOFTHCA_FABRIC")
        self.started = time.monotonic()
        prefix = str(Path(self.directory.name) / "stats")
        with open(self.output_path, "wb") as out:
            self.process = subprocess.Popen(
                command(job, prefix), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env=self.env, cwd=self.directory.name,
                start_new_session=True, preexec_fn=set_limits(job))

    def finish(self, keep_files: bool = False) -> Result:
        timed_out = False
        extra = ""
        try:
            try:
                self.process.wait(timeout=max(0.1, self.job.timeout - self.elapsed()))
            except subprocess.TimeoutExpired:
                timed_out = True
                extra = "\n" + stacks(self.run_id)
            seconds = self.elapsed()
            left = [] if timed_out else self.wait_for_leftovers()
        finally:
            kill_all(self.run_id)
        self.process.wait()
        output = self.output_path.read_text(errors="replace") + extra
        files = files_of(self.fabric)
        if not keep_files:
            for name in files:
                Path(name).unlink(missing_ok=True)
        stats = {p.name.partition(".")[2]: p.read_text(errors="replace")
                 for p in Path(self.directory.name).glob("stats.*")}
        self.directory.cleanup()
        return Result(self.process.returncode, output, seconds, timed_out, left, files,
                      {int(name): text for name, text in stats.items() if name.isdigit()}, self.process.pid,
                      {name: text for name, text in stats.items() if not name.isdigit()})

    def under_way(self) -> bool:
        """Waits until the ranks have exchanged something: before that, what breaks would break MPI_Init."""
        until = time.monotonic() + UNDER_WAY_S
        going = True
        while going and time.monotonic() < until:
            going = self.process.poll() is None
            if UNDER_WAY in self.output_path.read_text(errors="replace").splitlines():
                return True
            time.sleep(0.02 if going else 0)
        return False

    def enough(self) -> None:
        """Lets a program end that was started with --until ENOUGH."""
        (Path(self.directory.name) / ENOUGH).touch()

    def wait(self, limit: float) -> bool:
        """Until mpirun is over, at most so many seconds; whether it is."""
        try:
            self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            return False
        return True

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def wait_for_leftovers(self) -> list[str]:
        until = time.monotonic() + GRACE_S
        while (left := processes_of(self.run_id)) and time.monotonic() < until:
            time.sleep(0.05)
        return [f"{pid} {words}" for pid, words in left.items()]


def run(job: Job) -> Result:
    return Running(job).finish()
