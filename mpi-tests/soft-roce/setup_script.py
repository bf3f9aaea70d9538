"""Tests configure-scripts/soft-roce inside a guest: it sets a device up, and says of a machine what it lacks for a job.

What the rules of a firewall mean is tested without a guest, too (tests/scripts/firewall_test.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rxe import DEVICE, RAIL  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "scripts"))
from rulesets import RULESETS  # noqa: E402

SCRIPT = str(ROOT / "configure-scripts" / "soft-roce")
CHECK = [SCRIPT, "--check", "--netdev", RAIL]
ADDRESS = "198.18.10.1/24"
OTHER = "mgmt"  # an interface without a device
PATH = "/usr/local/bin:/usr/bin:/bin"  # of an ordinary user: without sbin
DEVICES = Path("/sys/class/infiniband")
FIREWALLS = ("nft", "iptables-save", "firewall-cmd")
GIDS = f"{DEVICES}/{DEVICE}/ports/1/gids"
SAMPLES = ("accept", "policy drop", "final drop", "final reject", "forwarded packets are rejected", "port 4791 is accepted",
           "some hosts are trusted", "iptables INPUT DROP", "ufw")


def limited(kib: int, *prefix: str) -> list[str]:
    """What comes in front of a command: another user, say, and a limit on locked memory."""
    return [*prefix, "bash", "-c", f'ulimit -l {kib} && exec "$0" "$@"']


USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", f"PATH={PATH}"]


class Complaints(list):
    def expect(self, what: str, words: list[str], status: int, missing: dict[str, str], *says: str) -> str:
        """Runs the script: its exit status, what it finds missing (topic -> a pattern for that line), what else it says."""
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False)
        found = dict(re.findall(r"^ *MISSING +(\S+) +(.*)$", done.stdout, re.MULTILINE))
        text = re.sub(" +", " ", done.stdout)
        good = (done.returncode == status and found.keys() == missing.keys() and all(part in text for part in says)
                and all(re.search(pattern, found[topic]) for topic, pattern in missing.items()))
        lacks = ", ".join(f"{topic} ({line})" for topic, line in found.items())
        print(f"setup: {what}: status {done.returncode}, missing: {lacks or 'nothing'}", flush=True)
        if not good:
            self.append(f"{what}: want status {status}, missing {missing}, {says}; it said:\n{done.stdout}")
        return text

    def devices(self, what: str, **want: str) -> None:
        """Which interface each soft-RoCE device is on."""
        found = {path.parent.name: path.read_text().strip() for path in DEVICES.glob("*/parent")}
        if found != want:
            self.append(f"{what}: want devices {want}, there are {found}")


def here(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True)


@contextmanager
def changed(what: str, back: str) -> Iterator[None]:
    here(what)
    try:
        yield
    finally:
        here(back)


def no_device() -> changed:
    return changed(f"rdma link delete {DEVICE}", f"modprobe rdma_rxe; [ -e {DEVICES}/{DEVICE} ] || "
                   f"rdma link add {DEVICE} type rxe netdev {RAIL}")


def test_set_up(wrong: Complaints) -> None:
    lacking = {"device": f"{RAIL} has no soft-RoCE device", "permission": "no /dev/infiniband"}
    with no_device():
        wrong.expect("no device", CHECK, 1, lacking, f"-> rdma link add {DEVICE} type rxe netdev {RAIL}")
        wrong.expect("set up", [SCRIPT, "--netdev", RAIL], 0, {}, f"added {DEVICE} on {RAIL}")
        wrong.expect("set up again", [SCRIPT, "--netdev", RAIL], 0, {}, "All is there")
        wrong.devices("set up", **{DEVICE: RAIL})
        wrong.expect("remove", [SCRIPT, "--netdev", RAIL, "--remove"], 0, {}, f"removed {DEVICE}")
        wrong.devices("remove")
        here("rmmod rdma_rxe")
        lacking["module"] = "^rdma_rxe is not loaded$"
        wrong.expect("no module", CHECK, 1, lacking, "-> modprobe rdma_rxe")
        wrong.expect("no module, ordinary user", [*limited(8192, *USER), *CHECK], 1,
                     {**lacking, "memlock": "8192 KiB may be locked"}, "-> modprobe rdma_rxe")
        wrong.expect("set up without module", [SCRIPT, "--netdev", RAIL], 0, {}, f"added {DEVICE} on {RAIL}")


def test_two_interfaces(wrong: Complaints) -> None:
    """What is done to one interface leaves the other's device alone."""
    wrong.expect("remove where there is none", [SCRIPT, "--netdev", OTHER, "--remove"], 1, {}, f"{OTHER} has no soft-RoCE device")
    wrong.expect("no device on this interface", [SCRIPT, "--check", "--netdev", OTHER], 1,
                 {"device": f"{OTHER} has no soft-RoCE device"}, f"-> rdma link add rxe1 type rxe netdev {OTHER}")
    for action in ("--check", "--remove"):
        wrong.expect(f"{action} with another interface's device", [SCRIPT, action, "--netdev", OTHER, "--device", DEVICE], 2, {},
                     f"{DEVICE} is on {RAIL}, not on {OTHER}")
        wrong.expect(f"{action} with a second name", [SCRIPT, action, "--netdev", RAIL, "--device", "rxe5"], 2, {},
                     f"the device of {RAIL} is {DEVICE}, not rxe5")
    wrong.devices("after refusals", **{DEVICE: RAIL})
    with changed("true", f"for d in rxe1 rxe5; do [ ! -e {DEVICES}/$d ] || rdma link delete $d; done"):
        wrong.expect("second device", [SCRIPT, "--netdev", OTHER], 0, {}, f"added rxe1 on {OTHER}", "btl_mend_if_include rxe1")
        wrong.devices("second device", **{DEVICE: RAIL, "rxe1": OTHER})
        wrong.expect("a device names its interface", [SCRIPT, "--check", "--device", "rxe1"], 0, {}, f"rxe1 on {OTHER}")
        with no_device():
            wrong.expect("first free name", [SCRIPT, "--netdev", RAIL], 0, {}, f"added {DEVICE} on {RAIL}")
        wrong.expect("remove the second", [SCRIPT, "--netdev", OTHER, "--remove"], 0, {}, f"removed rxe1 from {OTHER}")
        wrong.devices("remove the second", **{DEVICE: RAIL})
        wrong.expect("a name of one's own", [SCRIPT, "--netdev", OTHER, "--device", "rxe5"], 0, {}, f"added rxe5 on {OTHER}")
        wrong.expect("remove by name", [SCRIPT, "--device", "rxe5", "--remove"], 0, {}, f"removed rxe5 from {OTHER}")
    wrong.devices("at the end", **{DEVICE: RAIL})


