"""softhcactl against a fabric that an unmodified verbs program keeps alive.

Usage: softhcactl_test.py SOFTHCACTL LIBSOFTHCA
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 30
PORTS = (20000, 32000)  # the kernel gives those from 32768 on to whoever asks for any


def fail(message):
    print(message)
    sys.exit(1)


class Fabric:
    """A pingpong server that waits for its client for ever: one live process."""

    def __init__(self, ctl, library):
        self.ctl_path = ctl
        self.name = f"ut-ctl-{os.getpid()}"
        self.env = {**os.environ, "SOFTHCA_FABRIC": self.name}
        self.preload = {**self.env, "LD_PRELOAD": library}
        self.said = tempfile.TemporaryFile()
        self.server = subprocess.Popen(
            ["ibv_rc_pingpong", "-p", str(random.randint(*PORTS))], env=self.preload, stdout=subprocess.DEVNULL, stderr=self.said
        )

    def could_not_listen(self):
        """The server has ended because somebody has its port."""
        self.said.seek(0)
        return self.server.poll() is not None and b"Couldn't listen" in self.said.read()

    def ctl(self, *words, code=0):
        done = subprocess.run([self.ctl_path, *words], env=self.env, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != code:
            fail(f"{words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def json(self, *words):
        return json.loads(self.ctl("--json", *words))

    def port_state(self):
        text = subprocess.run(["ibv_devinfo"], env=self.preload, capture_output=True, text=True, timeout=LIMIT).stdout
        return next(line.split()[1] for line in text.splitlines() if line.strip().startswith("state:"))

    def wait_until_up(self):
        end = time.monotonic() + LIMIT
        while self.server.poll() is None and time.monotonic() < end:
            found = [f for f in self.json("list") if f["fabric"] == self.name and f.get("processes")]
            if found and found[0]["processes"][0]["qps"] > 0:
                return found[0]
            time.sleep(0.05)
        return fail("the server's fabric never appeared")

    def close(self):
        self.server.kill()
        self.server.wait()
        for name in os.listdir("/dev/shm"):
            if name.startswith(f"softhca.{self.name}."):
                os.unlink(f"/dev/shm/{name}")


def expect(condition, message):
    if not condition:
        fail(message)


def check(fabric):
    described = fabric.wait_until_up()
    expect(described["ports"][0]["device"] == "softhca0", described)
    expect(described["ports"][0]["state"] == "up", described)
    expect(described["processes"][0]["pid"] == fabric.server.pid, described)
    expect(fabric.port_state() == "PORT_ACTIVE", "devinfo before")
    expect("softhca0/1 down" in fabric.ctl("port", "softhca0", "1", "down"), "port down")
    expect("already down" in fabric.ctl("port", "softhca0", "1", "down"), "port down again")
    expect(fabric.port_state() == "PORT_DOWN", "devinfo while down")
    expect(fabric.json("port", "softhca0", "1", "up")["changed"], "port up")
    expect(fabric.port_state() == "PORT_ACTIVE", "devinfo after")
    fabric.ctl("port", "softhca0", "1", "down")
    fabric.ctl("reset")
    expect(fabric.port_state() == "PORT_ACTIVE", "devinfo after reset")
    check_gids(fabric)
    counters = fabric.json("counters")
    expect(any(q["pid"] == fabric.server.pid and q["type"] == "RC" for q in counters["qps"]), counters)
    expect("messages" in fabric.ctl("counters"), "counters as text")
    check_faults(fabric)
    expect("no device 'nic9'; there is: softhca0" in fabric.ctl("port", "nic9", "1", "up", code=1), "unknown device")
    expect("softhca0 has ports 1 to 1" in fabric.ctl("port", "softhca0", "7", "up", code=1), "unknown port")
    expect("no fabric 'other' is running; there is: " in fabric.ctl("--fabric", "other", "counters", code=1), "other")
    sideways = subprocess.run([fabric.ctl_path, "port", "softhca0", "1", "sideways"], capture_output=True, text=True)
    expect(sideways.returncode != 0 and "sideways" in sideways.stderr + sideways.stdout, "bad state")


def check_gids(fabric):
    """Places of the GID table are exchanged, until reset."""

    def gids():
        return {one["index"]: one["gid"] for one in fabric.json("--fabric", fabric.name, "list")[0]["ports"][0]["gids"]}

    before = gids()
    expect(sorted(before) == [0, 1], before)
    expect(fabric.json("gid", "softhca0", "1", "1", "3")["changed"], "gid")
    expect(gids() == {0: before[0], 3: before[1]}, gids())
    expect("hold nothing" in fabric.ctl("gid", "softhca0", "1", "1", "2"), "both places are empty")
    expect("no device 'nic9'" in fabric.ctl("gid", "nic9", "1", "0", "1", code=1), "unknown device")
    fabric.ctl("reset")
    expect(gids() == before, "as configured after reset")


def check_faults(fabric):
    """Rules that are added while the server waits take effect on its port, and are counted."""
    expect(fabric.json("fault", "list") == {"fabric": fabric.name, "hits": 0, "rules": []}, "no rules at first")
    expect(fabric.json("fault", "add", "seed=3; drop:n=5; port-down:at=1ms")["added"] == 2, "fault add")
    end = time.monotonic() + LIMIT
    while fabric.port_state() != "PORT_DOWN":
        expect(time.monotonic() < end, f"the port stays up: {fabric.ctl('fault', 'list')}")
        time.sleep(0.05)
    listed = fabric.json("fault", "list")
    expect([r["text"] for r in listed["rules"]] == ["drop:n=5", "port-down:at=1ms"], listed)
    expect([r["hits"] for r in listed["rules"]] == [0, 1] and listed["rules"][0]["seed"] == 3, listed)
    expect("port-down:at=1ms" in fabric.ctl("fault", "list"), "fault list as text")
    expect("unknown kind 'drip'" in fabric.ctl("fault", "add", "drip", code=1), "a mistake is named")
    fabric.ctl("fault", "clear")
    expect(fabric.json("fault", "list")["rules"] == [], "fault clear")
    expect(fabric.port_state() == "PORT_ACTIVE", "what a rule took down is up again")
    expect("kill-qp" in fabric.ctl("fault", "--help"), "the grammar is told")


def run(fabric):
    check(fabric)
    fabric.server.kill()
    fabric.server.wait()
    stale = [f for f in fabric.json("list") if f["fabric"] == fabric.name]
    expect(stale and stale[0].get("stale"), f"a dead fabric is shown as stale: {stale}")


def main():
    ctl, library = (os.path.abspath(a) for a in sys.argv[1:3])
    if shutil.which("ibv_rc_pingpong") is None:
        print("ibv_rc_pingpong is not installed (package ibverbs-utils)")
        return 77
    for once_more in (True, False):
        fabric = Fabric(ctl, library)
        try:
            run(fabric)
            break
        except (Exception, SystemExit):
            if not once_more or not fabric.could_not_listen():
                raise
            print("the server had no port: once more")
        finally:
            fabric.close()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
