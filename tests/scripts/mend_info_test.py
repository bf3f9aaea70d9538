"""mend-info as a user calls it: what it prints, in which form, and what it says of bad input.

usage: mend_info_test.py BUILD
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = ROOT / "tests/unit/topo/xml"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


def mend_info(*words: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_MCA_", "SOFTHCA_", "HWLOC_"))}
    env.update({"SOFTHCA_FABRIC": f"info{os.getpid()}", "HWLOC_HIDE_ERRORS": "2", **environment})
    done = subprocess.run([BUILD / "bin/mend-info", *words], env=env, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def machine(name: str, *words: str, **environment: str) -> dict:
    return json.loads(mend_info("topo", "--json", "--xml", str(MACHINES / f"{name}.xml"), *words, **environment).stdout)


class Installed(unittest.TestCase):
    def test_the_embedded_device_is_found_however_it_is_called(self) -> None:
        for words, cwd, path in ((["mend-info"], "/", f"{BUILD}/bin"), (["./mend-info"], BUILD / "bin", ""),
                                 (["bin/mend-info"], BUILD, ""), ([BUILD / "bin/mend-info"], "/", "")):
            done = subprocess.run([*words, "devices"], cwd=cwd, capture_output=True, text=True, timeout=60, check=False,
                                  env={"PATH": path, "SOFTHCA_FABRIC": f"info{os.getpid()}",
                                       "OMPI_MCA_btl_mend_verbs_library": "softhca"})
            self.assertEqual(done.returncode, 0, f"{words} in {cwd}: {done.stdout}{done.stderr}")
            self.assertIn("softhca0", done.stdout)


class Topo(unittest.TestCase):
    def test_devices_with_place_slot_and_state(self) -> None:
        found = {(d["name"], d["port"]): d for d in machine("two_packages")["devices"]}
        self.assertEqual(found["mlx5_0", 1], {"name": "mlx5_0", "port": 1, "numa": 0, "package": 0,
                                              "pci": "0000:5e:00.0", "speed_gbps": None, "state": "ACTIVE"})
        self.assertEqual(found["mlx5_0", 2]["state"], "DOWN")
        self.assertIsNone(found["rxe0", 1]["numa"])
        self.assertIsNone(found["rxe0", 1]["pci"])

    def test_ranks_get_the_nearest_and_share_evenly(self) -> None:
        ranks = machine("ten_nics", "--ranks", "20", "--bind-to", "socket")["ranks"]
        load: dict[str, int] = {}
        for rank in ranks:
            self.assertEqual(rank["distance"], 10)
            self.assertEqual(rank["numa"], rank["rank"] % 2)
            load[rank["rail"]] = load.get(rank["rail"], 0) + 1
        self.assertEqual(len(load), 10)
        for numa, nics in ((0, range(6)), (1, range(6, 10))):
            share = [load[f"mlx5_{nic}:1"] for nic in nics]
            self.assertLessEqual(max(share) - min(share), 1, f"NUMA {numa}")

    def test_a_port_that_is_down_is_nobodys_rail(self) -> None:
        rails = {rank["rail"] for rank in machine("two_packages", "--ranks", "8", "--bind-to", "none")["ranks"]}
        self.assertEqual(rails, {"mlx5_0:1", "mlx5_1:1", "rxe0:1"})

    def test_same_answer_every_time(self) -> None:
        words = ("nodes_per_package", "--ranks", "16", "--bind-to", "core")
        self.assertEqual(machine(*words), machine(*words))

    def test_the_environment_and_the_options_choose(self) -> None:
        one = machine("ten_nics", "--ranks", "3", OMPI_MCA_btl_mend_if_include="mlx5_7")["ranks"]
        self.assertEqual({rank["rail"] for rank in one}, {"mlx5_7:1"})
        spread = machine("ten_nics", "--ranks", "10", "--policy", "spread")["ranks"]
        self.assertEqual([rank["rail"] for rank in spread], [f"mlx5_{i}:1" for i in range(10)])

    def test_text_names_nodes_distances_and_rails(self) -> None:
        text = mend_info("topo", "--xml", str(MACHINES / "bridge.xml"), "--ranks", "4", "--bind-to", "numa").stdout
        for words in ("Package 0", "NUMA 3", "mlx5_bridge:1", "Distance", "rank 3", "policy near"):
            self.assertIn(words, text)

    def test_picture_is_well_formed_and_shows_all(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "node.svg"
            mend_info("topo", "--xml", str(MACHINES / "ten_nics.xml"), "--ranks", "4", "--svg", str(picture))
            words = " ".join(ElementTree.parse(picture).getroot().itertext())
        for name in [f"mlx5_{i}:1" for i in range(10)] + [f"rank {i} uses" for i in range(4)]:
            self.assertIn(name, words)

    def test_a_machine_without_rdma(self) -> None:
        told = json.loads(mend_info("topo", "--json", "--synthetic", "package:2 core:2 pu:1").stdout)
        self.assertEqual(told["devices"], [])
        self.assertIsNone(told["ranks"][0]["rail"])


class Embedded(unittest.TestCase):
    CONF = ROOT / "mpi-tests/conf/four-places.conf"

    def test_places_come_from_the_driver(self) -> None:
        told = json.loads(mend_info("--library", "softhca", "topo", "--json", SOFTHCA_CONF=str(self.CONF),
                                    HWLOC_XMLFILE=str(ROOT / "mpi-tests/conf/four-nodes.xml")).stdout)
        self.assertEqual([d["numa"] for d in told["devices"]], [0, 1, 2, 3])
        self.assertEqual({d["speed_gbps"] for d in told["devices"]}, {100})

    def test_devices(self) -> None:
        text = mend_info("--library", "softhca", "devices").stdout
        for words in ("memlock limit", "softhca0", "port 1: ACTIVE", "RoCE v2  <- used", "shared receive queues"):
            self.assertIn(words, text)

    def test_sizes_keep_the_two_times_rule(self) -> None:
        text = mend_info("--library", "softhca", "size", "--peers", "1000").stdout
        self.assertIn("1000 peers (1002 queue pairs", text)
        self.assertIn("2004 with all peers connected", text)
        self.assertRegex(text, r"host memory of the peers +[1-9][0-9]+ KiB")

    def test_params(self) -> None:
        text = mend_info("params", OMPI_MCA_btl_mend_window="64").stdout
        self.assertIn("btl_mend_window = 64  (default 128)", text)
        self.assertIn("btl_mend_max_outage_s = 120", text)


class BadInput(unittest.TestCase):
    def test_errors_name_what_is_wrong(self) -> None:
        for words, said in (
                (("topo", "--xml", "/nonexistent.xml"), "/nonexistent.xml"),
                (("topo", "--synthetic", "package:x"), "package:x"),
                (("topo", "--fsroot", "/nonexistent"), "/nonexistent"),
                (("topo", "--xml", str(MACHINES / "bridge.xml"), "--ranks", "2", "--bind-to", "toe"), "toe"),
                (("topo", "--xml", str(MACHINES / "bridge.xml"), "--bindings", "0-1/x"), '"x"'),
                (("--include", "mlx9_9", "topo", "--xml", str(MACHINES / "bridge.xml")), "mlx9_9"),
                (("--library", "/nonexistent.so", "devices"), "/nonexistent.so"),
                (("--library", "softhca", "size", "--peers", "2", "--device", "nothere"), "nothere")):
            done = mend_info(*words, status=1)
            self.assertIn(said, done.stderr, words)
            self.assertEqual(done.stdout.count("Package"), 0, words)

    def test_an_empty_and_a_truncated_file(self) -> None:
        whole = (MACHINES / "bridge.xml").read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "machine.xml"
            for length in (0, 1, len(whole) // 3, len(whole) // 2):
                file.write_bytes(whole[:length])
                self.assertIn(str(file), mend_info("topo", "--xml", str(file), status=1).stderr, length)

    # What the preview promised beyond eight rails, and read and refused otherwise than mpirun.
    def test_no_more_rails_than_the_transport_takes(self) -> None:
        ranks = machine("ten_nics", "--ranks", "2", "--policy", "none")["ranks"]
        self.assertEqual([len(rank["rails"]) for rank in ranks], [8, 8])

    def test_the_environment_is_read_as_mpirun_reads_it(self) -> None:
        text = mend_info("params", OMPI_MCA_btl_mend_pkey="0x7fff", OMPI_MCA_btl_mend_window="1k",
                         OMPI_MCA_btl_mend_prewarm="1", OMPI_MCA_btl_mend_held_bytes="12345").stdout
        for words in ("btl_mend_pkey = 32767", "btl_mend_window = 1024", "btl_mend_prewarm = true",
                      "btl_mend_held_bytes = 12345"):
            self.assertIn(words, text)
        self.assertIn("2048, 4096", mend_info("params", status=1, OMPI_MCA_btl_mend_mtu="1000").stderr)
        self.assertIn("true or false", mend_info("params", status=1, OMPI_MCA_btl_mend_prewarm="banana").stderr)

    def test_options_may_follow_the_command(self) -> None:
        mend_info("devices", "--library", "softhca")

    def test_many_ranks_are_planned_soon(self) -> None:
        self.assertEqual(len(machine("ten_nics", "--ranks", "20000", "--bind-to", "none")["ranks"]), 20000)

    def test_cpu_lists_are_lists_of_cpus(self) -> None:
        for bad in ("0-100000000", "99999999999999999999", "-5", "0x3"):
            self.assertIn("no list of CPUs", mend_info("topo", "--bindings", bad, status=1).stderr
                          if not bad.startswith("-") else mend_info("topo", f"--bindings={bad}", status=1).stderr, bad)
        self.assertIn("no list of CPUs", mend_info("topo", "--binding", "x", status=1).stderr)

    def test_sizes_know_the_device(self) -> None:
        self.assertIn("beyond the device", mend_info("--library", "softhca", "size", "--peers", "1000000").stdout)

    def test_a_picture_of_an_oddly_named_file_is_well_formed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            odd = pathlib.Path(folder) / 'a"b<c>&d\x01.xml'
            odd.write_bytes((MACHINES / "bridge.xml").read_bytes())
            picture = pathlib.Path(folder) / "s.svg"
            mend_info("topo", "--xml", str(odd), "--svg", str(picture))
            ElementTree.parse(picture)

    def test_values_of_the_environment(self) -> None:
        self.assertIn("near, spread or none", mend_info("topo", status=1, OMPI_MCA_btl_mend_numa_policy="far").stderr)
        self.assertIn("2 to 4096", mend_info("params", status=1, OMPI_MCA_btl_mend_window="1").stderr)

    def test_help_and_unknown_words(self) -> None:
        self.assertIn("--bind-to", mend_info("topo", "--help").stdout)
        done = subprocess.run([BUILD / "bin/mend-info", "frobnicate"], capture_output=True, timeout=20, check=False)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
