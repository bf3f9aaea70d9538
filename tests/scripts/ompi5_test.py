"""mpi-tests/ompi5.py: what it makes of answers that do not come, of versions and of a Debian that cannot be made."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi-tests"))
import ompi5


def outcome(*words, chroot, answer_s=5.0):
    """Status and output of ompi5.py WORDS..., with a shell script for debian-chroot that has so long to answer."""
    with tempfile.TemporaryDirectory(prefix="mend-ompi5.") as directory:
        script = pathlib.Path(directory) / "debian-chroot"
        script.write_text(f"#!/bin/sh\n{chroot}\n")
        script.chmod(0o755)
        said = io.StringIO()
        with mock.patch.object(ompi5, "CHROOT", str(script)), mock.patch.object(ompi5, "ANSWER_S", answer_s), \
                mock.patch.object(sys, "argv", ["ompi5.py", *words]), contextlib.redirect_stdout(said), \
                contextlib.redirect_stderr(said):
            try:
                status = ompi5.main()
            except SystemExit as end:
                status = end.code
        return status, said.getvalue()


class Ompi5(unittest.TestCase):
    def test_no_answer_is_a_failure_that_says_so(self):
        """It ended in a traceback of Python."""
        for words, limit in (("echo waiting: somebody makes it >&2; exec sleep 60", 5.0), ("exec sleep 60", 0.5)):
            status, said = outcome("root", chroot=f'case "$*" in *mpirun*) {words} ;; esac', answer_s=limit)
            self.assertEqual(status, 1, said)
            self.assertRegex(said, rf"ompi5 FAILED: no answer within {limit} s: \S*debian-chroot trixie -- mpirun --version\n")
            self.assertIn("waiting: somebody makes it" if "echo" in words else "it said nothing", said)

    def test_versions(self):
        for suite, version, status in (("trixie", "5.0.7", 0), ("trixie", "4.1.4", 1), ("trixie", "6.0.0", 1),
                                       ("sid", "6.0.0rc2", 0), ("sid", "5.0.9", 0), ("sid", "10.1.0", 0), ("sid", "4.1.4", 1),
                                       ("sid", "", 1)):
            answer = f'case "$*" in *mpirun*) echo "mpirun (Open MPI) {version}" ;; esac'
            found, said = outcome("root", "--suite", suite, chroot=answer)
            self.assertEqual(found, status, said)
            self.assertIn(f"a Debian {suite} with Open MPI {version or 'unknown'}", said)

    def test_only_a_suite_that_moves_is_brought_up_to_date(self):
        for suite, upgraded in (("trixie", False), ("sid", True)):
            words = "--upgrade sid -- true" if upgraded else "trixie -- true"
            made = f'shift 2; [ "$*" = "{words}" ] || exit 5; exit 125'
            status, said = outcome("root", "--suite", suite, chroot=made)
            self.assertEqual(status, ompi5.SKIPPED, said)

    def test_a_root_that_cannot_be_made(self):
        for made, status in ((125, ompi5.SKIPPED), (1, 1)):
            self.assertEqual(outcome("smoke", chroot=f"exit {made}")[0], status)


if __name__ == "__main__":
    unittest.main()
