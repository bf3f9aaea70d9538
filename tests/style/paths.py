"""No path of somebody's machine is in the tree, and no file is so large that nobody reads it.

Allowed are the places every system has. A path that belongs to one person's checkout would work for that person only.
"""

import re

import tree

# Written in pieces so that this file does not accuse itself.
PRIVATE = re.compile(r"(?<![\w.$}])/(?:" + "|".join(["work" + "/", "home" + r"/\w", "root" + "/", "tmp/b" + "-", "Users" + "/"]) + ")")
BINARY = (".png", ".pdf", ".gz", ".xz")


def check(name):
    if name.endswith(BINARY):
        return ""
    complaints = []
    for number, line in enumerate(tree.read(name).splitlines(), 1):
        if PRIVATE.search(line):
            complaints.append(f"{name}:{number}: a private path: {line.strip()[:120]}")
    return "\n".join(complaints)


names = tree.files()
tree.verdict("files without private paths", len(names), tree.each(names, check))
