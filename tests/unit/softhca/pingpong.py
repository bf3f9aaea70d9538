"""Runs libibverbs' own example programs, unmodified, on libsofthca.so by preload.

Usage: pingpong.py LIBSOFTHCA CASE; CASE is a key of CASES or SPECIAL.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 40
PORTS = (20000, 32000)  # the kernel gives those from 32768 on to whoever asks for any
CASES = {
    "rc": ["ibv_rc_pingpong"],
    "rc-events": ["ibv_rc_pingpong", "-e"],
    "rc-new-send": ["ibv_rc_pingpong", "-N"],
    "rc-verified": ["ibv_rc_pingpong", "-c", "-s", "65536", "-n", "200"],
    "rc-gid": ["ibv_rc_pingpong", "-g", "1"],
    "rc-mtu": ["ibv_rc_pingpong", "-m", "4096", "-g", "0"],
    "uc": ["ibv_uc_pingpong"],
    "srq": ["ibv_srq_pingpong"],
    "srq-events": ["ibv_srq_pingpong", "-e", "-g", "0"],
    "ud": ["ibv_ud_pingpong"],
    "ud-events": ["ibv_ud_pingpong", "-e", "-g", "1"],
    "ib-rc": ["ibv_rc_pingpong"],
    "ib-ud": ["ibv_ud_pingpong"],
    "strict-roce": ["ibv_rc_pingpong", "-g", "0"],
    "small-device": ["ibv_rc_pingpong", "-r", "8", "-s", "100000"],
    "second-port": ["ibv_rc_pingpong", "-i", "2", "-g", "0"],
}
# The fabric of a case, where it is not the default one.
CONF = {
    "ib-rc": "[softhca0]\n[softhca0/1]\nlink_layer = infiniband\nmtu = 2048\n",
    "ib-ud": "[softhca0]\n[softhca0/1]\nlink_layer = infiniband\nlid = 77\n",
    "strict-roce": "[softhca0]\n[softhca0/1]\nrequire_grh = yes\n",
    "small-device": "[softhca0]\nmax_qp = 1\nmax_cq = 1\nmax_mr = 1\nmax_qp_wr = 16\nmax_sge = 1\nmax_inline = 0\nmax_srq = 0\n",
    "second-port": "[softhca0]\n[softhca0/1]\nstate = down\n[softhca0/2]\n",
}


def environment(library, fabric, conf):
    return {**os.environ, "LD_PRELOAD": library, "SOFTHCA_FABRIC": fabric, "SOFTHCA_CONF": conf}


def leftovers(fabric):
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"softhca.{fabric}.")]


def run_pair(command, env):
    """Server and client with the same arguments; complaint or "". Once more if somebody has the server's port."""
    for _ in range(2):
        complaint, served = run_pair_once([*command, "-d", "softhca0", "-p", str(random.randint(*PORTS))], env)
        if "Couldn't listen" not in served:
            break
    return complaint


def run_client(command, env):
    """Its status, None if it did not end (somebody else has the server's port and says nothing), and what it said."""
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def run_pair_once(command, env):
    """Complaint or "", and what the server said."""
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + LIMIT
        while True:
            status, said = run_client([*command, "localhost"], env)
            if "Couldn't connect" not in said or server.poll() is not None or time.monotonic() > end:
                break
            time.sleep(0.1)
        served, _ = server.communicate(timeout=LIMIT)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    for side, code, text in (("client", status, said), ("server", server.returncode, served)):
        if code != 0 or "usec/iter" not in text:
            return f"{side} exit {code}:\n{text}", served
    return "", served


def devinfo(env, *options):
    done = subprocess.run(["ibv_devinfo", *options], env=env, capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, done.stdout, done.stderr


def run_devinfo(env):
    for options in ([], ["-v"], ["-l"]):
        code, out, err = devinfo(env, *options)
        if code != 0 or "softhca0" not in out:
            return f"ibv_devinfo {options} exit {code}:\n{out}{err}"
        if not options and "PORT_ACTIVE" not in out:
            return f"no active port:\n{out}"
    return ""


def run_bad_conf(env, conf_file):
    """Nonsense is named with file and line, and there is no device then."""
    conf_file.write("[softhca0]\nmax_qp = lots\n")
    conf_file.flush()
    code, out, err = devinfo({**env, "SOFTHCA_CONF": conf_file.name})
    if code == 0 or f"{conf_file.name}:2: max_qp: 'lots' is not a number" not in err:
        return f"exit {code}:\n{out}{err}"
    return ""


def run_bad_faults(env):
    code, out, err = devinfo({**env, "SOFTHCA_FAULTS": "fail=create_cow:1:EIO"})
    if code == 0 or "no call 'create_cow'; known are: alloc_pd" not in err:
        return f"exit {code}:\n{out}{err}"
    return ""


def run_fault(env):
    """The schedule reaches an unmodified program."""
    env = {**env, "SOFTHCA_FAULTS": "fail=create_cq:1:ENOMEM"}
    done = subprocess.run(["ibv_rc_pingpong"], env=env, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode == 0 or "Couldn't create CQ" not in done.stderr:
        return f"exit {done.returncode}:\n{done.stdout}{done.stderr}"
    return ""


def run_lossy(env):
    """Losses that the device's own repeats make good; each process lists its hits."""
    with tempfile.TemporaryDirectory() as folder:
        faults = "drop:n=50/50; drop-ack:n=75/50:times=1; no-last-wqe; drop:rank=7"
        env = {**env, "SOFTHCA_FAULTS": faults, "SOFTHCA_FAULT_LOG": f"{folder}/hits"}
        for name in ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
            env.pop(name, None)
        complaint = run_pair(CASES["rc-verified"], env)
        if complaint:
            return complaint
        logs = {name: open(f"{folder}/{name}").read().splitlines() for name in os.listdir(folder)}
    hits = {name: [json.loads(line) for line in lines] for name, lines in logs.items()}
    busy = {name: [h["kind"] for h in found] for name, found in hits.items() if found}
    if len(busy) != 2 or any(kinds.count("drop") != 4 or kinds.count("drop-ack") != 3 for kinds in busy.values()):
        return f"expected four and three in two logs: {busy}"
    if any(h["opcode"] != "send" or f"hits.{h['pid']}" != name or h["qpn"] == 0 for name in busy for h in hits[name]):
        return f"wrong hits: {hits}"
    return ""


SPECIAL = {
    "devinfo": lambda env, conf: run_devinfo(env),
    "bad-conf": run_bad_conf,
    "bad-faults": lambda env, conf: run_bad_faults(env),
    "fault": lambda env, conf: run_fault(env),
    "lossy": lambda env, conf: run_lossy(env),
}


def main():
    library, case = os.path.abspath(sys.argv[1]), sys.argv[2]
    fabric = f"ut-preload-{case}-{os.getpid()}"
    program = "ibv_devinfo" if case in SPECIAL else CASES[case][0]
    if shutil.which(program) is None:
        print(f"{program} is not installed (package ibverbs-utils)")
        return 77
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as conf:
        conf.write(CONF.get(case, ""))
        conf.flush()
        env = environment(library, fabric, conf.name if case in CONF else "")
        complaint = SPECIAL[case](env, conf) if case in SPECIAL else run_pair(CASES[case], env)
    rest = leftovers(fabric)
    for name in rest:
        os.unlink(f"/dev/shm/{name}")
    if not complaint and rest:
        complaint = f"left in /dev/shm: {rest}"
    print(complaint or "ok")
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(main())
