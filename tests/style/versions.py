"""Only the two compatibility headers know versions of Open MPI and UCX: no other file has an #if on them."""

import re

import tree

ALLOWED = ("plugin/mca/ompi_compat.h", "ops/ucs_compat.h")
CONDITION = re.compile(r"^\s*#\s*(?:el)?if(?:n?def)?\b.*\b(?:BTL_VERSION|O(?:PAL|MPI)_(?:MAJOR|MINOR|RELEASE)_VERSION|U(?:CP|CT|CS)_\w*VERSION|"
                       r"PMIX_\w*VERSION\w*)\b")


def check(name):
    if name in ALLOWED:
        return ""
    return "\n".join(f"{name}:{number}: an #if on a version: {line.strip()}"
                     for number, line in enumerate(tree.read(name).splitlines(), 1) if CONDITION.search(line))


known = [name for name in ALLOWED if any(CONDITION.search(line) for line in tree.read(name).splitlines())]
bad = len(ALLOWED) - len(known)  # a rule that its own subjects do not show would find nothing
names = tree.code_files()
tree.verdict("files without an #if on versions", len(names), bad + tree.each(names, check))
