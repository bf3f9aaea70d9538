"""Runs libibverbs' own example programs, unmodified, on libsofthca.so by preload.

Usage: pingpong.py LIBSOFTHCA CASE; CASE is a key of CASES, or "devinfo".
"""

import os
import random
import shutil
import subprocess
import sys
import time

LIMIT = 40
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
}


def environment(library, fabric):
    return {**os.environ, "LD_PRELOAD": library, "SOFTHCA_FABRIC": fabric}


def leftovers(fabric):
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"softhca.{fabric}.")]


def run_pair(command, env):
    """Server and client with the same arguments; complaint or ""."""
    port = random.randint(20000, 60000)
    command = [*command, "-d", "softhca0", "-p", str(port)]
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + LIMIT
        while True:
            client = subprocess.run(
                [*command, "localhost"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
            )
            if "Couldn't connect" not in client.stdout or time.monotonic() > end:
                break
            time.sleep(0.1)
        served, _ = server.communicate(timeout=LIMIT)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    for side, code, text in (("client", client.returncode, client.stdout), ("server", server.returncode, served)):
        if code != 0 or "usec/iter" not in text:
            return f"{side} exit {code}:\n{text}"
    return ""


def run_devinfo(env):
    for options in ([], ["-v"], ["-l"]):
        done = subprocess.run(["ibv_devinfo", *options], env=env, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0 or "softhca0" not in done.stdout:
            return f"ibv_devinfo {options} exit {done.returncode}:\n{done.stdout}{done.stderr}"
        if not options and "PORT_ACTIVE" not in done.stdout:
            return f"no active port:\n{done.stdout}"
    return ""


def main():
    library, case = os.path.abspath(sys.argv[1]), sys.argv[2]
    fabric = f"ut-preload-{case}-{os.getpid()}"
    program = "ibv_devinfo" if case == "devinfo" else CASES[case][0]
    if shutil.which(program) is None:
        print(f"{program} is not installed (package ibverbs-utils)")
        return 77
    env = environment(library, fabric)
    complaint = run_devinfo(env) if case == "devinfo" else run_pair(CASES[case], env)
    rest = leftovers(fabric)
    for name in rest:
        os.unlink(f"/dev/shm/{name}")
    if not complaint and rest:
        complaint = f"left in /dev/shm: {rest}"
    print(complaint or "ok")
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(main())
