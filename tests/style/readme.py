"""The commands and files that the documents name exist.

Usage: readme.py BUILD_DIR. Looks at fenced shell blocks and at `inline` paths of the Markdown files a newcomer reads.
"""

import json
import pathlib
import re
import subprocess
import sys

import tree

build = pathlib.Path(sys.argv[1])
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/sites.md", "docs/design.md", "docs/soft-roce.md"]
FENCE = re.compile(r"^```(?:sh|shell|bash)\n(.*?)^```", re.M | re.S)
INLINE_PATH = re.compile(r"`((?:\./)?(?:configure-scripts|docs|plugin|ops|topo|softhca|tools|tests|mpi-tests|\.ci)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PARAMETER = re.compile(r"\bbtl_mend_([a-z_]+)\b")


def commands(text):
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"^\s*\$ ", "", line).split("#")[0].strip()
            if line:
                yield line


def check_command(line):
    """Complaint about a command line, or "": our scripts exist and know their options, presets exist, bash can parse."""
    if subprocess.run(["bash", "-n"], input=line, text=True, capture_output=True).returncode:
        return f"bash cannot parse: {line}"
    for word in re.findall(r"(?:^|\s)(\./[\w./-]+)", line):
        path = tree.ROOT / word
        if not path.is_file() or not path.stat().st_mode & 0o100:
            return f"{word} is not an executable file: {line}"
        known = subprocess.run([str(path), "--help"], capture_output=True, text=True, timeout=20).stdout
        own, _, _ = line.partition(" -- ")  # what follows are the words of a command that ours runs
        for option in re.findall(r"\s(--[\w-]+)", own):
            if option not in known:
                return f"{word} --help does not know {option}: {line}"
    presets = {p["name"] for p in json.loads(tree.read("CMakePresets.json"))["configurePresets"]}
    for preset in re.findall(r"--preset[ =](\w+)", line):
        if preset not in presets:
            return f"no preset {preset}: {line}"
    return ""


complaints, checked = [], 0
sources = "".join(tree.read(n) for n in tree.files() if n.startswith(("plugin/mca/", "plugin/conn/param_table")))
for document in DOCUMENTS:
    if not (tree.ROOT / document).is_file():
        complaints.append(f"{document} is missing")
        continue
    text = tree.read(document)
    for line in commands(text):
        checked += 1
        complaints.append(check_command(line))
    for path in INLINE_PATH.findall(text):
        checked += 1
        if not (tree.ROOT / path).exists():
            complaints.append(f"{document} names {path}, which does not exist")
    for path in LINK.findall(text):
        checked += 1
        if not (tree.ROOT / document).parent.joinpath(path).exists():
            complaints.append(f"{document} links to {path}, which does not exist")
    for parameter in set(PARAMETER.findall(text)):
        checked += 1
        if f'"{parameter}"' not in sources:
            complaints.append(f"{document} names btl_mend_{parameter}, which the component does not register")
complaints = [c for c in complaints if c]
print("\n".join(complaints))
tree.verdict("documented commands", checked, len(complaints))
