#!/usr/bin/env python3
"""Every rank uses the NICs that `mend-info topo` promised, and no others.

  places.py BUILD own     four devices, one on each NUMA node of a made-up machine: every byte of a rank goes over its own
  places.py BUILD shared  two devices on each of two nodes, ranks mapped round robin to the packages: the ranks of a
                          package begin with different ones, evenly
  places.py BUILD spread  the same devices and btl_mend_numa_policy spread: one device per rank, all in turn

The machine is an hwloc file, the devices' nodes come from softhca's configuration, the bindings of the ranks from
btl_mend_test_bindings. With --no-places the ranks are not told where they are bound, and the test must fail.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

NODES = ["0-1", "2-3", "4-5", "6-7"]
PACKAGES = ["0-3", "4-7"]
MODES = {"own": ("four-places.conf", NODES, "near"),
         "shared": ("two-per-node.conf", PACKAGES, "near"),
         "spread": ("two-per-node.conf", PACKAGES, "spread")}


def promised(build: Path, env: dict[str, str], bindings: str, policy: str) -> dict[int, dict]:
    command = [str(build / "bin" / "mend-info"), "--library", "softhca", "topo", "--json", "--bindings", bindings,
               "--policy", policy]
    told = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False)
    if told.returncode != 0:
        sys.exit(f"places FAILED: mend-info: {told.stderr}")
    return {rank["rank"]: rank for rank in json.loads(told.stdout)["ranks"]}


def compare(rank: int, promise: dict, seen: dict) -> list[str]:
    wrong = []
    want = [rail["rail"] for rail in promise["rails"]]
    have = [rail["name"] for rail in seen["rails"]]
    if want != have:
        wrong.append(f"rank {rank}: promised {want}, uses {have}")
    for rail, line in zip(promise["rails"], seen["rails"]):
        if rail["distance"] != line["distance"]:
            wrong.append(f"rank {rank}: {line['name']} promised at {rail['distance']}, counts as {line['distance']}")
    if seen["rails"] and seen["rails"][0]["bytes_sent"] == 0:
        wrong.append(f"rank {rank}: nothing went over {have[0]}, its first rail")
    return wrong


def uneven(promises: dict[int, dict]) -> list[str]:
    load: dict[tuple, dict[str, int]] = {}
    for rank in promises.values():
        rails = [rail["rail"] for rail in rank["rails"]]
        share = load.setdefault(tuple(sorted(rails)), dict.fromkeys(rails, 0))
        share[rank["rail"]] += 1
    return [f"ranks that share {names} are spread {list(share.values())}"
            for names, share in load.items() if max(share.values()) - min(share.values()) > 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--np", type=int, default=8)
    parser.add_argument("--no-places", action="store_true", help="bind nobody: must fail")
    args = parser.parse_args()
    conf, units, policy = MODES[args.mode]
    build = args.build.resolve()
    bindings = "/".join(units[rank % len(units)] for rank in range(args.np))
    env = {"SOFTHCA_CONF": str(HERE / "conf" / conf), "HWLOC_XMLFILE": str(HERE / "conf" / "four-nodes.xml")}
    promises = promised(build, {**env, "SOFTHCA_FABRIC": f"places{os.getpid()}"}, bindings, policy)
    mca = [("btl_mend_numa_policy", policy)]
    if not args.no_places:
        mca.append(("btl_mend_test_bindings", bindings))
    result = jobs.run(jobs.Job(build=build, np=args.np, program=build / "mpi-tests" / "collectives", args=["--quick"],
                               mca=mca, env={"SOFTHCA_CONF": env["SOFTHCA_CONF"]},
                               rank_env={"HWLOC_XMLFILE": env["HWLOC_XMLFILE"]}, timeout=90.0))
    wrong = verdict.faults(result, verdict.Demands(np=args.np, moves=("sends", "recvs")))
    stats, _ = verdict.ledger(result)
    for rank, seen in stats.items():
        wrong += compare(rank, promises[rank], seen)
    wrong += uneven(promises)
    first = ", ".join(f"{rank}: {promise['rail']}" for rank, promise in promises.items())
    return verdict.conclude("places", wrong, result, f"{args.mode} np {args.np}; {first}")


if __name__ == "__main__":
    sys.exit(main())
