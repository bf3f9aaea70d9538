"""Boots one guest: its initramfs, and the command line of qemu.

A guest runs the packaged kernel of this machine. Its root is this machine's root, read-only over 9p, under a tmpfs that
takes every change: what is installed or built here is there, and nothing that a guest does stays. The shared directory
is /out in each guest, the only thing they can write to that outlives them.
"""

from __future__ import annotations

import ctypes
import gzip
import lzma
import os
import shlex
import signal
import socket
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import needs

GUEST = Path(__file__).resolve().parent / "guest"
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")  # what it takes to mount the root
HOSTS = ("a", "b")
NINEP = "trans=virtio,version=9p2000.L,msize=1048576"
# Files of the root do not change while a guest runs (cluster.py sees to that), so its cache need not ask.
INIT = """#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
{insmod}
mount -t 9p -o {ninep},cache=loose,ro root /ro || echo "mend-rig: the root does not mount"
mount -t tmpfs -o size=75% tmpfs /rw
mkdir /rw/up /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work overlay /newroot || echo "mend-rig: no overlay"
for d in proc sys dev; do mount --move /$d /newroot/$d; done
exec switch_root /newroot {guest}
"""


@dataclass
class Plan:
    """What is booted."""

    directory: Path  # logs, and share/, which is /out in the guests
    guests: int = 1
    rails: int = 1
    memory: int = 3072  # MiB each
    cpus: int = 0  # each; 0: two guests have one, a single one has two
    accel: str = "tcg"

    @property
    def hosts(self) -> tuple[str, ...]:
        return HOSTS[:self.guests]

    @property
    def share(self) -> Path:
        return self.directory / "share"


class Archive:
    """A cpio archive (newc), which is what a kernel unpacks as its first root."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        self._count += 1
        encoded = name.encode() + b"\0"
        fields = (self._count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        for part in (header + encoded, content):
            self._parts.append(part + b"\0" * (-len(part) % 4))

    def directory(self, name: str) -> None:
        self.add(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, content: bytes) -> None:
        self.add(name, stat.S_IFREG | 0o755, content)

    def link(self, name: str, target: str) -> None:
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def packed(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return gzip.compress(b"".join(self._parts), compresslevel=1)


def modinfo(release: str, *words: str) -> str:
    return subprocess.run([needs.program("modinfo"), "-k", release, *words], capture_output=True, text=True,
                          check=True).stdout.strip()


def module_files(release: str) -> list[Path]:
    """The modules of BOOT_MODULES and what they depend on, in the order in which they can be loaded."""
    found: list[Path] = []

    def visit(name: str) -> None:
        path = modinfo(release, "-n", name)
        if path == "(builtin)" or Path(path) in found:
            return
        for other in modinfo(release, "-F", "depends", name).split(","):
            if other:
                visit(other)
        found.append(Path(path))

    for name in BOOT_MODULES:
        visit(name)
    return found


def initramfs(release: str) -> bytes:
    archive = Archive()
    for name in ("bin", "proc", "sys", "dev", "ro", "rw", "modules", "newroot"):
        archive.directory(name)
    archive.file("bin/busybox", Path(needs.program("busybox")).read_bytes())
    for name in ("sh", "mount", "mkdir", "insmod", "switch_root", "echo"):
        archive.link(f"bin/{name}", "busybox")
    loads = []
    for path in module_files(release):
        content = path.read_bytes()
        archive.file(f"modules/{path.stem}", lzma.decompress(content) if path.suffix == ".xz" else content)
        loads.append(f"insmod /modules/{path.stem}")
    init = INIT.format(insmod="\n".join(loads), ninep=NINEP, guest=shlex.quote(str(GUEST / "init.sh")))
    archive.file("init", init.encode())
    return archive.packed()


def mac(network: int, host: str) -> str:
    return f"52:54:00:4d:{network:02x}:{HOSTS.index(host) + 1:02x}"


def networks(plan: Plan, host: str, ends: list[socket.socket]) -> list[str]:
    """Network 0 is for commands and MPI's own wiring, 1 and up are the rails."""
    words = []
    for network in range(plan.rails + 1):
        if plan.guests == 1:
            net = f"hubport,id=n{network},hubid={network}"
        else:
            net = f"stream,id=n{network},server=off,addr.type=fd,addr.str={ends[network].fileno()}"
        words += ["-netdev", net, "-device", f"virtio-net-pci,netdev=n{network},mac={mac(network, host)}"]
    return words


def command(plan: Plan, host: str, image: Path, initrd: Path, ends: list[socket.socket]) -> list[str]:
    # Emulated, the processors' time stamps pass for out of step. They are not, and without them each look at the clock is
    # a system call that reads an HPET, as on no machine with RDMA.
    append = f"console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable mend.host={host} " \
             f"mend.guests={plan.guests} mend.rails={plan.rails}"
    accel = "tcg,thread=multi" if plan.accel == "tcg" else plan.accel
    shares = (("root", "/", ",readonly=on,multidevs=remap"), ("out", str(plan.share), ""))
    words = [needs.program("qemu-system-x86_64"), "-machine", "q35", "-accel", accel, "-cpu", "max",
             "-smp", str(plan.cpus or (2 if plan.guests == 1 else 1)), "-m", str(plan.memory), "-nographic",
             "-no-reboot", "-kernel", str(image), "-initrd", str(initrd), "-append", append]
    for tag, path, more in shares:
        words += ["-fsdev", f"local,id={tag},path={path},security_model=none{more}",
                  "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return words + networks(plan, host, ends)


def die_with_parent() -> None:
    """A guest does not outlive who started it, however that one ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def boot(plan: Plan, host: str, image: Path, initrd: Path, ends: list[socket.socket]) -> subprocess.Popen:
    """`ends` are this guest's ends of the networks between the guests. They are made here and not by qemu: one that
    listens by itself (7.2) blocks in a write, and its whole guest stands still, while the other one's link is down."""
    with open(plan.directory / f"console.{host}", "wb") as console:
        return subprocess.Popen(command(plan, host, image, initrd, ends), stdin=subprocess.DEVNULL, stdout=console,
                                stderr=subprocess.STDOUT, preexec_fn=die_with_parent, cwd="/",
                                pass_fds=[end.fileno() for end in ends], env={**os.environ, "LC_ALL": "C"})
