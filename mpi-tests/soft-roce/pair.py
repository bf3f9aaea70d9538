"""What the tests between two guests share: a job with a rank on each, and links that go down."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rxe  # noqa: E402
from rxe import RAIL, jobs, on, verdict  # noqa: E402

HOSTS = ("a", "b")
ADDRESSES = ("198.18.10.1", "198.18.10.2")  # on the rail
TIMEOUT_CODE = 14  # 0.54 s
SETTLE_S = 2.0
STALL_MS = 700  # a round of messages that takes longer is printed
BEYOND_S = 6.0  # from link up to the first delivery, unless a test asks for less (--beyond)
SHARED = Path("/out/tmp")  # both guests see it
MANAGEMENT = "198.18.9.0/24"
PACKETS = 400  # sent by then: the job is under way


class Pair:
    """A job with a rank on each guest."""

    def __init__(self, options: argparse.Namespace, program: str, args: list[str], mca: dict[str, object] | None = None,
                 timeout: float = 120.0, mpirun_args: tuple[str, ...] = ()) -> None:
        self.options = options
        self.wrong: list[str] = []
        self.until = Path("/dev/null")
        self.before = rxe.packets_sent()
        wiring = ["-H", ",".join(f"{host}:1" for host in HOSTS), "--mca", "plm_rsh_agent", str(rsh()), "--mca",
                  "oob_tcp_if_include", MANAGEMENT, "--mca", "orte_tmpdir_base", "/tmp", "-x", jobs.MARK, *mpirun_args]
        job = rxe.job(options.build, 2, program, args, {"ib_timeout": TIMEOUT_CODE, **(mca or {})}, base=SHARED,
                      mpirun_args=wiring, timeout=timeout)
        self.running = jobs.Running(job)

    @classmethod
    def steady(cls, options: argparse.Namespace, *args: str, timeout: float = 150.0,
               mpirun_args: tuple[str, ...] = ()) -> Pair:
        """Traffic until enough() is called: on a busy machine a link takes seconds to be told."""
        until = Path(tempfile.gettempdir()) / f"enough-{time.time_ns()}"
        pair = cls(options, "steady", ["--seconds", str(int(timeout)), "--until", str(until), *args], timeout=timeout,
                   mpirun_args=mpirun_args)
        pair.until = until
        return pair

    def enough(self) -> None:
        self.until.touch()

    def expect(self, good: bool, otherwise: str) -> bool:
        if not good:
            self.wrong.append(otherwise)
        return good

    def under_way(self, packets: int = PACKETS) -> bool:
        return self.expect(rxe.wait_for_packets(self.running, self.before, packets), "the job never came up")

    def said(self, word: str) -> int:
        """How often, so far."""
        return self.running.output_path.read_text(errors="replace").count(word)

    def hears(self, word: str, times: int = 1, limit: float = 60.0) -> bool:
        """Waits until it was said so often."""
        until = time.monotonic() + limit
        while time.monotonic() < until and self.running.process.poll() is None:
            if self.said(word) >= times:
                return True
            time.sleep(0.02)
        return self.expect(False, f"nobody said {word!r}" if times == 1 else f"{word!r} was not said {times} times")

    def finish(self, demands: verdict.Demands) -> tuple[jobs.Result, dict]:
        self.enough()
        result = self.running.finish()
        self.wrong += rxe.faults(result, demands)
        stats, _ = verdict.ledger(result)
        hosts = sorted(str(one.get("host")) for one in stats.values())
        self.expect(not stats or hosts == list(HOSTS), f"the ranks were on {hosts}")
        left = on("b", pids_of("steady"))
        self.expect(not left, f"left behind on b: {left}")
        return result, stats


def rsh() -> Path:
    return Path(__file__).resolve().parent / "guest" / "rsh.py"


def pids_of(program: str) -> str:
    return f'for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = {program} ] && echo ${{p#/proc/}}; done; true'


def link(host: str, state: str) -> float:
    """When it was told to; what follows is counted from then."""
    now = time.monotonic()
    on(host, f"ip link set {RAIL} {state}")
    return now


def take_down(pair: Pair, host: str) -> float:
    """The link of this host goes down, and is shown to: it is the port of this host that says so, and no other."""
    down = link(host, "down")
    for other in HOSTS:
        want = "DOWN" if other == host else "ACTIVE"
        state = rxe.port_state(other)
        pair.expect(state == want, f"the port of {other} was {state} when the link of {host} was down")
    return down


def break_link(pair: Pair, host: str, seconds: float) -> tuple[float, float]:
    down = take_down(pair, host)
    time.sleep(max(0.0, down + seconds - time.monotonic()))
    return down, link(host, "up")
