"""What the bad-input tests share: how a job is started with something wrong, and how it may end.

A component that cannot work has two duties: another BTL carries the job if there is one, and if there is none the job
ends soon, with a message that names the cause. It never hangs and never crashes.
"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
CRASH = re.compile(r":(\d+)\] Signal: |(exited on signal|Assertion .* failed|terminate called)")
WITH_VADER = "self,vader,mend"
ALONE = "self,mend"


def ring(btl: str, timeout: float = 30.0, np: int = 2, **changes) -> jobs.Job:
    return jobs.Job(build=BUILD, np=np, program=BUILD / "mpi-tests" / "ring", args=["--quick"],
                    btl=btl, timeout=timeout, **changes)


def reflowed(output: str) -> str:
    """Open MPI wraps and aggregates messages: one line, single spaces."""
    return " ".join(output.split())


def crashes(result: jobs.Result) -> list[str]:
    """Signs of a crash of a rank. mpirun 4.1's own crash in PMIx_server_finalize after an abort is not ours."""
    return [found.group(0) for found in CRASH.finditer(result.output)
            if found.group(1) != str(result.mpirun_pid)]


class BadInput(unittest.TestCase):
    def run_job(self, job: jobs.Job) -> jobs.Result:
        result = jobs.run(job)
        self.assertFalse(result.timed_out, f"hangs\n{result.output}")
        self.assertEqual(crashes(result), [], result.output)
        self.assertEqual(result.left_processes, [], result.output)
        if result.returncode == 0:  # what an aborted job leaves is the next job's to sweep
            self.assertEqual(result.left_files, [], result.output)
        return result

    def says(self, result: jobs.Result, *words: str) -> None:
        text = reflowed(result.output)
        for word in words:
            self.assertIn(word, text, f"not said: {word}\n{result.output}")

    def silent(self, result: jobs.Result) -> None:
        said = [line for line in result.output.splitlines() if re.search(r"\bmend\b|softhca", line)]
        self.assertEqual(said, [], result.output)

    def in_a_line(self, result: jobs.Result, *words: str) -> None:
        """mend says one line, and all of the words are in it."""
        lines = [line for line in result.output.splitlines() if "] mend: " in line]
        self.assertEqual(len(lines), 1, result.output)
        for word in words:
            self.assertIn(word, lines[0])

    def works(self, result: jobs.Result) -> None:
        self.assertEqual(result.returncode, 0, result.output)
        self.assertIn("mpi-test ok", result.output)

    def carried_by_mend(self, result: jobs.Result, np: int = 2, **demands) -> None:
        wrong = verdict.faults(result, verdict.Demands(np=np, **demands))
        self.assertEqual(wrong, [], result.output)

    def refused(self, *words: str, **changes) -> None:
        """With vader the job works and the message is seen; alone it ends with an error and the message."""
        result = self.run_job(ring(WITH_VADER, **changes))
        self.works(result)
        self.says(result, *words)
        result = self.run_job(ring(ALONE, **changes))
        self.assertNotEqual(result.returncode, 0, result.output)
        self.says(result, *words)

    def refused_in_a_line(self, *words: str, preload: str) -> None:
        """The same, with a library of these tests in the ranks, and in one line however many ranks there are."""
        library = BUILD / "mpi-tests" / f"lib{preload}.so"
        for btl in (WITH_VADER, ALONE):
            with self.subTest(btl=btl):
                result = self.run_job(ring(btl, rank_env={"LD_PRELOAD": str(library)}))
                self.assertEqual(result.returncode == 0, btl == WITH_VADER, result.output)
                self.in_a_line(result, *words)

    def steps_aside(self, verbose_word: str, **changes) -> None:
        """Not an error: nothing is said, vader carries the job; one line at verbosity 1."""
        result = self.run_job(ring(WITH_VADER, **changes))
        self.works(result)
        self.silent(result)
        mca = [*changes.pop("mca", []), ("btl_base_verbose", "1")]
        result = self.run_job(ring(WITH_VADER, mca=mca, **changes))
        self.works(result)
        self.says(result, verbose_word)

    def bounded(self, job: jobs.Job, *words: str) -> jobs.Result:
        """Works, or ends with a message that names one of `words`."""
        result = self.run_job(job)
        if result.returncode != 0:
            text = reflowed(result.output)
            self.assertRegex(text, "mend, the self-healing RDMA transport|softhca: ", result.output)
            self.assertTrue(any(word in text for word in words), result.output)
        return result
