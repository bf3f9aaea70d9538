#!/usr/bin/env python3
"""Writes schedules of the Promela models as traces for conformance_test: the steps of every machine, and what it sends.

usage: trace_models.py DIR

cases.json says which: random simulations by seed, schedules that reach a goal (found by the verifier), and the
counterexamples of mutations, which the real machines must not follow (DIR/broken).
"""
import json
import pathlib
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from run_models import CORES, HERE, build, load_cases, run


def steps(text):
    lines = [line for line in text.splitlines() if line.startswith("mend ")]
    if not any(line.startswith("mend end") for line in lines):
        raise RuntimeError("no step in the simulation: " + text[-2000:])
    return "\n".join(line.removeprefix("mend ") for line in lines) + "\n"


def random_trace(entry, folder, out):
    defines = ["-D" + d for d in entry["model_defs"]] + ["-DTRACE"]
    done = run(["spin", "-T", f"-n{entry['seed']}", *defines, str(HERE / entry["model"])], folder, 60)
    (out / f"{entry['name']}_{entry['seed']}.trace").write_text(steps(done.stdout), encoding="utf-8")


def guided_trace(entry, folder, out):
    """The schedule of the first error that the verifier finds."""
    model = folder / entry["model"]
    shutil.copy(HERE / entry["model"], model)
    case = dict(entry, states=0, own=[], model_defs=entry["model_defs"] + ["TRACE"])
    build(case, folder)
    run(["./pan", *case["pan_args"]], folder, entry.get("limit", 120))
    defines = ["-D" + d for d in case["model_defs"]]
    trail = folder / (entry["model"] + ".trail")
    if not trail.exists():
        raise RuntimeError(entry["name"] + ": the verifier found no schedule")
    done = run(["spin", "-T", "-k", trail.name, *defines, entry["model"]], folder, 60)
    (out / f"{entry['name']}.trace").write_text(steps(done.stdout), encoding="utf-8")


def make(job, entry, out):
    with tempfile.TemporaryDirectory(prefix="mend-trace-") as folder:
        job(entry, pathlib.Path(folder), out)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    good = pathlib.Path(sys.argv[1])
    broken = good / "broken"
    shutil.rmtree(good, ignore_errors=True)
    broken.mkdir(parents=True)
    wanted = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["traces"]
    cases = {case["name"]: case for case in load_cases()}
    jobs = [(random_trace, {**entry, "seed": seed}, good) for entry in wanted["random"] for seed in range(1, entry["seeds"] + 1)]
    jobs += [(guided_trace, {**cases[entry["like"]], **entry}, good) for entry in wanted["goals"]]
    jobs += [(guided_trace, cases[name], broken) for name in wanted["broken"]]
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda job: make(*job), jobs))
    print(f"{len(list(good.glob('*.trace')))} schedules, {len(list(broken.glob('*.trace')))} of broken models")


if __name__ == "__main__":
    main()
