"""configure-scripts/debian-chroot: what it refuses, and that neither an interruption nor a second caller leaves anything wrong.

Debian is played by a few of the host's programs: a stand-in for debootstrap copies them, an archive in a directory answers
for the mirror. The real thing is used by the tests of Open MPI 5.0 (mpi-tests/ompi5.py).
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = "configure-scripts/debian-chroot"
PROGRAMS = ("env", "sh", "sleep", "cat", "touch", "ls", "true")
MAKE = r"""#!/usr/bin/bash
set -e
root=$3
mkdir -p "$root"/{usr/bin,etc/dpkg/dpkg.cfg.d,var/lib/dpkg,tmp}
touch "$root/half"
%(delay)s
for directory in bin lib lib64; do ln -s "usr/$directory" "$root/$directory"; mkdir -p "$root/usr/$directory"; done
for program in %(programs)s; do
  path=$(type -P "$program")
  cp -L "$path" "$root/usr/bin/"
  ldd "$path" | grep -o '/[^ ]*' | while read -r library; do mkdir -p "$root$(dirname "$library")"; cp -Ln "$library" "$root$library"; done
done
awk '/^[a-z]/ { print "Package: " $2 "\nStatus: install ok installed\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n" }' \
  %(packages)s >"$root/var/lib/dpkg/status"
rm "$root/half"
echo made >>%(calls)s
"""


class Place:
    """A directory for roots, an archive, and stand-ins in PATH. own_tree: the scripts are a copy, and the roots in its build/."""

    def __init__(self, delay="", own_tree=False):
        self._directory = tempfile.TemporaryDirectory(prefix="mend-chroot.")
        self.path = pathlib.Path(self._directory.name)
        (self.path / "archive/dists/trixie").mkdir(parents=True)
        (self.path / "archive/dists/trixie/InRelease").write_text("x")
        (self.path / "bin").mkdir()
        self.tree, self.roots = ROOT, self.path / "roots"
        if own_tree:
            self.tree = self.path / "tree"
            self.roots = self.tree / "build/chroot"
            shutil.copytree(ROOT / "configure-scripts", self.tree / "configure-scripts")
        self.debootstrap(delay)

    def tool(self, name, text):
        (self.path / "bin" / name).write_text(text)
        (self.path / "bin" / name).chmod(0o755)

    def debootstrap(self, delay=""):
        # Called as debootstrap --variant=minbase SUITE ROOT MIRROR.
        self.tool("debootstrap", MAKE % {
            "delay": delay, "programs": " ".join(PROGRAMS), "packages": ROOT / "configure-scripts/packages", "calls": self.path / "calls"})

    def made(self):
        calls = self.path / "calls"
        return calls.read_text().count("made") if calls.exists() else 0

    def apt_get(self, text):
        """Gives the root an apt-get, and lets packages be missing."""
        root = self.roots / "trixie"
        (root / "usr/bin/apt-get").write_text(f"#!/bin/sh\n{text}\n")
        (root / "usr/bin/apt-get").chmod(0o755)
        (root / "var/lib/dpkg/status").write_text("")

    def start(self, *words, mounts="", **more):
        """mounts: what a shell does before, in a mount name space of its own."""
        environment = {**os.environ, "PATH": f"{self.path}/bin:{os.environ['PATH']}:/usr/sbin", "MEND_CHROOT_DIR": str(self.roots),
                       "MEND_CHROOT_MIRROR": f"file:{self.path}/archive", **more}
        command = [str(self.tree / SCRIPT), *words]
        if mounts:
            command = ["unshare", "--mount", "/bin/sh", "-ec", f'{mounts}\nexec "$@"', "sh", *command]
        return subprocess.Popen(command, env=environment, cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words, **more):
        running = self.start(*words, **more)
        out, err = running.communicate(timeout=60)
        return running.returncode, out, err

    def mounts(self):
        return [line for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if str(self.path) in line]

    def processes(self):
        """Command lines below our roots: of debootstrap, and of what has such a root."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.path) in words or os.readlink(entry / "root").startswith(str(self.path)):
                    found.append(words)
            except OSError:
                continue
        return found

    def gone(self):
        until = time.monotonic() + 5
        while self.processes() and time.monotonic() < until:
            time.sleep(0.05)
        return self.processes()


def heard(running, word):
    """Waits until a line with this word has come on its standard error, and returns what has come."""
    said = []

    def more():
        try:
            said.append(os.read(running.stderr.fileno(), 4096).decode())
        except BlockingIOError:
            return False
        return any(word in line for line in "".join(said).splitlines(keepends=True) if line.endswith("\n"))

    os.set_blocking(running.stderr.fileno(), False)
    wait_for(more)
    return "".join(said)


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it never happened")
        time.sleep(0.05)


