"""clang-format 14 agrees with every source file."""

import subprocess
import sys

import tree

tool = sys.argv[1] if len(sys.argv) > 1 else "clang-format-14"


def check(name):
    run = subprocess.run([tool, "--dry-run", "--Werror", name], cwd=tree.ROOT, capture_output=True, text=True)
    return "" if run.returncode == 0 else "\n".join(run.stderr.splitlines()[:3]) + f"\n  -> {tool} -i {name}"


names = tree.code_files()
tree.verdict("layout", len(names), tree.each(names, check))
