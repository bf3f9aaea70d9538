#!/usr/bin/env python3
"""Runs the Promela models of the recovery protocol through spin and compares with cases.json.

usage: run_models.py [--full] [--keep DIR] [CASE...]

A case is clean (no error; the number of stored states must be the recorded one, so that a model that lost a transition is
noticed) or a mutation (one rule taken out: spin must find an error, in the way that `finds` names, else the model proves nothing
about that rule).
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

CORES = 2
HERE = pathlib.Path(__file__).resolve().parent


def run(command, folder, limit):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=limit, check=False)


def build(case, folder):
    """spin -a and the C compiler; the verifier is folder/pan."""
    optimize = "-O1" if case.get("states", 0) > 50000 or "pan_args" in case.get("own", ()) else "-O0"
    defines = ["-D" + d for d in case.get("model_defs", [])]
    made = run(["spin", "-a", *defines, str(HERE / case["model"])], folder, 120)
    if not (folder / "pan.c").exists():
        raise RuntimeError("spin failed: " + made.stdout)
    defines = ["-D" + d for d in case["pan_defs"]]
    made = run(["cc", optimize, "-w", *defines, "-o", "pan", "pan.c"], folder, 300)
    if made.returncode != 0:
        raise RuntimeError("the compiler failed: " + made.stdout)


def verify(case, folder):
    """(errors, states, complete) of an exhaustive run."""
    done = run(["./pan", *case["pan_args"]], folder, case.get("limit", 120))
    errors = re.search(r"errors: (\d+)", done.stdout)
    states = re.search(r"(\d+) states, stored", done.stdout)
    if not errors or not states:
        raise RuntimeError("no result from the verifier: " + done.stdout[-2000:])
    if int(errors.group(1)) and case.get("finds", "") not in done.stdout:
        raise RuntimeError("another error was found: " + done.stdout[:300])
    complete = "Search not completed" not in done.stdout and "max search depth too small" not in done.stdout
    return int(errors.group(1)), int(states.group(1)), complete


def judge(case, errors, states, complete):
    """Empty if the result is the expected one."""
    if case["expect"] == "error":
        return "" if errors > 0 else "the rule was taken out and nothing was found"
    if errors:
        return "an error was found"
    if not complete:
        return "the search was cut short"
    if states != case["states"]:
        return f"{states} states instead of {case['states']}: the model has changed"
    return ""


def run_case(case, keep):
    with tempfile.TemporaryDirectory(prefix="mend-model-") as temporary:
        folder = pathlib.Path(keep) / case["name"] if keep else pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        try:
            build(case, folder)
            errors, states, complete = verify(case, folder)
            wrong = judge(case, errors, states, complete)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            errors, states, wrong = -1, 0, str(error)
        seconds = time.monotonic() - start
    verdict = "ok  " if not wrong else "FAIL"
    print(f"{verdict} {case['name']:34} errors {errors} states {states:>10} {seconds:6.1f} s  {wrong}", flush=True)
    return not wrong


def load_cases():
    data = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    cases = []
    for case in data["cases"]:
        merged = dict(data["kinds"][case["kind"]])
        merged.update(case, own=list(case))
        cases.append(merged)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones (an hour of CPU at most)")
    parser.add_argument("--keep", metavar="DIR", help="leave verifiers and trails in DIR")
    parser.add_argument("names", nargs="*", metavar="CASE")
    options = parser.parse_args()
    cases = load_cases()
    known = {case["name"] for case in cases}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error("unknown case: " + ", ".join(unknown))
    chosen = [c for c in cases if (c["name"] in options.names if options.names else options.full or c.get("quick"))]
    # The large ones one after the other: memory.
    with ThreadPoolExecutor(1 if options.full else CORES) as pool:
        passed = list(pool.map(lambda case: run_case(case, options.keep), chosen))
    failed = [c["name"] for c, good in zip(chosen, passed) if not good]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases as expected" + (": not " + ", ".join(failed) if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
