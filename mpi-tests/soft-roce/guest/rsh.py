#!/usr/bin/env python3
"""Runs a command on a guest, from the other one or from itself: rsh.py HOST WORD... Its output and status are passed on.

mpirun takes it for ssh (--mca plm_rsh_agent), so the words are joined and read by a shell over there.
"""

import re
import socket
import sys

PORT = 7777
TRAILER = re.compile(rb"\x00(\d+)\n\Z")
HELD = 8  # bytes that may be the trailer


def main() -> int:
    address = {"a": "198.18.9.1", "b": "198.18.9.2"}[sys.argv[1]]
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(" ".join(sys.argv[2:]).replace("\n", " ").encode() + b"\n")
        kept = b""
        while data := connection.recv(65536):
            kept += data
            sys.stdout.buffer.write(kept[:-HELD])
            sys.stdout.buffer.flush()
            kept = kept[-HELD:]
    end = TRAILER.search(kept)
    sys.stdout.buffer.write(kept[:end.start()] if end else kept)
    sys.stdout.buffer.flush()
    return int(end.group(1)) % 256 if end else 255


if __name__ == "__main__":
    sys.exit(main())
