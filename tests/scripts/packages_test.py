"""configure-scripts/lib/packages.sh: what is missing is found, named with its reason, and installed only when that is allowed.

The machine is played by stand-ins in PATH: dpkg-query knows which packages are missing, id who we are, sudo and apt-get
write down what they were asked to do.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "configure-scripts" / "lib"


class Machine:
    def __init__(self, missing, uid=0, sudo=True, apt_status=0, apt=""):
        self._directory = tempfile.TemporaryDirectory(prefix="mend-packages.")
        self.root = pathlib.Path(self._directory.name) / "mend"
        self.root.mkdir()
        (self.root / "configure-scripts").symlink_to(ROOT / "configure-scripts")
        self._bin = pathlib.Path(self._directory.name) / "bin"
        self._bin.mkdir()
        for tool in ("bash", "awk", "env", "mkdir", "dirname", "basename", "sleep", "tail", "tr", "cut", "cat"):
            (self._bin / tool).symlink_to(f"/usr/bin/{tool}")
        self._calls = pathlib.Path(self._directory.name) / "calls"
        self._calls.touch()
        self._tool("dpkg-query", f'case " {" ".join(missing)} " in *" ${{@: -1}} "*) exit 1 ;; *) printf installed ;; esac')
        self._tool("id", f"echo {uid}")
        self._tool("apt-get", f'echo "apt-get $*" >>{self._calls}; echo "apt-get says something"; {apt} exit {apt_status}')
        if sudo:
            self._tool("sudo", f'echo "sudo $*" >>{self._calls}; [ "$1" = -n ] && shift; "$@"')

    def _tool(self, name, body):
        path = self._bin / name
        path.write_text(f"#!/usr/bin/bash\n{body}\n")
        path.chmod(0o755)

    def ensure(self, install, *groups, call="packages_ensure"):
        """(status, output, what sudo and apt-get were asked)"""
        script = f'set -euo pipefail; mend_root={self.root}; . "$mend_root/configure-scripts/lib/say.sh"; ' \
                 f'. "$mend_root/configure-scripts/lib/packages.sh"; {call} {install} {" ".join(groups)}'
        done = subprocess.run(["/usr/bin/bash", "-c", script, "demo"], env={"PATH": str(self._bin), "HOME": "/"}, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        calls = self._calls.read_text()
        self._directory.cleanup()
        return done.returncode, done.stdout, calls


class Packages(unittest.TestCase):
    def test_nothing_missing_asks_nobody(self):
        status, _, calls = Machine([]).ensure("yes", "run", "build")
        self.assertEqual((status, calls), (0, ""))

    def test_no_install_refuses_with_the_list_and_reasons(self):
        status, output, calls = Machine(["g++", "openmpi-bin", "valgrind"]).ensure("no", "run", "build")
        self.assertEqual((status, calls), (3, ""))
        self.assertIn("apt-get install --no-install-recommends openmpi-bin g++\n", output)
        self.assertRegex(output, r"g\+\+ +the C\+\+20 compiler")
        self.assertNotIn("valgrind", output)  # of a group that was not asked for

    def test_root_installs_what_is_missing_and_only_that(self):
        status, output, calls = Machine(["cmake", "g++"]).ensure("yes", "run", "build")
        self.assertEqual(status, 0, output)
        self.assertRegex(calls, r"apt-get .* update\napt-get .* install -y --no-install-recommends g\+\+ cmake\n$")
        self.assertNotIn("sudo", calls)

    def test_a_user_installs_through_sudo(self):
        status, output, calls = Machine(["cmake"], uid=1000).ensure("yes", "build")
        self.assertEqual(status, 0, output)
        self.assertRegex(calls, r"sudo env DEBIAN_FRONTEND=noninteractive apt-get .* install")

    def test_a_user_without_sudo_is_told_the_command(self):
        status, output, calls = Machine(["cmake"], uid=1000, sudo=False).ensure("yes", "build")
        self.assertEqual((status, calls), (3, ""))
        self.assertIn("As root:", output)
        self.assertIn("apt-get install --no-install-recommends cmake", output)

    def test_a_failed_installation_stops_and_shows_why(self):
        status, output, calls = Machine(["cmake"], apt_status=100).ensure("yes", "build")
        self.assertNotIn(status, (0, 3))
        self.assertEqual(calls.count(" update"), 2, calls)
        self.assertIn("apt-get says something", output)
        self.assertIn("could not be installed", output)

    def test_an_installation_that_fails_is_tried_once_more(self):
        """A mirror that is being updated: the lists are of before, the packages of after."""
        for call in ("update", "install"):
            once = f'case " $* " in *" {call} "*) [ -e "$0.failed" ] || {{ : >"$0.failed"; exit 100; }} ;; esac;'
            status, output, calls = Machine(["cmake"], apt=once).ensure("yes", "build")
            self.assertEqual(status, 0, output)
            self.assertEqual(output.count("once more"), 1, output)
            self.assertRegex(calls, r"update\napt-get .* install -y --no-install-recommends cmake\n$")
            self.assertEqual(calls.count(f" {call}"), 2, calls)

    def test_what_may_be_missing_is_named_and_stops_nothing(self):
        for install, apt_status in (("yes", 100), ("no", 0)):
            machine = Machine(["qemu-system-x86"], apt_status=apt_status)
            status, output, _ = machine.ensure(install, "virtual_machines", "rig", call="packages_try")
            self.assertEqual(status, 0, output)
            self.assertIn("SKIPPED for want of these packages: virtual_machines", output)
            self.assertIn("qemu-system-x86", output)
        status, output, _ = Machine([]).ensure("yes", "virtual_machines", "rig", call="packages_try")
        self.assertEqual(status, 0)
        self.assertNotIn("SKIPPED", output)

    def test_every_line_of_the_list_has_group_name_and_reason(self):
        names = []
        for line in (ROOT / "configure-scripts" / "packages").read_text().splitlines():
            if line and not line.startswith("#"):
                self.assertRegex(line, r"^(run|build|test|rig|full) +[a-z0-9][a-z0-9+.-]+ +\S.{7,}$")
                names.append(line.split()[1])
        self.assertGreater(len(names), 20)
        self.assertEqual(len(names), len(set(names)))


class Commands(unittest.TestCase):
    def _run(self, script, *arguments):
        environment = {**os.environ, "CI": "true"}
        return subprocess.run([str(ROOT / script), *arguments], env=environment, capture_output=True, text=True, timeout=60)

    def test_help_is_given_and_nothing_else_done(self):
        for script in ("configure-scripts/demo", "configure-scripts/check", ".ci/run"):
            done = self._run(script, "--help")
            self.assertEqual(done.returncode, 0, script)
            self.assertIn("--no-install", done.stdout)
            self.assertNotIn("==", done.stdout)

    def test_an_unknown_argument_is_refused(self):
        for script in ("configure-scripts/demo", "configure-scripts/check"):
            done = self._run(script, "--instal")
            self.assertEqual(done.returncode, 1, script)
            self.assertIn("unknown argument: --instal", done.stderr)


if __name__ == "__main__":
    unittest.main()
