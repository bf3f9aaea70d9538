"""Keeps the guests of one directory running, and ends them: when told to, when one of them ends, when nobody asked for
anything for a while, when the directory is gone. So whatever becomes of the program that started them, they do not stay.

Files of the directory: plan (what is booted), pid (of the supervisor), alive (touched by whoever still needs the
guests), share/ (/out in the guests: share/HOST/ready, N.cmd, N.out, N.rc; share/stop ends them), console.HOST, log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import machine
import needs
from machine import Plan

POWER_OFF_S = 8.0
EARLY = {"lock", "alive", "plan.new"}  # of a directory of ours that has no plan yet


class Supervisor:
    def __init__(self, plan: Plan, idle_s: float) -> None:
        self.plan = plan
        self.idle_s = idle_s
        self.guests: list[subprocess.Popen] = []
        self.scratch = Path(tempfile.mkdtemp(prefix="mend-rig-"))

    def boot(self) -> None:
        found = needs.kernel()
        if found is None:
            raise RuntimeError("there is no kernel with soft-RoCE")
        image, release = found
        initrd = self.scratch / "initrd"
        initrd.write_bytes(machine.initramfs(release))
        pairs = [socket.socketpair() for _ in range(self.plan.rails + 1)] if self.plan.guests > 1 else []
        for number, host in enumerate(self.plan.hosts):
            self.guests.append(machine.boot(self.plan, host, image, initrd, [pair[number] for pair in pairs]))
        for end in (end for pair in pairs for end in pair):
            end.close()  # the guests have them

    def idle(self) -> bool:
        try:
            return time.time() - (self.plan.directory / "alive").stat().st_mtime > self.idle_s
        except FileNotFoundError:
            return True  # nobody can ask for anything any more

    def run(self) -> None:
        try:
            self.boot()
            while not told(self.plan.directory) and not self.idle():
                if any(guest.poll() is not None for guest in self.guests):
                    (self.plan.share / "stop").write_text("a guest ended by itself")
                    break
                time.sleep(0.1)
        finally:
            self.end()

    def end(self) -> None:
        tell(self.plan.directory)  # in vain if somebody removed the directory: then they are killed
        until = time.monotonic() + POWER_OFF_S
        while any(guest.poll() is None for guest in self.guests) and time.monotonic() < until:
            time.sleep(0.05)
        for guest in self.guests:
            guest.kill()
            guest.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.plan.directory / "pid").unlink(missing_ok=True)


def foreign(directory: Path) -> str:
    """Why a directory must be left alone, empty if it need not: it is new, or it was ours before. Whose `share` it has
    matters, because that is removed."""
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error.strerror)
    if names <= EARLY:
        return ""
    try:
        plan = json.loads((directory / "plan").read_text())
    except (OSError, ValueError):
        plan = None
    ours = isinstance(plan, dict) and {"directory", "guests"} <= plan.keys() and "alive" in names
    return "" if ours else "it has other files and no plan of guests"


def fresh_directory(plan: Plan) -> None:
    described = {key: str(value) for key, value in asdict(plan).items()}
    (plan.directory / "alive").touch()
    # First, and in one piece: it says whose directory this is, also to whoever asks just now.
    (plan.directory / "plan.new").write_text(json.dumps(described))
    (plan.directory / "plan.new").rename(plan.directory / "plan")
    shutil.rmtree(plan.share, ignore_errors=True)
    for host in plan.hosts:
        (plan.share / host).mkdir(parents=True)
    (plan.share / "tmp").mkdir()


def start(plan: Plan, idle_s: float) -> subprocess.Popen:
    """A supervisor of its own session, which goes on when the caller ends."""
    fresh_directory(plan)
    words = [sys.executable, "-B", str(Path(__file__).resolve()), json.dumps(asdict(plan), default=str), str(idle_s)]
    with open(plan.directory / "log", "ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                   cwd="/")
    (plan.directory / "pid").write_text(f"{process.pid}\n")
    return process


def running(directory: Path) -> int | None:
    """The supervisor's pid if it lives. A pid that belongs to somebody else by now is not it."""
    try:
        pid = int((directory / "pid").read_text())
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if any(word.endswith(b"/supervisor.py") for word in words) else None


def tell(directory: Path) -> None:
    """Tells the guests to power off, and whoever waits for them that they do."""
    with suppress(FileNotFoundError):
        (directory / "share" / "stop").touch()


def told(directory: Path) -> bool:
    return (directory / "share" / "stop").exists()


def why_stopped(directory: Path) -> str:
    """Empty if somebody told the guests to stop."""
    try:
        return (directory / "share" / "stop").read_text()
    except OSError:
        return ""


def guests_of(directory: Path) -> int:
    """How many guests run; 0: none."""
    try:
        return int(json.loads((directory / "plan").read_text())["guests"]) if running(directory) is not None else 0
    except (OSError, ValueError, KeyError):
        return 0


def stop(directory: Path) -> None:
    """Tells the guests to power off and waits; insists after a while."""
    pid = running(directory)
    if pid is None:
        return
    tell(directory)
    for number, wait in ((0, POWER_OFF_S + 4), (signal.SIGTERM, POWER_OFF_S + 4), (signal.SIGKILL, 2.0)):
        os.kill(pid, number)
        until = time.monotonic() + wait
        while time.monotonic() < until:
            if running(directory) != pid:
                return
            time.sleep(0.05)


def main() -> None:
    described = json.loads(sys.argv[1])
    described["directory"] = Path(described["directory"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    Supervisor(Plan(**described), float(sys.argv[2])).run()


if __name__ == "__main__":
    main()
