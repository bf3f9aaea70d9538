"""What the style tests share: the files of the tree, who includes whom, compile commands, a cache of verdicts.

A verdict ("this file is clean") is stored under the hash of everything it depends on: the file, all project headers it
includes, the command and the tool's version. A later run repeats only what changed.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def files():
    """Paths relative to the root: what git knows or would add, or all files where there is no git."""
    git = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False) if (ROOT / ".git").exists() else None
    if git and git.returncode == 0:
        names = [n for n in git.stdout.decode().split("\0") if n]
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
        names = [n for n in names if n.split("/")[0] not in (".git", ".cache", "build")]
    return sorted({n for n in names if (ROOT / n).is_file()})


def code_files():
    return [n for n in files() if pathlib.Path(n).suffix in CODE_SUFFIXES]


def headers():
    return [n for n in code_files() if n.endswith((".h", ".hpp"))]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def includes(name):
    """[(project-relative path or None, name as written, line)] in order of appearance."""
    text = read(name)
    result = []
    for match in INCLUDE.finditer(text):
        written = match.group(2)
        beside = os.path.normpath(os.path.join(os.path.dirname(name), written))
        found = next((c for c in (written, beside) if match.group(1) == '"' and (ROOT / c).is_file()), None)
        result.append((found, written, text.count("\n", 0, match.start()) + 1))
    return result


def closure(name, seen=None):
    """The file and all project files that it includes, directly or not."""
    seen = set() if seen is None else seen
    if name not in seen:
        seen.add(name)
        for found, _, _ in includes(name):
            if found:
                closure(found, seen)
    return seen


def compile_commands(build):
    """{relative path: [argument]} of the build's compile_commands.json, for files of the tree only."""
    path = pathlib.Path(build) / "compile_commands.json"
    if not path.exists():
        sys.exit(f"{path} is missing: configure with CMAKE_EXPORT_COMPILE_COMMANDS=ON (the presets do)")
    result = {}
    for entry in json.loads(path.read_text()):
        source = pathlib.Path(os.path.normpath(os.path.join(entry["directory"], entry["file"])))
        if source.is_relative_to(ROOT) and not source.is_relative_to(ROOT / "build"):
            arguments = entry.get("arguments") or shlex.split(entry["command"])
            result[str(source.relative_to(ROOT))] = arguments
    return result


def flags(arguments):
    """The flags that decide how a file is understood: macros, include paths, language; no output, no file."""
    result, skip = [], False
    for argument in arguments[1:]:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MT", "-MQ", "-c"):
            skip = argument != "-c"
        elif argument in ("-MD", "-MMD", "-fno-gnu-unique") or argument.endswith(tuple(CODE_SUFFIXES)):
            continue
        elif argument.startswith("-") or result and result[-1] in ("-I", "-isystem", "-D", "-include"):
            result.append(argument)
    # The launcher and the compiler come first and carry no dash; sanitizers change no verdict of these tests.
    return [f for f in result if not f.startswith(("-fsanitize", "-O", "-g", "-fno-align"))]


class Cache:
    """Verdicts on disk. Thread-safe, because each key is its own file."""

    def __init__(self, build, tool):
        self._directory = pathlib.Path(build) / "style-cache" / tool
        self._directory.mkdir(parents=True, exist_ok=True)

    def _path(self, key):
        return self._directory / hashlib.sha256(key.encode()).hexdigest()

    def clean(self, key):
        return self._path(key).exists()

    def remember(self, key):
        self._path(key).touch()


def key(name, *more):
    parts = list(more)
    for dependency in sorted(closure(name)):
        parts += [dependency, read(dependency)]
    return "\0".join(parts)


def each(items, check, jobs=None):
    """Runs check(item) -> complaint or "" on all items, prints complaints, returns how many there were."""
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for complaint in pool.map(check, items):
            if complaint:
                bad += 1
                print(complaint, flush=True)
    return bad


def verdict(what, checked, bad):
    """The closing line, and the exit status. A test that looked at nothing has failed."""
    print(f"{what}: {checked} checked, {bad} bad")
    if checked == 0:
        print("nothing was checked, which proves nothing")
    sys.exit(1 if bad or checked == 0 else 0)
