"""What the tests inside a guest share: a job on soft-RoCE, its judgement, links and their counters."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import job as jobs  # noqa: E402
from harness import verdict  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent / "guest"))
import rsh  # noqa: E402

DEVICE = "rxe0"
RAIL = "rail0"
IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
RETRIES = 7
IN_RESERVE = 2  # queue pairs (btl_mend_qp_pool_size); each that is taken is made up for
COUNTS = ("recoveries", "replayed", "in_doubt", "dup_rx", "qps_created", "bytes_sent", "bytes_received")


def window_s(timeout_code: int) -> float:
    """How long the device itself repeats a packet: what is shorter never reaches mend."""
    return 4.096e-6 * 2**timeout_code * (RETRIES + 1)


def job(build: Path, np: int, program: str, args: list[str], mca: dict[str, object], **more) -> jobs.Job:
    settings = {"verbs_library": "auto", **mca}
    return jobs.Job(build=build, np=np, program=build / "mpi-tests" / program, args=args,
                    mca=[(f"btl_mend_{key}", str(value)) for key, value in settings.items()], **more)


def faults(result: jobs.Result, demands: verdict.Demands) -> list[str]:
    """What is wrong with a run; also that it ran on another device."""
    wrong = verdict.faults(result, demands)
    stats, _ = verdict.ledger(result)
    return wrong + [f"rank {rank} used {one.get('device')}, not soft-RoCE" for rank, one in sorted(stats.items())
                    if not str(one.get("device", "")).startswith("rxe")]


def recovered(stats: dict[int, dict]) -> list[str]:
    """What is missing for a broken connection that was repaired on both sides."""
    return [f"rank {rank} never had to recover" for rank, one in sorted(stats.items()) if one["recoveries"] == 0]


def healed(stats: dict[int, dict]) -> list[str]:
    """The same, with messages under way."""
    wrong = recovered(stats)
    if verdict.total(stats, "replayed") == 0:
        wrong.append("nothing was replayed")
    return wrong


def abandoned(stats: dict[int, dict]) -> int:
    """Attempts to repair a connection that came to nothing, all ranks together: each took a queue pair, as did the first
    connection and each repair that was one. (With one peer. A request that nobody answers for seconds is such an attempt too.)"""
    return sum(one["qps_created"] - IN_RESERVE - 1 - one["recoveries"] for one in stats.values())


def outages(stats: dict[int, dict]) -> list[float]:
    """The longest that each rank had, in seconds."""
    return [one.get("max_outage_us", 0) / 1e6 for _, one in sorted(stats.items())]


def report(name: str, result: jobs.Result, wrong: list[str], more: str = "") -> int:
    """Prints what happened; the exit status."""
    stats, _ = verdict.ledger(result)
    if wrong:
        for rank, one in sorted(stats.items()):
            print(f"rank {rank}: {one}")
    counts = " ".join(f"{key}={verdict.total(stats, key)}" for key in COUNTS)
    longest = ", ".join(f"{outage:.2f}" for outage in outages(stats))
    return verdict.conclude("soft-roce", wrong, result,
                            f"{name}: {result.seconds:.1f} s, {counts}, longest outages {longest} s{more}")


def on(host: str, command: str, check: bool = True) -> str:
    """Runs a command on a guest, this one or the other; without a program in between, so that it happens now."""
    said = bytearray()
    status = rsh.call(host, command, said.extend)
    text = said.decode(errors="replace").strip()
    if check and status != 0:
        raise RuntimeError(f"{host}: {command}: status {status}: {text}")
    return text


def port_state(host: str) -> str:
    """DOWN, ACTIVE, ..."""
    return on(host, f"cat /sys/class/infiniband/{DEVICE}/ports/1/state").partition(": ")[2]


def packets_sent() -> int:
    return int((Path("/sys/class/infiniband") / DEVICE / "ports/1/hw_counters/sent_pkts").read_text())


def wait_for_packets(running: jobs.Running, before: int, count: int, limit: float = 60.0) -> bool:
    """True once the device of this guest has sent so many packets; False if the job ends before that."""
    until = time.monotonic() + limit
    while time.monotonic() < until and running.process.poll() is None:
        if packets_sent() - before >= count:
            return True
        time.sleep(0.02)
    return False


def ipv4_gid_index() -> int:
    """Of this guest's device."""
    gids = Path("/sys/class/infiniband") / DEVICE / "ports/1/gids"
    return next(index for index in range(16) if (gids / str(index)).read_text().startswith(IPV4_MAPPED))