class Refusals(unittest.TestCase):
    def test_bad_input_is_named(self):
        place = Place()
        for words, said in ((("trixie",), "no command"), (("--", "true"), "no suite"), (("--packages",), "needs a list"),
                            (("a/../b", "--", "true"), "no name of a suite"),
                            (("--frob", "trixie", "--", "true"), "--frob"), (("trixie", "true"), "follows --"),
                            (("--packages", "run,nothere", "trixie", "--", "true"), "no group nothere")):
            status, out, err = place.run(*words)
            self.assertEqual((status, out), (2, ""), words)
            self.assertIn(said, err, words)
        self.assertFalse(place.roots.exists())

    def test_help(self):
        status, out, _ = Place().run("--help")
        self.assertEqual(status, 0)
        self.assertIn("MEND_CHROOT_DIR", out)

    def test_who_is_not_root_is_told(self):
        place = Place()
        place.tool("id", "#!/bin/sh\necho 1000\n")
        status, _, err = place.run("trixie", "--", "true")
        self.assertEqual(status, 125)
        self.assertIn("needs root", err)


@unittest.skipUnless(os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode == 0,
                     "needs root and the right to mount")
class Roots(unittest.TestCase):
    def test_a_suite_nobody_knows(self):
        status, _, err = Place().run("nosuchsuite", "--", "true")
        self.assertEqual(status, 1)
        self.assertIn('no suite "nosuchsuite"', err)

    def test_no_network(self):
        place = Place()
        status, _, err = place.run("trixie", "--", "true", MEND_CHROOT_MIRROR=f"file:{place.path}/nothing")
        self.assertEqual(status, 125)
        self.assertIn("does not answer", err)
        self.assertEqual(place.made(), 0)

    def test_apt_that_fails_is_a_failure_and_no_network_is_none(self):
        """125 is for what is nobody's fault: with it the tests of Open MPI 5.0 are skipped."""
        for call in ("update", "install"):
            for mirror, status, said in (("archive", 1, "debian-chroot: the package"), ("nothing", 125, "does not answer")):
                with self.subTest(call=call, mirror=mirror):
                    place = Place()
                    self.assertEqual(place.run("trixie", "--", "true")[0], 0)
                    place.apt_get(f'case " $* " in *" {call} "*) echo broken; exit 100 ;; esac')
                    found, out, err = place.run("trixie", "--", "true", MEND_CHROOT_MIRROR=f"file:{place.path}/{mirror}")
                    self.assertEqual((found, out), (status, ""), err)
                    self.assertIn(said, err)
                    self.assertIn("broken", err)

    def test_what_fails_once_is_no_failure(self):
        """Of a mirror that is being updated the lists are of before, the packages of after."""
        place = Place()
        made = (place.path / "bin/debootstrap").rename(place.path / "bin/makes")
        place.tool("debootstrap", f"""#!/bin/sh
[ ! -e "$3/left" ] || exit 9
[ -e "{place.path}/failed" ] || {{ mkdir -p "$3"; touch "$3/left" "{place.path}/failed"; echo broken; exit 1; }}
exec {made} "$@"
""")
        status, _, err = place.run("trixie", "--", "true")
        self.assertEqual((status, place.made()), (0, 1), err)
        self.assertIn("debootstrap once more", err)
        for call in ("update", "install"):
            place.apt_get(f'case " $* " in *" {call} "*) [ -e /var/{call} ] || {{ touch /var/{call}; echo broken; exit 100; }} ;; esac; '
                          'echo "$*" >>/var/calls')
            status, _, err = place.run("trixie", "--", "true")
            self.assertEqual(status, 0, err)
            self.assertEqual(err.count("once more"), 1, err)
            self.assertFalse((place.roots / "trixie/unfinished").exists())
        calls = (place.roots / "trixie/var/calls").read_text()
        self.assertEqual(calls.count(" install "), 2, calls)
        for option in ("Acquire::Retries=5", "Acquire::http::Timeout=60"):
            self.assertEqual(calls.count(option), len(calls.splitlines()), calls)

    def test_debootstrap_that_fails_is_a_failure(self):
        place = Place()
        place.tool("debootstrap", "#!/bin/sh\necho broken; exit 1\n")
        status, out, err = place.run("trixie", "--", "true")
        self.assertEqual((status, out), (1, ""), err)
        self.assertIn("broken", err)

    def test_no_install_makes_nothing(self):
        place = Place()
        status, _, err = place.run("--no-install", "trixie", "--", "true")
        self.assertEqual(status, 1)
        self.assertIn("--no-install", err)
        self.assertEqual(place.made(), 0)

    def test_the_commands_world(self):
        place = Place()
        status, out, err = place.run("trixie", "--", "sh", "-c",
                                     'ls -d /proc/1 /dev/null /sys; ls -A /dev/shm /tmp; cat configure-scripts/packages; echo "$OMPI_X."; '
                                     'touch /dev/shm/left', OMPI_X="seen")
        self.assertEqual(status, 0, err)
        self.assertIn((ROOT / "configure-scripts/packages").read_text(), out)
        self.assertTrue(out.endswith("\n.\n"), "the caller's environment is seen")
        self.assertNotIn("waiting", err)
        self.assertFalse(pathlib.Path("/dev/shm/left").exists())
        status, _, _ = place.run("trixie", "--", "sh", "-c", "exit 7")
        self.assertEqual((status, place.made(), place.mounts()), (7, 1, []))

    def test_no_mounts_are_seen_in_the_trees_own_roots(self):
        """They were bound with the tree, so that `rm -rf build` in there removed the host's device nodes."""
        place = Place(own_tree=True)
        status, out, err = place.run("trixie", "--", "sh", "-c", "set -e; cd build/chroot/trixie; ls -A dev sys proc tmp; "
                                     "ls -d /dev/null usr/bin/ls; cat /proc/self/mountinfo")
        self.assertEqual(status, 0, err)
        listing, mounts = out.split("\n/dev/null\nusr/bin/ls\n")
        self.assertEqual(listing.split(), ["dev:", "proc:", "sys:", "tmp:"])
        points = [line.split()[4] for line in mounts.splitlines()]
        self.assertIn(str(place.tree), points)
        self.assertEqual([point for point in points if point.startswith(f"{place.tree}/")], [])

    def test_what_is_mounted_in_the_tree_is_there(self):
        place = Place(own_tree=True)
        (place.tree / "disk").mkdir()
        status, out, err = place.run("trixie", "--", "ls", "disk",
                                     mounts=f"mount -t tmpfs disk {place.tree}/disk; touch {place.tree}/disk/file")
        self.assertEqual((status, out), (0, "file\n"), err)

    def test_a_root_that_was_emptied_from_inside_is_made_again(self):
        place = Place()
        self.assertEqual(place.run("trixie", "--", "true")[0], 0)
        shutil.rmtree(place.roots / "trixie/var")
        status, _, err = place.run("trixie", "--", "true")
        self.assertEqual((status, place.made()), (0, 2), err)
        self.assertIn("not whole", err)

    def test_missing_tools_are_named(self):
        """They ended in "the mirror does not answer"."""
        helper = "/usr/lib/apt/apt-helper"
        for tool in ("debootstrap", "dpkg-query", "apt-config", helper):
            place = Place()
            for other in {"bash", "dirname", "basename", "grep", "id", "unshare", "setpriv", "flock", "debootstrap", "dpkg-query",
                          "apt-config"} - {tool, "debootstrap"}:
                (place.path / "bin" / other).symlink_to(shutil.which(other))
            if tool == "debootstrap":
                (place.path / "bin" / tool).unlink()
            status, _, err = place.run("trixie", "--", "true", PATH=f"{place.path}/bin",
                                       mounts=f"/usr/bin/mount --bind /dev/null {helper}" if tool == helper else "")
            self.assertEqual(status, 125, err)
            self.assertIn(f"missing here: {tool} (", err)
            self.assertNotIn("does not answer", err)

    def test_the_proxy_is_taken_along(self):
        place = Place()
        configuration = place.path / "apt.conf"
        configuration.write_text('Acquire::http::Proxy "http://apt.example:1/";\nAcquire::http::Proxy::near.example "DIRECT";\n')
        none = {"http_proxy": "", "https_proxy": "", "no_proxy": ""}
        variables = {"http_proxy": "http://env.example:2/", "https_proxy": "http://env.example:3/", "no_proxy": "near.example"}
        by_apt = {**none, "APT_CONFIG": str(configuration)}
        place.tool("debootstrap", '#!/bin/sh\necho "proxy $http_proxy $https_proxy $no_proxy."; exit 1\n')
        for environment, seen in ((variables, "proxy http://env.example:2/ http://env.example:3/ near.example."),
                                  (by_apt, "proxy http://apt.example:1/  ."), (none, "proxy   .")):
            self.assertIn(seen, place.run("trixie", "--", "true", **environment)[2])
        place.debootstrap()
        self.assertEqual(place.run("trixie", "--", "true", **none)[0], 0)
        for environment, seen in ((variables, [f"{name}={value}" for name, value in variables.items()]),
                                  (by_apt, ["-o Acquire::http::Proxy=http://apt.example:1/ ",
                                            "-o Acquire::http::Proxy::near.example=DIRECT "]),
                                  (none, [])):
            place.apt_get('echo "called $* "; env; exit 100')
            _, _, err = place.run("trixie", "--", "true", **environment)
            for words in seen:
                self.assertIn(words, err)
            self.assertEqual("proxy" in err.lower(), bool(seen), err)
            (place.roots / "trixie/unfinished").unlink()

    def test_upgrade_brings_what_is_there_up_to_date(self):
        place = Place()
        self.assertEqual(place.run("--upgrade", "trixie", "--", "true")[0], 0)  # new: needs none, and has no apt-get here
        for word in ("update", "dist-upgrade"):
            place.apt_get(f'case " $* " in *" {word} "*) echo "called $*"; exit 100 ;; esac')
            status, _, err = place.run("--upgrade", "trixie", "--", "true")
            self.assertEqual((status, place.made()), (1, 1), err)
            self.assertIn("called", err)
            (place.roots / "trixie/unfinished").unlink()

    def test_who_waits_says_for_whom(self):
        place = Place(own_tree=True)
        place.debootstrap(f"until [ -e {place.path}/go ]; do sleep 0.05; done")

        def start(*words):
            running = place.start("trixie", "--", *words)
            self.addCleanup(running.kill)
            return running

        first = start("sh", "-c", "echo up; while [ ! -e release ]; do sleep 0.05; done")
        wait_for(lambda: (place.roots / "trixie.half/half").exists())
        second = start("true")
        err = heard(second, "waiting: ")
        self.assertRegex(err, rf"waiting: somebody makes \S*/trixie .*\(process {first.pid}: .*debian-chroot trixie")
        (place.path / "go").touch()
        err += second.communicate(timeout=60)[1]
        self.assertEqual(second.returncode, 0, err)
        self.assertEqual(first.stdout.readline(), "up\n")
        (place.roots / "trixie/unfinished").touch()  # to be thrown away, when the first has left it
        third = start("true")
        err = heard(third, "waiting: ")
        self.assertRegex(err, rf"waiting: commands still run in \S*/trixie \(process {first.pid}: ")
        self.assertEqual(place.made(), 1)
        (place.tree / "release").touch()
        err += third.communicate(timeout=60)[1]
        self.assertEqual((third.returncode, place.made()), (0, 2), err)
        self.assertEqual(err.count("waiting"), 1, err)
        self.assertEqual(first.communicate(timeout=20)[0], "")
        self.assertEqual(first.returncode, 0)

    def test_killed_while_it_is_made_is_made_again(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            place = Place(delay="sleep 1000")
            running = place.start("trixie", "--", "true")
            wait_for(lambda: (place.roots / "trixie.half/half").exists())
            running.send_signal(number)
            running.communicate(timeout=20)
            self.assertEqual(place.gone(), [])
            self.assertEqual(place.mounts(), [])
            self.assertFalse((place.roots / "trixie").exists())
            place.debootstrap()
            status, _, err = place.run("trixie", "--", "true")
            self.assertEqual((status, place.made()), (0, 1), err)
            self.assertFalse((place.roots / "trixie/half").exists())

    def test_an_unfinished_installation_is_thrown_away(self):
        place = Place()
        self.assertEqual(place.run("trixie", "--", "true")[0], 0)
        (place.roots / "trixie/unfinished").touch()
        status, _, err = place.run("trixie", "--", "true")
        self.assertEqual((status, place.made()), (0, 2), err)
        self.assertIn("not finished", err)

    def test_a_root_that_is_half_thrown_away_is_not_used(self):
        """`unfinished` was removed with the rest, perhaps first; after an interruption then, what was left was used."""
        place = Place()
        self.assertEqual(place.run("trixie", "--", "true")[0], 0)
        (place.roots / "trixie/unfinished").touch()
        place.tool("rm", """#!/usr/bin/bash
for last; do :; done
[ ! -e "$last/unfinished" ] || { unlink "$last/unfinished"; kill -KILL $PPID; }
""")
        self.assertEqual(place.run("trixie", "--", "true")[0], -signal.SIGKILL)
        (place.path / "bin/rm").unlink()
        self.assertEqual(place.made(), 1)
        status, _, err = place.run("trixie", "--", "true")
        self.assertEqual((status, place.made()), (0, 2), err)
        self.assertFalse((place.roots / "trixie.half").exists())

    def test_what_a_killed_command_started_ends(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            place = Place()
            running = place.start("trixie", "--", "sh", "-c", "sleep 998 & echo up; sleep 999")
            running.stdout.readline()
            self.assertGreaterEqual(len(place.processes()), 2)
            running.send_signal(number)
            running.wait(20)
            self.assertEqual(place.gone(), [])
            self.assertEqual(place.mounts(), [])
            running.stdout.close()
            running.stderr.close()

    def test_two_at_once_make_one(self):
        place = Place(delay="sleep 1")
        both = [place.start("trixie", "--", "sh", "-c", f"sleep 0.2; exit {status}") for status in (3, 4)]
        for running in both:
            running.communicate(timeout=60)
        self.assertEqual([running.returncode for running in both], [3, 4])
        self.assertEqual(place.made(), 1)


if __name__ == "__main__":
    unittest.main()
