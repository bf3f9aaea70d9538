#!/usr/bin/env python3
"""Virtual machines with the kernel's soft-RoCE: real verbs without RDMA hardware.

  cluster.py run [--guests 2] [--rails N] [options] -- COMMAND WORD...   boot, run the command on guest a, power off
  cluster.py exec --dir DIR [--guests 2] [options] -- COMMAND WORD...    the same, but the guests stay for the next one
  cluster.py stop --dir DIR                                              power off
  cluster.py needs                                                       which packages are missing

Guests boot the packaged kernel of this machine and see its whole file system, read-only; what they change is gone when
they end. /out is shared with the host (DIR/share) and between them. Each rail is a network with the soft-RoCE device
rxeN on railN, 198.18.1N.1 on guest a and .2 on b. From a, `rsh.py b COMMAND` ($MEND_RSH) reaches b. One guest has no
peer: its rails loop back, and a link that is set down does not stop a loop.

The exit status is the command's; 77 if a package is missing, 125 if the guests did not come up or did not answer in time,
were stopped meanwhile, or if DIR has other files already.
Commands of one DIR run one after the other; one that is interrupted takes the guests with it.
Logs: DIR/console.a, console.b, log. Guests that are not asked for anything for --idle seconds end by themselves.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import needs  # noqa: E402
import supervisor  # noqa: E402
from machine import GUEST, Plan  # noqa: E402

FAILED = 125
ENVIRONMENT = {"MEND_RSH": str(GUEST / "rsh.py"), "PYTHONDONTWRITEBYTECODE": "1"}


class ClusterError(Exception):
    pass


class Cluster:
    """The guests of a directory, seen from the machine that runs them."""

    def __init__(self, plan: Plan, idle_s: float, newest: float) -> None:
        self.plan = plan
        self.idle_s = idle_s
        self.newest = newest  # files the guests must have seen are not younger than this

    def alive(self) -> None:
        try:
            (self.plan.directory / "alive").touch()
        except FileNotFoundError:
            raise ClusterError(f"{self.plan.directory} is gone") from None

    def wanted(self, what: str) -> None:
        """Whoever waits for the guests says so, and ends when they are told to stop (cluster.py stop)."""
        self.alive()
        if supervisor.told(self.plan.directory):
            why = supervisor.why_stopped(self.plan.directory)
            raise ClusterError(f"{why} while {what}\n{self.consoles()}" if why else f"the guests were told to stop while {what}")

    def usable(self) -> bool:
        """Guests run that are as planned, and nothing was built since they looked at the files."""
        directory = self.plan.directory
        if supervisor.running(directory) is None or supervisor.told(directory):
            return False
        planned = {key: str(value) for key, value in asdict(self.plan).items()}
        try:
            return (json.loads((directory / "plan").read_text()) == planned
                    and (directory / "plan").stat().st_mtime >= self.newest)
        except (OSError, ValueError):
            return False

    def start(self, limit: float) -> None:
        self.alive()
        if self.usable():
            return
        supervisor.stop(self.plan.directory)
        began = time.monotonic()
        process = supervisor.start(self.plan, self.idle_s)
        while missing := [host for host in self.plan.hosts if not (self.plan.share / host / "ready").exists()]:
            self.wanted("they booted")
            if process.poll() is not None:
                raise ClusterError(f"the guests ended while they booted\n{self.consoles()}")
            if time.monotonic() - began > limit:
                raise ClusterError(f"guest {' and '.join(missing)} not up after {limit:.0f} s\n{self.consoles()}")
            time.sleep(0.1)
        print(f"cluster: {self.plan.guests} guest(s) up after {time.monotonic() - began:.1f} s", flush=True)

    def consoles(self) -> str:
        text = ""
        for name in ("log", *(f"console.{host}" for host in self.plan.hosts)):
            path = self.plan.directory / name
            if path.exists():
                text += f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-20:]) + "\n"
        return text

    def run(self, words: str, host: str, limit: float) -> int:
        """Runs a command on a guest and passes on what it says while it says it."""
        box = self.plan.share / host
        name = f"{time.time_ns()}"
        out, status = box / f"{name}.out", box / f"{name}.rc"
        temporary = box / f"{name}.new"
        temporary.write_text(words)
        temporary.rename(box / f"{name}.cmd")
        until = time.monotonic() + limit
        shown = 0
        while True:
            done = status.exists()
            if out.exists():
                with open(out, "rb") as file:
                    file.seek(shown)
                    data = file.read()
                shown += len(data)
                sys.stdout.buffer.write(data)
                sys.stdout.flush()
            if done:
                return int(status.read_text())
            self.wanted("the command ran")
            if supervisor.running(self.plan.directory) is None:
                raise ClusterError(f"the guests ended while the command ran\n{self.consoles()}")
            if time.monotonic() > until:
                raise ClusterError(f"the command did not end in {limit:.0f} s")
            time.sleep(0.1)


@contextmanager
def only_one(directory: Path, waiting: Callable[[Path], None] = lambda _: None):
    """Commands of one directory run one after the other; whoever waits calls `waiting` again and again."""
    said = False
    with open(directory / "lock", "wb") as lock:
        while True:
            waiting(directory)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    print(f"cluster: waiting until another command in {directory} has ended", file=sys.stderr, flush=True)
                said = True
                time.sleep(0.1)
        yield


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """What is before the first -- and what is behind it. argparse takes options of the command for its own."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1:]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="cluster.py run|exec|stop|needs [options] [-- COMMAND WORD...]")
    add = parser.add_argument
    add("action", choices=("run", "exec", "stop", "needs"))
    add("--dir", type=Path, help="where sockets, logs and the shared directory are (run: a temporary directory)")
    add("--guests", type=int, choices=(1, 2), default=0, help="default: as many as run in DIR, else 1")
    add("--rails", type=int, choices=(1, 2, 3, 4), default=1, help="networks with a soft-RoCE device")
    add("--memory", type=int, default=3072, metavar="MiB", help="of each guest")
    add("--cpus", type=int, default=0, help="of each guest (default: 2 of a single one, 1 of two)")
    add("--accel", choices=("tcg", "kvm"), default="tcg", help="tcg emulates and works anywhere; kvm is fast")
    add("--on", choices=("a", "b"), default="a", help="the guest that runs the command")
    add("--boot-timeout", type=float, default=300.0, metavar="S")
    add("--timeout", type=float, default=600.0, metavar="S", help="of the command")
    add("--idle", type=float, default=60.0, metavar="S", help="guests nobody asks for anything end after this time")
    add("--newer", type=Path, action="append", default=[], metavar="PATH",
        help="exec: guests that were booted before this file, or a file of this directory, was changed are replaced")
    add("--fresh-after-failure", action="store_true",
        help="exec: guests in which the command failed end, so that the next command gets others (77 is no failure)")
    own, command = split(sys.argv[1:])
    options, unknown = parser.parse_known_args(own)
    if unknown:
        parser.error(f"unrecognized: {' '.join(unknown)} (a command for the guest follows --)")
    options.command = command
    if options.action in ("exec", "stop") and options.dir is None:
        parser.error(f"{options.action} needs --dir")
    if options.action in ("run", "exec") and not options.command:
        parser.error(f"{options.action} needs a command, after --")
    options.guests = options.guests or (supervisor.guests_of(options.dir) if options.dir is not None else 0) or 1
    if options.on == "b" and options.guests == 1:
        parser.error("there is no guest b: --guests 2")
    return options


