"""Every header of the project compiles alone, as C++20 with all warnings, so that includes can stand in any order.

Usage: headers.py BUILD_DIR [COMPILER]. A header is compiled with the flags of a source file of its directory, or of the
nearest one above or below it: that is where its users are.
"""

import os
import subprocess
import sys

import tree

build = sys.argv[1]
compiler = sys.argv[2] if len(sys.argv) > 2 else "c++"
commands = {n: a for n, a in tree.compile_commands(build).items() if not n.endswith(".c")}
cache = tree.Cache(build, "headers")
version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def nearest(header):
    def distance(source):
        common = os.path.commonpath([os.path.dirname(header) or ".", os.path.dirname(source) or "."])
        return (-len(common), len(source))
    return min(commands, key=distance)


def check(name):
    flags = tree.flags(commands[nearest(name)])
    key = tree.key(name, version, *flags)
    if cache.clean(key):
        return ""
    # Through an including file, because a header as the main file would get "#pragma once in main file".
    run = subprocess.run([compiler, *flags, "-fsyntax-only", "-I", str(tree.ROOT), "-x", "c++", "-"],
                         cwd=tree.ROOT, input=f'#include "{name}"\n', capture_output=True, text=True)
    if run.returncode == 0:
        cache.remember(key)
        return ""
    return f"{name} does not compile alone:\n" + "\n".join(run.stderr.splitlines()[:12])


names = tree.headers()
tree.verdict("self-contained headers", len(names), tree.each(names, check))
