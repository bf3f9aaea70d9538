"""What the machine must have to boot guests with soft-RoCE, and which Debian package brings it.

Nothing here asks dpkg: what counts is that the files are there, whoever put them there.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

SKIPPED = 77  # exit status of a test that cannot run here
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modinfo": "kmod",
    "ip": "iproute2",
    "rdma": "iproute2",
    "tc": "iproute2",
    "ibv_devinfo": "ibverbs-utils",
    "ib_send_lat": "perftest",
    "python3": "python3",
}
LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "libibverbs/librxe-rdmav*.so": "ibverbs-providers",
}
KERNEL_PACKAGE = "linux-image-amd64"
SYSTEM_PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")  # an ordinary user's PATH has no sbin


def program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=":".join(SYSTEM_PATH))


def is_static(path: str) -> bool:
    """A dynamic busybox (the package `busybox`) cannot run in an initramfs that holds no libraries."""
    return b"/ld-linux" not in Path(path).read_bytes()


def release_key(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def kernel() -> tuple[Path, str] | None:
    """The newest packaged kernel whose modules are installed and have soft-RoCE: its image and its release."""
    found = []
    for image in Path("/boot").glob("vmlinuz-*"):
        release = image.name.partition("-")[2]
        modules = Path("/lib/modules") / release
        if any(modules.glob("kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*")):
            found.append((release_key(release), image, release))
    return max(found)[1:] if found else None


def missing() -> list[str]:
    """The packages to install, without doubles, in a fixed order."""
    packages = []
    for name, package in PROGRAMS.items():
        path = program(name)
        if path is None or (name == "busybox" and not is_static(path)):
            packages.append(package)
    for pattern, package in LIBRARIES.items():
        if not any(any(Path(base).glob(f"*-linux-gnu/{pattern}")) for base in ("/usr/lib", "/lib")):
            packages.append(package)
    if kernel() is None:
        packages.append(KERNEL_PACKAGE)
    return list(dict.fromkeys(packages))


def explain(packages: list[str]) -> str:
    return (f"missing: {', '.join(packages)}. To install: apt-get install --no-install-recommends "
            f"{' '.join(packages)}")
