#!/usr/bin/env python3
"""Runs commands in a guest until /out/stop appears: agent.py HOST [ADDRESS].

From the machine that booted it: a file /out/HOST/N.cmd; what the command says goes to N.out, its exit status to N.rc.
From the other guest, if ADDRESS is given: a line over TCP (rsh.py); what it says comes back, then NUL, status, newline.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

OUT = Path("/out")
PORT = 7777
POLL_S = 0.2


def run(words: str, out: int) -> int:
    """The status as a shell has it."""
    status = subprocess.run(["bash", "-c", words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                            cwd="/", check=False).returncode
    return status if status >= 0 else 128 - status


def run_file(path: Path) -> None:
    words = path.read_text()
    path.unlink()
    with open(path.with_suffix(".out"), "wb") as out:
        status = run(words, out.fileno())
    written = path.with_suffix(".tmp")
    written.write_text(f"{status}\n")
    written.rename(path.with_suffix(".rc"))


def serve(connection: socket.socket) -> None:
    with connection:
        line = connection.makefile("rb").readline().decode().rstrip("\n")
        if not line:
            return
        connection.sendall(b"\0%d\n" % run(line, connection.fileno()))
        connection.shutdown(socket.SHUT_RDWR)  # a daemon that the command left behind may hold a copy


def listen(address: str) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, PORT))
    listener.listen(16)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def main() -> None:
    box = OUT / sys.argv[1]
    if len(sys.argv) > 2 and sys.argv[2]:
        threading.Thread(target=listen, args=(sys.argv[2],), daemon=True).start()
    (box / "ready").touch()
    while not (OUT / "stop").exists():
        for path in sorted(box.glob("*.cmd")):
            threading.Thread(target=run_file, args=(path.rename(path.with_suffix(".run")),), daemon=True).start()
        time.sleep(POLL_S)


if __name__ == "__main__":
    os.chdir("/")
    main()