def changed(paths: list[Path]) -> float:
    """When the newest of these files, or of the files of these directories, was changed. What runs in the guests from
    here counts as well: they keep what they have once read."""
    files = [file for path in [*paths, HERE, GUEST, HERE.parent, HERE.parent / "harness"]
             for file in (path.iterdir() if path.is_dir() else [path])]
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)


def run_command(options: argparse.Namespace, directory: Path) -> int:
    plan = Plan(directory=directory.resolve(), guests=options.guests, rails=options.rails, memory=options.memory,
                cpus=options.cpus, accel=options.accel)
    cluster = Cluster(plan, options.idle, changed(options.newer))
    settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in ENVIRONMENT.items())
    words = options.command[0] if len(options.command) == 1 else shlex.join(options.command)
    directory.mkdir(parents=True, exist_ok=True)
    with only_one(directory):
        keep = False
        try:
            cluster.start(options.boot_timeout)
            status = cluster.run(f"export {settings}; {words}", options.on, options.timeout)
            keep = options.action == "exec" and (status in (0, needs.SKIPPED) or not options.fresh_after_failure)
        finally:
            # Whoever was interrupted leaves guests in the middle of something; so does a test that fails.
            if not keep:
                supervisor.stop(plan.directory)
    return status


def stop_command(directory: Path) -> int:
    """Also guests that somebody waits for: whatever hangs in them must not keep this from its turn."""
    if not directory.exists():
        print(f"cluster: there is no {directory}, so there are no guests of it")
        return 0
    with only_one(directory, supervisor.tell):
        supervisor.stop(directory)
    return 0


def unwind_on_signals() -> None:
    """A program that is told to end, or whose terminal was closed, ends its guests. nohup stays nohup."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda which, _: sys.exit(128 + which))


def main() -> int:
    options = parsed()
    if options.dir is not None and (why := supervisor.foreign(options.dir)):
        print(f"cluster FAILED: {options.dir} is not a cluster directory: {why}")
        return FAILED
    if options.action == "stop":
        return stop_command(options.dir)
    if packages := needs.missing():
        print(f"SKIPPED: soft-RoCE needs guests, and there are packages {needs.explain(packages)}")
        return needs.SKIPPED
    if options.action == "needs":
        print("nothing is missing")
        return 0
    unwind_on_signals()
    try:
        if options.dir is not None:
            return run_command(options, options.dir)
        with tempfile.TemporaryDirectory(prefix="mend-rig-") as directory:
            return run_command(options, Path(directory))
    except ClusterError as error:
        print(f"cluster FAILED: {error}")
        return FAILED
    except KeyboardInterrupt:
        print("cluster: interrupted, the guests have ended")
        return 130


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
