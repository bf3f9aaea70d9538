#!/usr/bin/env python3
"""Tests what of the soft-RoCE tests needs no guest: whose directory is taken, who waits for whom, what is kept, how a
program that is told to end does; and that broken queue pairs are counted for what they are."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from argparse import Namespace
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cluster  # noqa: E402
import needs  # noqa: E402
import one  # noqa: E402
import supervisor  # noqa: E402
from machine import Plan  # noqa: E402

SOON_S = 10.0


def run_cluster(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-B", str(HERE / "cluster.py"), *words], capture_output=True, text=True, timeout=30,
                          check=False)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="mend-guests-")
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name) / "rig"
        self.plan = Plan(directory=self.directory)

    def ours(self) -> None:
        """As a supervisor leaves it."""
        self.directory.mkdir()
        supervisor.fresh_directory(self.plan)


class Directories(Case):
    def refused(self, *words: str) -> None:
        before = sorted(self.directory.rglob("*"))
        done = run_cluster(words[0], "--dir", str(self.directory), *words[1:])
        self.assertEqual(done.returncode, 125, done.stdout + done.stderr)
        self.assertIn(f"{self.directory} is not a cluster directory: ", done.stdout)
        self.assertEqual(sorted(self.directory.rglob("*")), before)

    def test_others_are_left_alone(self) -> None:
        (self.directory / "share" / "applications").mkdir(parents=True)
        for words in (("exec", "--", "true"), ("run", "--", "true"), ("stop",)):
            self.refused(*words)

    def test_a_plan_of_something_else_is_none(self) -> None:
        (self.directory / "share").mkdir(parents=True)
        (self.directory / "alive").touch()
        for content in ("", "[1]", '{"the plan": "take over the world"}'):
            (self.directory / "plan").write_text(content)
            self.refused("exec", "--", "true")

    def test_a_file_is_no_directory(self) -> None:
        self.directory.write_text("precious")
        self.refused("exec", "--", "true")

    def test_new_and_empty_ones_are_taken(self) -> None:
        self.assertEqual(supervisor.foreign(self.directory), "")
        self.directory.mkdir()
        self.assertEqual(supervisor.foreign(self.directory), "")
        (self.directory / "lock").touch()  # somebody else is about to boot
        self.assertEqual(supervisor.foreign(self.directory), "")

    def test_ours_is_taken_again(self) -> None:
        self.ours()
        self.assertEqual(supervisor.foreign(self.directory), "")
        self.assertEqual(run_cluster("stop", "--dir", str(self.directory)).returncode, 0)

    def test_stop_makes_none(self) -> None:
        self.assertEqual(run_cluster("stop", "--dir", str(self.directory)).returncode, 0)
        self.assertFalse(self.directory.exists())


class Stopping(Case):
    def test_stop_ends_a_command_that_hangs(self) -> None:
        """stop gets the lock although the command would never give it back by itself, and the command says why."""
        self.ours()
        said = []

        def hang() -> None:
            with cluster.only_one(self.directory), mock.patch.object(supervisor, "running", lambda _: 1):
                try:
                    cluster.Cluster(self.plan, 60.0, 0.0).run("sleep 1000", "a", 600.0)
                except cluster.ClusterError as error:
                    said.append(str(error))

        hanging = threading.Thread(target=hang, daemon=True)
        hanging.start()
        while not list((self.plan.share / "a").glob("*.cmd")):
            time.sleep(0.01)
        began = time.monotonic()
        self.assertEqual(run_cluster("stop", "--dir", str(self.directory)).returncode, 0)
        self.assertLess(time.monotonic() - began, SOON_S)
        hanging.join(SOON_S)
        self.assertEqual(said, ["the guests were told to stop while the command ran"])

    def test_a_directory_that_vanished_ends_a_supervisor_and_its_scratch(self) -> None:
        ending = supervisor.Supervisor(self.plan, 60.0)
        guest = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(guest.kill)
        ending.guests.append(guest)
        with mock.patch.object(ending, "boot"), mock.patch.object(supervisor, "POWER_OFF_S", 0.1):
            ending.run()
        self.assertIsNotNone(guest.returncode)
        self.assertFalse(ending.scratch.exists())

    def test_a_directory_that_vanished_ends_a_command(self) -> None:
        with self.assertRaisesRegex(cluster.ClusterError, "is gone"):
            cluster.Cluster(self.plan, 60.0, 0.0).alive()

    def test_a_closed_terminal_ends_it_as_sigterm_does(self) -> None:
        program = f"import sys, time; sys.path.insert(0, {str(HERE)!r}); import cluster; cluster.unwind_on_signals()\n" \
                  "try: print('up', flush=True); time.sleep(1000)\nfinally: print('unwound', flush=True)"
        for number in (signal.SIGTERM, signal.SIGHUP):
            process = subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.PIPE, text=True)
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(number)
            self.assertEqual(process.communicate(timeout=SOON_S)[0], "unwound\n")
            self.assertEqual(process.returncode, 128 + number)


class Keeping(Case):
    def kept(self, status: int, action: str, fresh: bool) -> bool:
        """Whether the guests stay after a command with this exit status."""
        options = Namespace(action=action, fresh_after_failure=fresh, guests=1, rails=1, memory=1, cpus=0, accel="tcg", idle=1.0,
                            newer=[], command=["true"], boot_timeout=1.0, timeout=1.0, on="a")
        with mock.patch.object(cluster.Cluster, "start"), mock.patch.object(cluster.Cluster, "run", return_value=status), \
                mock.patch.object(supervisor, "stop") as stop:
            self.assertEqual(cluster.run_command(options, self.directory), status)
        return not stop.called

    def test_guests_in_which_a_test_failed_do_not_serve_the_next(self) -> None:
        self.assertFalse(self.kept(1, "exec", fresh=True))
        self.assertTrue(self.kept(0, "exec", fresh=True))
        self.assertTrue(self.kept(needs.SKIPPED, "exec", fresh=True))

    def test_guests_of_a_person_stay(self) -> None:
        self.assertTrue(self.kept(1, "exec", fresh=False))
        self.assertFalse(self.kept(0, "run", fresh=False))


class Locks(Case):
    def test_commands_run_one_after_the_other(self) -> None:
        self.directory.mkdir()
        with cluster.only_one(self.directory), open(self.directory / "lock", "wb") as other:
            with self.assertRaises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


class Hits(unittest.TestCase):
    def test_together(self) -> None:
        self.assertEqual(one.missing_hits(["0", "1"], {"0": [1.0, 2.0], "1": [1.5, 2.05]}), [])

    def test_often_but_never_together(self) -> None:
        wrong = one.missing_hits(["0", "1"], {"0": [1.0, 2.0], "1": [1.5, 2.5]})
        self.assertEqual(wrong, ["queue pairs of ranks 0 and 1 were never broken in the same instant"])

    def test_one_rank_need_not_be_together_with_anybody(self) -> None:
        self.assertEqual(one.missing_hits(["1"], {"1": [1.0, 2.0]}), [])

    def test_too_few(self) -> None:
        self.assertEqual(one.missing_hits(["0"], {}), ["queue pairs of rank 0 were broken 0 times, want 2"])


class Words(Case):
    """What is said of a command line, or of guests, that cannot do."""

    def test_a_guest_that_is_not_booted_is_refused_before_anything_is(self) -> None:
        for words in (("run",), ("exec", "--dir", str(self.directory))):
            done = run_cluster(*words, "--on", "b", "--", "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn("there is no guest b: --guests 2", done.stderr)
        self.assertFalse(self.directory.exists())

    def test_a_command_without_dashes_in_front(self) -> None:
        done = run_cluster("run", "ibv_devinfo")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ibv_devinfo (a command for the guest follows --)", done.stderr)

    def test_a_guest_that_ends_by_itself_was_not_told_to(self) -> None:
        (self.directory / "share").mkdir(parents=True)
        (self.directory / "console.a").write_text("no such accelerator\n")
        (self.directory / "share/stop").write_text("a guest ended by itself")
        with self.assertRaisesRegex(cluster.ClusterError, "^a guest ended by itself while they booted\n(.*\n)*no such accel"):
            cluster.Cluster(self.plan, 60.0, 0.0).wanted("they booted")

    def test_as_many_guests_as_run(self) -> None:
        self.directory.mkdir()
        (self.directory / "plan").write_text('{"guests": "2"}')
        self.assertEqual(supervisor.guests_of(self.directory), 0)
        with mock.patch.object(supervisor, "running", return_value=1):
            self.assertEqual(supervisor.guests_of(self.directory), 2)


if __name__ == "__main__":
    unittest.main()
