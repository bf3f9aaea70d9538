"""Every shell script parses (bash -n), and shellcheck finds nothing where it is installed."""

import pathlib
import shutil
import subprocess

import tree


def is_shell(name):
    if name.endswith(".sh"):
        return True
    with open(tree.ROOT / name, "rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and b"sh" in first.split(b"/")[-1]


def check(name):
    run = subprocess.run(["bash", "-n", name], cwd=tree.ROOT, capture_output=True, text=True)
    if run.returncode == 0 and shutil.which("shellcheck"):
        run = subprocess.run(["shellcheck", "-x", "--format=gcc", "--severity=warning", name],
                             cwd=tree.ROOT, capture_output=True, text=True)
    return "" if run.returncode == 0 else (run.stdout + run.stderr).strip()


names = [n for n in tree.files() if is_shell(n)]
tree.verdict("shell scripts", len(names), tree.each(names, check))
