#!/usr/bin/env python3
"""Instructions per 8-byte message (one send and its receive) in ops and all it calls, without the device.

Runs bench_channel twice under callgrind with different numbers of messages and takes the difference, so
that set-up cancels out. Prints the figure and its parts; exits 1 above --limit.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

OURS = ("Side::send(", "Poller::progress(")
DEVICE = ("device_post_send(", "device_poll_cq(", "device_post_srq_recv(")


def inclusive(valgrind, program, messages):
    """Inclusive instruction counts by function name of one run."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        subprocess.run([valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", program,
                        "--messages", str(messages)], check=True, stderr=subprocess.DEVNULL)
        text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out],
                              check=True, capture_output=True, text=True).stdout
    costs = {}
    for line in text.splitlines():
        match = re.match(r"\s*([\d,]+)\s+\([^)]*\)\s+\S+?:(.*?)(?:\s+\[.*\])?$", line)
        if match:
            name = match.group(2)
            costs[name] = max(costs.get(name, 0), int(match.group(1).replace(",", "")))
    return costs


def part(costs, needle):
    found = [cost for name, cost in costs.items() if needle in name]
    if not found:
        sys.exit(f"no function {needle} in the profile")
    return max(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("valgrind")
    parser.add_argument("program")
    parser.add_argument("--limit", type=int, default=400, help="instructions per message")
    options = parser.parse_args()
    few, many = 2000, 6000
    low = inclusive(options.valgrind, options.program, few)
    high = inclusive(options.valgrind, options.program, many)
    per = {name: (part(high, name) - part(low, name)) / (many - few) for name in OURS + DEVICE}
    total = sum(per[name] for name in OURS) - sum(per[name] for name in DEVICE)
    for name, cost in per.items():
        print(f"{name.rstrip('('):24} {cost:7.1f}")
    print(f"{'ops without the device':24} {total:7.1f}  (limit {options.limit})")
    return 1 if total > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
