"""Tests configure-scripts/soft-roce inside a guest: it sets a device up, and says of a machine what it lacks for a job."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rxe import DEVICE, RAIL  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "configure-scripts" / "soft-roce"
ADDRESS = "198.18.10.1/24"
# An ordinary user with the usual limit on locked memory.
USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "bash", "-c", 'ulimit -l 8192 && exec "$0" "$@"']


class Complaints(list):
    def expect(self, what: str, words: list[str], status: int, missing: dict[str, str], says: str = "") -> None:
        """Runs the script: its exit status, what it finds missing (topic -> a pattern for that line), what else it says."""
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False)
        found = dict(re.findall(r"^ *MISSING +(\S+) +(.*)$", done.stdout, re.MULTILINE))
        good = (done.returncode == status and found.keys() == missing.keys() and says in done.stdout
                and all(re.search(pattern, found[topic]) for topic, pattern in missing.items()))
        print(f"setup: {what}: status {done.returncode}, missing: {', '.join(f'{k} ({v})' for k, v in found.items()) or 'nothing'}")
        if not good:
            self.append(f"{what}: want status {status}, missing {missing}, '{says}'; it said:\n{done.stdout}")


def here(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True)


@contextmanager
def changed(what: str, back: str) -> Iterator[None]:
    here(what)
    try:
        yield
    finally:
        here(back)


def test() -> int:
    wrong = Complaints()
    check = [str(SCRIPT), "--check", "--netdev", RAIL]
    add = f"[ -e /sys/class/infiniband/{DEVICE} ] || rdma link add {DEVICE} type rxe netdev {RAIL}"
    wrong.expect("all is there", check, 0, {}, "RoCE v2 with an IPv4 address")
    with changed(f"rdma link delete {DEVICE}", add):
        wrong.expect("no device", check, 1, {"device": f"{RAIL} has no soft-RoCE device", "permission": "no /dev/infiniband"})
        wrong.expect("set up", [str(SCRIPT), "--netdev", RAIL], 0, {}, f"added {DEVICE} on {RAIL}")
        wrong.expect("set up again", [str(SCRIPT), "--netdev", RAIL], 0, {}, "All is there")
        wrong.expect("remove", [str(SCRIPT), "--netdev", RAIL, "--remove"], 0, {}, f"removed {DEVICE}")
    with changed(f"ip link set {RAIL} down", f"ip link set {RAIL} up"):
        wrong.expect("link down", check, 1, {"port": f"{DEVICE}:1 is DOWN"})
    with changed(f"ip addr del {ADDRESS} dev {RAIL}", f"ip addr add {ADDRESS} dev {RAIL}"):
        wrong.expect("no IPv4 address", check, 1, {"gid": "no GID with an IPv4 address"})
    with changed(f"ip link set {RAIL} mtu 1500", f"ip link set {RAIL} mtu 4200"):
        wrong.expect("Ethernet MTU 1500", check, 0, {}, "RDMA MTU 1024")
    wrong.expect("ordinary user", [*USER, *check], 1, {"memlock": "8192 KiB may be locked"})
    with changed("chmod 600 /dev/infiniband/uverbs*", "chmod 666 /dev/infiniband/uverbs*"):
        wrong.expect("ordinary user who may not open it", [*USER, *check], 1,
                     {"permission": "uverbs0 is not yours", "memlock": "8192 KiB may be locked"})
    wrong.expect("no interface named", [str(SCRIPT), "--check"], 1, {"device": "no default route"})
    wrong.expect("all is there at the end", check, 0, {})
    for line in wrong:
        print(f"soft-roce FAILED: {line}")
    return 1 if wrong else 0
