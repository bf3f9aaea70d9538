"""clang-tidy 14 is content with every compiled source file and the project headers it includes.

Usage: tidy.py BUILD_DIR product|tests|FILE... clang's own warnings count too (.clang-tidy), so this also shows that clang 14 compiles
the tree. The commands are those of the build, without the options that only g++ knows.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import tree

build, wanted = sys.argv[1], sys.argv[2:]
tool = "clang-tidy-14"
version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
settings = tree.read(".clang-tidy")
commands = tree.compile_commands(build)
cache = tree.Cache(build, "tidy")

database = pathlib.Path(build) / "style-cache" / "compile_commands.json"
CLANG_ONLY = ["-Wno-gnu-statement-expression"]  # as in cmake/MendOptions.cmake
compilers = {".c": "clang-14", ".cpp": "clang++-14", ".cc": "clang++-14"}
entries = []
for source, arguments in commands.items():
    compiler = compilers[pathlib.Path(source).suffix]
    entries.append({"directory": str(tree.ROOT), "file": str(tree.ROOT / source),
                    "arguments": [compiler, *tree.flags(arguments), *CLANG_ONLY, "-c", str(tree.ROOT / source)]})
database.write_text(json.dumps(entries))


def check(name):
    key = tree.key(name, version, settings, *tree.flags(commands[name]))
    if cache.clean(key):
        return ""
    run = subprocess.run([tool, "--quiet", "-p", str(database.parent), str(tree.ROOT / name)],
                         cwd=tree.ROOT, capture_output=True, text=True)
    if run.returncode == 0:
        cache.remember(key)
        return ""
    # Complaints come with their context; the count that clang adds says nothing.
    errors = re.sub(r"\d+ warnings? (and \d+ errors? )?generated\.\n?", "", run.stderr)
    return run.stdout.strip() or errors.strip()


def selected(name):
    is_test = name.startswith(("tests/", "mpi-tests/"))
    return name in wanted or ("tests" if is_test else "product") in wanted


# The largest first, so that the last one to finish is a small one.
names = sorted(filter(selected, commands), key=lambda n: -os.path.getsize(tree.ROOT / n))
tree.verdict("clang-tidy", len(names), tree.each(names, check))