def test_arguments(wrong: Complaints) -> None:
    wrong.expect("no default route", [SCRIPT, "--check"], 1, {"device": "no default route"})
    with changed(f"ip -6 route add default dev {RAIL}", f"ip -6 route del default dev {RAIL}"):
        wrong.expect("IPv6 default route", [SCRIPT, "--check"], 0, {}, f"{DEVICE} on {RAIL}")
        with changed(f"ip route add default dev {OTHER}", f"ip route del default dev {OTHER}"):
            wrong.expect("IPv4 default route first", [SCRIPT, "--check"], 1, {"device": f"{OTHER} has no soft-RoCE device"})
    wrong.expect("no such interface", [SCRIPT, "--check", "--netdev", "eth9"], 1, {"device": "there is no interface eth9"})
    for words in (["--netdev"], ["--check", "--device"], ["--netdev", "--check"]):
        wrong.expect(" ".join(words), [SCRIPT, *words], 2, {}, "needs a name")
    wrong.expect("--frob", [SCRIPT, "--frob"], 2, {}, "unknown argument: --frob")


def test_addresses(wrong: Complaints) -> None:
    with changed(f"ip addr del {ADDRESS} dev {RAIL}", f"ip addr add {ADDRESS} dev {RAIL}"):
        wrong.expect("no IPv4 address", CHECK, 0, {}, "note gid link-local addresses only", "fe80:")
        for what, address, says in (("link-local IPv4", "169.254.3.4/16", "note gid link-local addresses only"),
                                    ("IPv6", "2001:db8::1/64", "note gid RoCE v2 with a global IPv6 address only: index ")):
            with changed(f"ip addr add {address} dev {RAIL}", f"ip addr del {address} dev {RAIL}"):
                wrong.expect(what, CHECK, 0, {}, says)
    with changed(f"mount -t tmpfs none {GIDS}", f"umount {GIDS}"):
        wrong.expect("no GID", CHECK, 1, {"gid": "no GID at all"}, f"-> ip addr add ADDRESS/BITS dev {RAIL}")


