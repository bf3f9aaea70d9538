#!/usr/bin/env python3
"""mend beside the programs of perftest, beside tcp and beside UCX, on soft-RoCE in one guest; runs inside it.

Processors are emulated there: only ratios between programs of the same run mean something. They take turns, round after
round; the figures are medians over the rounds. A latency is the median of single round trips, halved (perftest: typical):
a mean counts every time that the machine below stopped the guest.

  figures.py BUILD [--rounds N] [--only WORD] [--json FILE] [--check]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rxe  # noqa: E402
from rxe import jobs, verdict  # noqa: E402

# (what, below, above, limit, more): below / above must be at most the limit; at least that if `more`. None: for comparison.
RATIOS = [
    ("8 B half round trip, mend / ib_send_lat", "mend latency", "ib_send_lat", 1.5, False),
    # 0.35 was wanted: less than verbs take here without any MPI, which the next line tells.
    ("8 B half round trip, mend / tcp", "mend latency", "tcp latency", 0.5, False),
    ("8 B half round trip, ib_send_lat / tcp", "ib_send_lat", "tcp latency", None, False),
    ("8 B half round trip, mend / UCX", "mend latency", "UCX latency", None, False),
    ("8 B half round trip, UCX / ib_send_lat", "UCX latency", "ib_send_lat", None, False),
    ("1 MiB bandwidth, mend / ib_write_bw", "mend bandwidth", "ib_write_bw", 0.9, True),
]
# UCX hears no datagram on this device unless it is told not to look at the address in front of it.
UCX = {"UCX_TLS": "self,rc_v", "UCX_NET_DEVICES": f"{rxe.DEVICE}:1", "UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
STARTS_S = 30.0  # at most, until the server of perftest listens
PERFTEST = 18515  # its port
ROUND_TRIPS = 2000
# 1 MiB messages: emulated processors move some hundred of them in a second.
BANDWIDTH = ["-W", "8", "-i", "20"]


def row(output: str, size: int, column: int) -> float:
    for line in output.splitlines():
        words = line.split()
        if len(words) > column and words[0] == str(size):
            return float(words[column])
    raise RuntimeError(f"no figure for {size} bytes in:\n{output[-2000:]}")


def wait_for_listener(port: int) -> None:
    until = time.monotonic() + STARTS_S
    while time.monotonic() < until:
        lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
        if any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines):
            return
        time.sleep(0.1)


def perftest(program: str, size: int, count: int, column: int) -> float:
    words = [program, "-d", rxe.DEVICE, "-x", str(rxe.ipv4_gid_index()), "-s", str(size), "-n", str(count), "-F"]
    server = subprocess.Popen(["taskset", "-c", "0", *words], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        wait_for_listener(PERFTEST)
        client = subprocess.run(["taskset", "-c", "1", *words, "localhost"], capture_output=True, text=True, timeout=120,
                                check=False)
        server.wait(timeout=20)
    finally:
        server.kill()
    return row(client.stdout + client.stderr, size, column)


def osu(build: Path, program: str, size: int, btl: str, args: list[str], column: int) -> float:
    ucx = btl == "ucx"
    job = rxe.job(build, 2, f"bench/{program}", ["-l", str(size), *args], {}, btl=btl,
                  mpirun_args=["--bind-to", "core"], env=UCX if ucx else {}, timeout=120.0)
    if btl != "mend":
        job.mca = [("pml", "ucx"), ("btl", "self"), ("osc", "^ucx")] if ucx else []
    result = jobs.run(job)
    demands = verdict.Demands(np=2, mend=btl == "mend", ok_line=False)
    wrong = rxe.faults(result, demands) if btl == "mend" else verdict.faults(result, demands)
    if wrong:
        raise RuntimeError(f"{btl} {program}: {'; '.join(wrong)}\n{result.output[-2000:]}")
    return row(result.output, size, column)


def latency(build: Path, btl: str) -> float:
    return osu(build, "osu_latency", 8, btl, ["-i", str(ROUND_TRIPS), "-z", "P50"], 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="figures with this in their name, such as lat")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a ratio is worse than its limit")
    options = parser.parse_args()
    build = options.build.resolve()
    mib = 1 << 20
    sources = {
        "ib_send_lat": lambda: perftest("ib_send_lat", 8, ROUND_TRIPS, 4),  # t_typical
        "mend latency": lambda: latency(build, "mend"),
        "tcp latency": lambda: latency(build, "tcp"),
        "UCX latency": lambda: latency(build, "ucx"),
        "ib_write_bw": lambda: perftest("ib_write_bw", mib, 200, 3),  # average
        "mend bandwidth": lambda: osu(build, "osu_bw", mib, "mend", BANDWIDTH, 1),
    }
    sources = {name: measure for name, measure in sources.items() if options.only in name}
    seen: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(options.rounds):
        for name, measure in sources.items():
            began = time.monotonic()
            seen[name].append(measure())
            print(f"   {name}: {seen[name][-1]:.1f} (took {time.monotonic() - began:.0f} s)", flush=True)
    median = {name: statistics.median(values) for name, values in seen.items()}
    for name, values in seen.items():
        print(f"{name}: {median[name]:.1f}  ({', '.join(f'{value:.1f}' for value in values)})")
    missed = 0
    ratios: dict[str, float] = {}
    for what, below, above, limit, more in RATIOS:
        if below not in median or above not in median:
            continue
        ratio = ratios[what] = median[below] / median[above]
        if limit is None:
            print(f"{what}: {ratio:.2f}")
            continue
        met = ratio >= limit if more else ratio <= limit
        missed += not met
        print(f"{what}: {ratio:.2f}, {'at least' if more else 'at most'} {limit}: {'met' if met else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps({"seen": seen, "ratios": ratios}, indent=1) + "\n")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
