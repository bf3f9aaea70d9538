#!/usr/bin/env python3
"""Latency, bandwidth and message rate of mend beside its peers on this machine.

The peers run interleaved, round after round, so that a change in the machine's load meets all of them; ranks are bound
to different cores; the table shows medians over the rounds and mend's ratio to vader. Latencies are half round trips.

  bench.py --build build/release [--quick] [--json FILE] [--peers mend,vader,tcp] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

# Program, column of its output, unit, sizes that the table shows.
SERIES = {
    "latency": ("osu_latency", 1, "us", (8, 1024, 4096, 65536, 1 << 20)),
    "bandwidth": ("osu_bw", 1, "MB/s", (4096, 65536, 1 << 20)),
    "rate": ("osu_mbw_mr", 2, "messages/s", (8,)),
}
# Figures with a limit on mend / vader: (series, size) -> (must, reach for); at most for latency, at least otherwise.
LIMITS = {
    ("latency", 8): (2.0, 1.4),
    ("latency", 65536): (1.15, 1.0),
    ("latency", 1 << 20): (1.15, 1.0),
    ("bandwidth", 1 << 20): (0.90, 1.0),
    ("rate", 8): (0.25, 0.5),
}


@dataclass
class Peer:
    name: str
    btl: str
    mca: list[tuple[str, str]]
    preload: bool = False  # an unmodified verbs program on the embedded device


PEERS = {
    "mend": Peer("mend", "mend", []),
    "vader": Peer("vader", "vader", []),
    "tcp": Peer("tcp", "tcp", []),
    "openib": Peer("openib", "openib", [("btl_openib_allow_ib", "1"),
                                        ("btl_openib_warn_no_device_params_found", "0"),
                                        ("btl_openib_warn_default_gid_prefix", "0")], True),
    "ucx": Peer("ucx", "self", [("pml", "ucx"), ("pml_ucx_devices", "any"),
                                ("pml_ucx_tls", "any")], True),
}


def job_for(peer: Peer, build: Path, program: str, arguments: list[str], bind: bool) -> jobs.Job:
    rank_env = {}
    if peer.preload:
        rank_env["LD_PRELOAD"] = str(build / "lib" / "libsofthca.so")
    if peer.name == "openib":  # it looks for this directory and reads nothing in it
        sysfs = build / "bench-sysfs"
        (sysfs / "class" / "infiniband").mkdir(parents=True, exist_ok=True)
        rank_env["SYSFS_PATH"] = str(sysfs)
    if peer.name == "ucx":
        rank_env |= {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "softhca0:1"}
    return jobs.Job(build=build, np=2, program=build / "mpi-tests" / "bench" / program,
                    args=arguments, btl=peer.btl, mca=list(peer.mca), rank_env=rank_env,
                    mpirun_args=["--bind-to", "core"] if bind else ["--bind-to", "none"],
                    timeout=60.0)


def rows(output: str, column: int) -> dict[int, float]:
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) > column and words[0].isdigit():
            found[int(words[0])] = float(words[column])
    return found


def measure(peer: Peer, series: str, options: argparse.Namespace, bind: bool) -> dict[int, float]:
    program, column, _, sizes = SERIES[series]
    job = job_for(peer, options.build, program, ["-l", ",".join(map(str, sizes))], bind)
    result = jobs.run(job)
    demands = verdict.Demands(np=2, mend=peer.name == "mend", ok_line=False, quiet=False)
    wrong = verdict.faults(result, demands)
    if peer.preload:  # the peer's own leftovers are not ours to judge
        wrong = [line for line in wrong if not line.startswith("file left behind")]
    found = {size: value for size, value in rows(result.output, column).items() if size in sizes}
    if not wrong and set(found) != set(sizes):
        wrong = [f"sizes {sorted(set(sizes) - set(found))} are missing"]
    if wrong:
        raise RuntimeError(f"{peer.name} {program}: {'; '.join(wrong)}\n{result.output[-1500:]}")
    return found


def usable(peer: Peer, options: argparse.Namespace, bind: bool) -> str:
    """Empty if the peer works here, else why it is left out."""
    if peer.preload and not (options.build / "lib" / "libsofthca.so").exists():
        return "there is no libsofthca.so to preload"
    job = job_for(peer, options.build, "osu_latency", ["-m", "8:8", "-i", "10"], bind)
    job.timeout = 15.0
    result = jobs.run(job)
    if result.returncode == 0 and not result.timed_out and 8 in rows(result.output, 1):
        return ""
    said = [line.strip() for line in result.output.splitlines() if line.strip(" -")]
    return f"does not run here: {said[0][:100] if said else 'no output'}"


def collect(peers: list[Peer], options: argparse.Namespace, bind: bool) -> tuple[dict, int]:
    """(peer, series, size) -> values, one per round, and the number of rounds."""
    values: dict[tuple[str, str, int], list[float]] = {}
    rounds = 0
    started = time.monotonic()
    while True:
        began = time.monotonic()
        for series in SERIES:
            order = peers[rounds % len(peers):] + peers[:rounds % len(peers)]
            for peer in order:
                for size, value in measure(peer, series, options, bind).items():
                    values.setdefault((peer.name, series, size), []).append(value)
        rounds += 1
        now = time.monotonic()
        if now - started + (now - began) > options.seconds or rounds >= options.rounds:
            return values, rounds


def judge(series: str, size: int, ratio: float) -> str:
    if (series, size) not in LIMITS:
        return ""
    must, reach = LIMITS[series, size]
    if series == "latency":
        return "reached" if ratio <= reach else "met" if ratio <= must else "MISSED"
    return "reached" if ratio >= reach else "met" if ratio >= must else "MISSED"


def label(size: int) -> str:
    if size >= 1 << 20:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


def report(peers: list[Peer], values: dict) -> list[dict]:
    lines = []
    names = [peer.name for peer in peers]
    print(f"{'':22}" + "".join(f"{name:>14}" for name in names) + f"{'mend/vader':>12}{'of best':>9}  limit")
    for series, (_, _, unit, sizes) in SERIES.items():
        for size in sizes:
            row = {"series": series, "size": size, "unit": unit, "values": {}}
            for name in names:
                got = values[name, series, size]
                row["values"][name] = {"median": statistics.median(got), "min": min(got),
                                       "max": max(got), "rounds": len(got)}
            medians = {name: row["values"][name]["median"] for name in names}
            text = f"{series + ' ' + label(size):22}"
            digits = {"us": 3, "MB/s": 1, "messages/s": 0}[unit]
            text += "".join(f"{medians[name]:>14.{digits}f}" for name in names)
            if "mend" in medians and "vader" in medians:
                row["mend_to_vader"] = medians["mend"] / medians["vader"]
                best = "min" if series == "latency" else "max"
                row["mend_to_vader_of_best"] = (row["values"]["mend"][best] /
                                                row["values"]["vader"][best])
                row["verdict"] = judge(series, size, row["mend_to_vader"])
                text += f"{row['mend_to_vader']:>12.2f}{row['mend_to_vader_of_best']:>9.2f}"
                if (series, size) in LIMITS:
                    sign = "<=" if series == "latency" else ">="
                    text += f"  {sign} {LIMITS[series, size][0]:.2f} {row['verdict']}"
            print(text)
            lines.append(row)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, required=True)
    add("--quick", action="store_true", help="about 30 seconds instead of 90")
    add("--seconds", type=float, default=0.0, help="time to spend on the rounds")
    add("--rounds", type=int, default=15, help="at most so many")
    add("--peers", default="mend,vader,tcp,openib,ucx")
    add("--json", type=Path)
    add("--check", action="store_true", help="exit 1 if a limit is missed")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.seconds = options.seconds or (25.0 if options.quick else 80.0)
    cores = len(os.sched_getaffinity(0))
    bind = cores >= 2
    print(f"# {cores} cores, ranks {'on different cores' if bind else 'NOT bound: one core'}")
    peers = []
    for name in options.peers.split(","):
        reason = usable(PEERS[name], options, bind)
        if reason and name in ("mend", "vader"):
            print(f"bench: {name} {reason}", file=sys.stderr)
            return 1
        if reason:
            print(f"# {name} is left out: {reason}")
        else:
            peers.append(PEERS[name])
    try:
        values, rounds = collect(peers, options, bind)
    except RuntimeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"# medians of {rounds} interleaved rounds; latency: half round trip in us, "
          "bandwidth in MB/s, rate in messages/s")
    lines = report(peers, values)
    if options.json:
        options.json.write_text(json.dumps({"cores": cores, "bound": bind, "rounds": rounds,
                                            "figures": lines}, indent=1) + "\n")
    missed = [row for row in lines if row.get("verdict") == "MISSED"]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
