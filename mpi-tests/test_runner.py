#!/usr/bin/env python3
"""Tests the runner: it must tell a good run from every kind of bad one, and mend from another transport.

  test_runner.py BUILD_DIR
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flap  # noqa: E402
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()


def vader_run(mode: str, timeout: float = 30.0) -> jobs.Result:
    return jobs.run(jobs.Job(build=BUILD, np=2, program=BUILD / "mpi-tests" / "faulty", args=[mode],
                             btl="vader", timeout=timeout))


def stats_of(rank: int, **changes) -> dict:
    line = {"rank": rank, "sends": 5, "recvs": 5, "puts": 0, "gets": 0, "atomics": 0,
            "bytes_sent": 500, "bytes_received": 500, "dup_rx": 0, "srq_lost": 0, "srq_depth": 64,
            "qps_live_max": 3, "rails": [{"name": "a/1", "bytes_sent": 500, "bytes_received": 500}]}
    return line | changes


def mend_run(*ranks: dict, output: str = "mpi-test ok payload=1000\n", **changes) -> jobs.Result:
    texts = {one["rank"]: json.dumps(one) + "\n" for one in ranks}
    values = {"returncode": 0, "output": output, "seconds": 0.1, "timed_out": False,
              "left_processes": [], "left_files": [], "stats_text": texts}
    return jobs.Result(**(values | changes))


class RealJobs(unittest.TestCase):
    """Programs that misbehave, over vader."""

    def expect(self, mode: str, words: str, timeout: float = 30.0) -> None:
        result = vader_run(mode, timeout)
        wrong = verdict.faults(result, verdict.Demands(np=2, mend=False))
        self.assertTrue(any(words in line for line in wrong), f"{wrong}\n{result.output}")

    def test_good(self) -> None:
        result = vader_run("good")
        self.assertEqual(verdict.faults(result, verdict.Demands(np=2, mend=False)), [])

    def test_vader_is_not_taken_for_mend(self) -> None:
        wrong = verdict.faults(vader_run("good"), verdict.Demands(np=2))
        self.assertTrue(any("mend was not in use" in line for line in wrong), wrong)

    def test_corrupt(self) -> None:
        self.expect("corrupt", "exit status")

    def test_crash(self) -> None:
        self.expect("crash", "exit status")

    def test_hang_ends_and_leaves_nothing(self) -> None:
        self.expect("hang", "still running", timeout=2.0)

    def test_orphan(self) -> None:
        self.expect("orphan", "process left behind")

    def test_told_to_end_takes_the_job_along(self) -> None:
        runner = Path(__file__).resolve().parent / "run_mpi.py"
        words = [sys.executable, "-B", str(runner), "--build", str(BUILD), "--btl", "vader", "--np",
                 "2", "--program", "faulty", "--", "hang"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mine = []
        until = time.monotonic() + 15
        while len(mine) < 3 and time.monotonic() < until:  # mpirun and two ranks
            time.sleep(0.1)
            mine = descendants(process.pid)
        self.assertGreaterEqual(len(mine), 3)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        self.assertEqual([pid for pid in mine if alive(pid)], [])


def descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
            except OSError:
                continue
    found, frontier = [], [root]
    while frontier:
        frontier = [pid for pid, parent in parents.items() if parent in frontier]
        found += frontier
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Flaps(unittest.TestCase):
    def test_a_job_that_goes_on_before_softhcactl_ends_has_felt_the_flap(self) -> None:
        went_on = []

        def slow(_build: Path, _fabric: str, *_words: str) -> None:
            went_on.append(time.monotonic())  # by now the link is up, as far as the job can tell
            time.sleep(0.05)

        with mock.patch.object(flap, "softhcactl", slow):
            down, up = flap.break_link(BUILD, "none", 0.01, gids=False)
        stall = (down, went_on[-1])
        self.assertEqual(flap.standstill((down, up), [stall]), stall)


class Statistics(unittest.TestCase):
    """What the statistics of a run give away."""

    def expect(self, words: str, result: jobs.Result, **demands) -> None:
        wrong = verdict.faults(result, verdict.Demands(np=2, **demands))
        self.assertTrue(any(words in line for line in wrong), wrong)

    def test_good(self) -> None:
        result = mend_run(stats_of(0), stats_of(1))
        self.assertEqual(verdict.faults(result, verdict.Demands(np=2)), [])

    def test_a_rank_without_mend(self) -> None:
        self.expect("no statistics", mend_run(stats_of(0)))

    def test_less_than_the_payload(self) -> None:
        self.expect("moved 1001 bytes",
                    mend_run(stats_of(0), stats_of(1), output="mpi-test ok payload=1001\n"))

    def test_gets_count_on_the_reading_side(self) -> None:
        result = mend_run(stats_of(0, gets=1, bytes_received=9000), stats_of(1),
                          output="mpi-test ok payload=9000\n")
        self.assertEqual(verdict.faults(result, verdict.Demands(np=2)), [])

    def test_nothing_moved(self) -> None:
        idle = {"sends": 0, "recvs": 0, "bytes_sent": 0, "bytes_received": 0}
        self.expect("mend moved nothing", mend_run(stats_of(0, **idle), stats_of(1, **idle)))

    def test_a_lost_message(self) -> None:
        self.expect("10 messages were sent, 9", mend_run(stats_of(0, recvs=4), stats_of(1)))

    def test_a_doubled_message(self) -> None:
        self.expect("dup_rx", mend_run(stats_of(0, dup_rx=1), stats_of(1)))

    def test_a_lost_receive_buffer(self) -> None:
        self.expect("srq_lost", mend_run(stats_of(0), stats_of(1, srq_lost=2)))

    def test_a_recovery_without_a_fault(self) -> None:
        self.expect("nothing broke", mend_run(stats_of(0, recoveries=1), stats_of(1)))
        result = mend_run(stats_of(0, recoveries=1), stats_of(1))
        self.assertEqual(verdict.faults(result, verdict.Demands(np=2, healthy=False)), [])

    def test_too_few_receive_buffers(self) -> None:
        self.expect("want two for each", mend_run(stats_of(0, srq_depth=5), stats_of(1)))

    def test_a_counter_that_must_move(self) -> None:
        self.expect("puts is 0", mend_run(stats_of(0), stats_of(1)), moves=("puts",))

    def test_a_counter_that_must_not_move(self) -> None:
        self.expect("gets is 1", mend_run(stats_of(0, gets=1), stats_of(1)), still=("gets",))

    def test_one_rail_of_two(self) -> None:
        rails = [{"name": "a/1", "bytes_sent": 500, "bytes_received": 500},
                 {"name": "a/2", "bytes_sent": 0, "bytes_received": 0}]
        idle = mend_run(stats_of(0, rails=rails), stats_of(1, rails=rails))
        self.expect("1 rail(s) carried bytes", idle, rails=2, striped=True)
        self.expect("2 rail(s), want 3", idle, rails=3)

    def test_a_file_left_in_shared_memory(self) -> None:
        self.expect("file left", mend_run(stats_of(0), stats_of(1), left_files=["/dev/shm/x"]))

    def test_a_spawned_job_counts_too(self) -> None:
        child = {"2.0": json.dumps(stats_of(0, sends=7, recvs=6)) + "\n"}
        family = mend_run(stats_of(0), stats_of(1), spawned_text=child)
        self.expect("statistics of 1 spawned processes", family)
        self.expect("17 messages were sent, 16", family, more_ranks=True)
        self.expect("statistics of 0 spawned processes", mend_run(stats_of(0), stats_of(1)), more_ranks=True)

    def test_noise_and_sanitizer_reports(self) -> None:
        talk = "mpi-test ok payload=1\n"
        self.expect("not silent", mend_run(stats_of(0), stats_of(1), output=talk + "[mend] hello"))
        self.expect("runtime error",
                    mend_run(stats_of(0), stats_of(1), output=talk + "a.cpp:1: runtime error: x"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
