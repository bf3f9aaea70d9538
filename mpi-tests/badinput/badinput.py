#!/usr/bin/env python3
"""Bad input and bad days: each gets a clear message or is worked around, never a hang or a crash.

  badinput.py BUILD_DIR [CLASS[.test] ...]
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from badinput.support import ALONE, BUILD, WITH_VADER, BadInput, jobs, ring  # noqa: E402

REFUSED = "does not start because a parameter is out of range"


def mapped_segments(run_id: str) -> set[str]:
    """The segments of the embedded device that the processes of a job have mapped."""
    found = set()
    for pid in jobs.processes_of(run_id):
        try:
            maps = (Path("/proc") / str(pid) / "maps").read_text()
        except OSError:
            continue
        found |= {line.split()[-1] for line in maps.splitlines() if "/dev/shm/softhca." in line}
    return found


def mca(**values: str) -> dict:
    return {"mca": [(f"btl_mend_{key}", value) for key, value in values.items()]}


class Parameters(BadInput):
    """A value out of range is refused with the parameter, the value and what is legal."""

    def out_of_range(self, name: str, value: str, legal: str) -> None:
        self.refused(REFUSED, f"Parameter: btl_mend_{name}", f"Value: {value}", f"Legal: {legal}",
                     **mca(**{name: value}))

    def test_above(self) -> None:
        self.out_of_range("ib_timeout", "32", "0 to 31")

    def test_below(self) -> None:
        self.out_of_range("ib_retry_count", "-1", "0 to 7")

    def test_hole_between_special_value_and_range(self) -> None:
        self.out_of_range("mtu", "1000", "256, 512, 1024, 2048, 4096")

    def test_window_too_small(self) -> None:
        self.out_of_range("window", "1", "2 to 4096")

    def test_choice(self) -> None:
        self.out_of_range("numa_policy", "far", "near, spread or none")

    def test_two_that_exclude_each_other(self) -> None:
        self.refused(REFUSED, "btl_mend_if_exclude",
                     **mca(if_include="softhca0", if_exclude="softhca1"))

    def test_a_range_turned_round(self) -> None:
        self.refused(REFUSED, "btl_mend_reconnect_backoff_max_ms",
                     **mca(reconnect_backoff_min_ms="100", reconnect_backoff_max_ms="50"))

    def test_standard_btl_parameter(self) -> None:
        self.out_of_range("max_send_size", "100", "1024 to 4194304 bytes")


class Devices(BadInput):
    """Devices, ports and libraries that are not there or not usable."""

    def test_unknown_device(self) -> None:
        self.refused("btl_mend_if_include", "nosuch0", "softhca0", **mca(if_include="nosuch0"))

    def test_unknown_port(self) -> None:
        self.refused("btl_mend_if_include", "softhca0:7", **mca(if_include="softhca0:7"))

    def test_unreadable_list(self) -> None:
        self.refused("btl_mend_if_include", "softhca0:x", **mca(if_include="softhca0:x"))

    def test_no_such_library(self) -> None:
        self.refused("/nonexistent/libfast.so",
                     mca=[("btl_mend_verbs_library", "/nonexistent/libfast.so")])

    def test_a_library_without_verbs(self) -> None:
        library = "libz.so.1"  # any library that is sure to be there: mend itself uses it
        self.refused(library, "ibv_", mca=[("btl_mend_verbs_library", library)])

    def test_port_down(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[softhca0]\n[softhca0/1]\nstate = down\n")
            conf.flush()
            self.steps_aside("not used", env={"SOFTHCA_CONF": conf.name})

    def test_one_port_down_of_two(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[softhca0]\n[softhca0/1]\nstate = down\n[softhca0/2]\n")
            conf.flush()
            self.carried_by_mend(self.run_job(ring(ALONE, env={"SOFTHCA_CONF": conf.name})))

    def test_nonsense_in_the_device_configuration(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[softhca0]\nmax_qp = many\n")
            conf.flush()
            self.refused(f"{conf.name}:2", "many", env={"SOFTHCA_CONF": conf.name})

    def test_no_rdma_on_the_machine(self) -> None:
        if Path("/sys/class/infiniband").exists() and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has an RDMA device")
        with tempfile.TemporaryDirectory() as lonely:  # the embedded device does not lie beside it
            components = shutil.copytree(BUILD / "components", Path(lonely) / "components")
            self.steps_aside("not used", mca=[("btl_mend_verbs_library", "auto"),
                                              ("mca_base_component_path", f"{components}:SYSTEM_DEFAULT")])

    def test_an_embedded_device_that_is_not_where_the_user_says(self) -> None:
        if Path("/sys/class/infiniband").exists() and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has an RDMA device")
        self.refused("btl_mend_softhca_path", "looked at /nonexistent", mca=[("btl_mend_verbs_library", "auto"),
                                                                             ("btl_mend_softhca_path", "/nonexistent")])


class Resources(BadInput):
    """Limits of the system and of the device."""

    def test_memlock_too_low(self) -> None:
        # Root may lock what it likes, unless the capability is taken from it.
        wrapper = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
        wrapper = wrapper if os.geteuid() == 0 else []
        limits = {resource.RLIMIT_MEMLOCK: (65536, 65536)}
        for btl in (WITH_VADER, ALONE):
            with self.subTest(btl=btl):
                result = self.run_job(ring(btl, limits=limits, wrapper=wrapper))
                self.says(result, "ulimit -l unlimited", "64 KiB")
                self.assertEqual(result.returncode == 0, btl == WITH_VADER, result.output)

    def test_device_limits_are_kept(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[softhca0]\nmax_qp_wr = 32\nmax_srq_wr = 64\nmax_cqe = 512\n"
                       "max_rd_atomic = 1\nmax_inline = 32\n")
            conf.flush()
            self.carried_by_mend(self.run_job(ring(ALONE, np=4, env={"SOFTHCA_CONF": conf.name})),
                                 np=4)

    def test_too_few_queue_pairs_for_all_peers(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[softhca0]\nmax_qp = 3\n")
            conf.flush()
            self.bounded(ring(ALONE, np=4, env={"SOFTHCA_CONF": conf.name},
                              **mca(max_outage_s="4")), "create_qp", "queue pair", "max_qp")

    def failing(self, call: str, occurrences: tuple[str, ...], *words: str) -> None:
        for occurrence in occurrences:
            for btl in (WITH_VADER, ALONE):
                with self.subTest(call=call, occurrence=occurrence, btl=btl), \
                        tempfile.TemporaryDirectory(prefix="mend-faults-") as log:
                    env = {"SOFTHCA_FAULTS": f"fail={call}:{occurrence}:ENOMEM",
                           "SOFTHCA_FAULT_LOG": f"{log}/hits"}
                    result = self.bounded(ring(btl, env=env, **mca(max_outage_s="4")), call, *words)
                    hits = "".join(path.read_text() for path in Path(log).iterdir())
                    if btl == ALONE:  # beside vader some calls never come, because nobody connects
                        self.assertIn(f'"{call}"', hits, "the call never failed: this proves nothing")
                    if btl == WITH_VADER:
                        self.works(result)

    def test_pd_fails(self) -> None:
        self.failing("alloc_pd", ("1",))

    def test_cq_fails(self) -> None:
        self.failing("create_cq", ("1", "2", "1+"))

    def test_srq_fails(self) -> None:
        self.failing("create_srq", ("1", "1+"))

    def test_qp_fails(self) -> None:
        self.failing("create_qp", ("1", "2", "3", "4", "2+", "3+"), "queue pair")

    def test_mr_fails(self) -> None:
        self.failing("reg_mr", ("1", "2", "3", "4", "5", "3+"), "memory")

    def test_modify_fails(self) -> None:
        self.failing("modify_qp", ("1", "3", "5", "7", "5+"), "queue pair")

    def test_ah_fails(self) -> None:
        self.failing("create_ah", ("1", "1+"), "address")

    def test_shared_memory_full(self) -> None:
        probe = ["unshare", "--mount", "true"]
        if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
            self.skipTest("needs root and mount namespaces")
        for size in ("64k", "512k", "2m"):
            script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
            wrapper = ["unshare", "--mount", "sh", "-c", script, "sh"]
            with self.subTest(size=size):
                self.bounded(ring(ALONE, wrapper=wrapper, **mca(max_outage_s="4")),
                             "shared memory", "/dev/shm", "memory")


class Neighbours(BadInput):
    """Other jobs and other versions."""

    def other_version(self, btl: str) -> jobs.Job:
        library = BUILD / "mpi-tests" / "libother_version.so"
        script = '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export LD_PRELOAD=$0; exec "$@"'
        job = ring(btl)
        job.args = ["-c", script, str(library), str(job.program), *job.args]
        job.program = Path("/bin/sh")
        return job

    def test_a_peer_with_another_wire_version(self) -> None:
        result = self.run_job(self.other_version(WITH_VADER))
        self.works(result)
        self.in_a_line(result, "process 1 on", "wire version 99", "install the same mend")
        # Alone the ranks cannot reach each other. Open MPI says so, but 4.1 may lose its own message on the way.
        self.assertNotEqual(self.run_job(self.other_version(ALONE)).returncode, 0)

    def test_another_ucx(self) -> None:
        self.refused_in_a_line("built for the libucs of UCX 1.", "that of UCX 1.99", "LD_LIBRARY_PATH", preload="other_ucx")

    def test_another_open_mpi(self) -> None:
        """As where a component is loaded by an Open MPI that the soname of its library does not tell apart."""
        self.refused_in_a_line("built for Open MPI ", "this is Open MPI 9.9;", "mpicc", preload="other_ompi")

    def test_two_jobs_at_once(self) -> None:
        for fabric in (None, f"shared{os.getpid()}"):  # the component's choice; one for both
            with self.subTest(fabric=fabric):
                pair = [jobs.Running(ring(ALONE, fabric=fabric)) for _ in range(2)]
                results = [one.finish(keep_files=True) for one in pair]
                for result in results:
                    self.assertFalse(result.timed_out, result.output)
                    self.works(result)
                    self.silent(result)
                self.assertEqual(jobs.files_of(fabric), [])

    def test_segments_of_a_killed_job(self) -> None:
        fabric = f"stale{os.getpid()}"
        job = ring(ALONE, fabric=fabric)
        job.program, job.args = BUILD / "mpi-tests" / "faulty", ["hang"]
        victim = jobs.Running(job)
        until = time.monotonic() + 15
        while len(jobs.files_of(fabric)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        jobs.signal_all(victim.run_id, signal.SIGKILL)
        victim.finish(keep_files=True)
        self.assertNotEqual(jobs.files_of(fabric), [], "the victim left nothing to clean up")
        self.carried_by_mend(self.run_job(ring(ALONE, fabric=fabric)))

    def test_files_of_a_killed_job_with_another_fabric(self) -> None:
        """Every mpirun has a fabric of its own: without a sweep its files would stay for ever."""
        job = ring(ALONE, fabric=None)
        job.program, job.args = BUILD / "mpi-tests" / "faulty", ["hang"]
        victim = jobs.Running(job)
        until = time.monotonic() + 15
        while len(mapped_segments(victim.run_id)) < 3 and time.monotonic() < until:
            time.sleep(0.1)
        files = mapped_segments(victim.run_id)
        jobs.signal_all(victim.run_id, signal.SIGKILL)
        victim.finish()
        self.assertGreaterEqual(len(files), 3, "the victim never came up")
        self.works(self.run_job(ring(ALONE, fabric=None)))
        self.assertEqual([name for name in files if Path(name).exists()], [])

    def test_one_rank_killed_ends_the_job(self) -> None:
        job = ring(ALONE)
        job.program, job.args = BUILD / "mpi-tests" / "faulty", ["crash"]
        result = jobs.run(job)
        self.assertFalse(result.timed_out, result.output)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.left_processes, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