def test_users(wrong: Complaints) -> None:
    short = {"memlock": "8192 KiB may be locked"}
    user = [*limited(8192, *USER), *CHECK]
    wrong.expect("ordinary user", user, 1, short, "ok module")
    with changed("chmod 600 /dev/infiniband/uverbs*", "chmod 666 /dev/infiniband/uverbs*"):
        wrong.expect("ordinary user who may not open it", user, 1, {"permission": "uverbs0 is not yours", **short})
    wrong.expect("limit of nearly 1 GiB", [*limited(2**20 - 1, *USER), *CHECK], 1, {"memlock": "1048575 KiB may be locked"})
    wrong.expect("limit of 1 GiB", [*limited(2**20, *USER), *CHECK], 0, {}, "note memlock 1048576 KiB")
    wrong.expect("root with a limit", [*limited(8192), *CHECK], 0, {}, "ok memlock 8192 KiB, which this user is not held to")
    wrong.expect("root without CAP_IPC_LOCK", [*limited(8192, "setpriv", "--bounding-set", "-ipc_lock"), *CHECK], 1, short)
    wrong.expect("root of a user namespace", [*limited(8192, "unshare", "--user", "--map-root-user"), *CHECK], 1, short)


@contextmanager
def only_firewalls(**programs: str) -> Iterator[list[str]]:
    """What comes in front of a command that shall find these programs (name -> what it does) and none of the machine's own."""
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        for found in filter(None, map(shutil.which, FIREWALLS)):
            stack.enter_context(changed(f"mv {found} {found}.hidden", f"mv {found}.hidden {found}"))
        for name, body in programs.items():
            path = Path(place) / name.replace("_", "-")
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)
        Path(place).chmod(0o755)
        yield ["env", f"PATH={place}:{os.environ['PATH']}"]


def test_firewall(wrong: Complaints) -> None:
    elsewhere = "note firewall cannot look: neither nft nor iptables is installed"
    with only_firewalls() as start:
        wrong.expect("no firewall's program", [*start, *CHECK], 0, {}, elsewhere)
    denied = '[ "$(id -u)" = 0 ] || { echo "you must be root" >&2; exit 1; }'
    with only_firewalls(nft=denied) as start:
        wrong.expect("rules that an ordinary user asks for", [*limited(2**20, *USER, *start), *CHECK], 0, {},
                     "note firewall only root can look")
    with only_firewalls(nft="exit 1", iptables_save="exit 1") as start:
        wrong.expect("rules that root may not see", [*start, *CHECK], 0, {},
                     "note firewall cannot look: no answer from nft list ruleset, iptables-save")
    for name in SAMPLES:
        rules = RULESETS[name]
        refused = {"firewall": "UDP port 4791 is refused"} if rules.verdict.startswith("refused") else {}
        says = {"open": "ok firewall no rule refuses", "unsure": "note firewall there are rules that may refuse"}
        shows = {rules.program.replace("-", "_"): f"cat <<'END'\n{rules.text}END"}
        with only_firewalls(**{"nft": "true", "iptables_save": "true", **shows}) as start:
            wrong.expect(f"rules: {name}", [*start, *CHECK], 1 if refused else 0, refused,
                         says.get(rules.verdict, "-> "), rules.remedy)


def test_real_firewall(wrong: Complaints) -> None:
    """The remedy is one: after it nothing is missing. Debian installs no nft by itself, so not every machine has it."""
    if shutil.which("nft") is None:
        print("setup: no nft on this machine: its remedy is not tried")
        return
    for name in ("policy drop", "final drop"):
        with changed(f"nft -f - <<'END'\n{RULESETS[name].text}END", "nft flush ruleset"):
            said = wrong.expect(f"nft: {name}", CHECK, 1, {"firewall": "UDP port 4791 is refused"}, RULESETS[name].remedy)
            for remedy in re.findall(r"-> (nft insert [^(]*)", said):
                here(remedy)
            wrong.expect(f"nft: {name}, after the remedy", CHECK, 0, {}, "ok firewall")


def test() -> int:
    wrong = Complaints()
    wrong.expect("all is there", CHECK, 0, {}, "RoCE v2 with an IPv4 address: index 1, 198.18.10.1\n")
    with changed(f"ip link set {RAIL} down", f"ip link set {RAIL} up"):
        wrong.expect("link down", CHECK, 1, {"port": f"{DEVICE}:1 is DOWN"})
    with changed(f"ip link set {RAIL} mtu 1500", f"ip link set {RAIL} mtu 4200"):
        wrong.expect("Ethernet MTU 1500", CHECK, 0, {}, "RDMA MTU 1024")
    for part in (test_set_up, test_two_interfaces, test_arguments, test_addresses, test_users, test_firewall, test_real_firewall):
        part(wrong)
    wrong.expect("all is there at the end", CHECK, 0, {})
    for line in wrong:
        print(f"soft-roce FAILED: {line}")
    return 1 if wrong else 0
