"""Who may include whom: verbs <- {topo, ops} <- conn <- mca, and softhca stands alone (docs/design.md).

The rules are data. A part that is not in the table has no right to exist in the tree; a rule that no file could break
(its directory is empty) is reported, so that a renamed directory does not silently lose its rule.
"""

import re

import tree

# part: the parts whose headers it may include besides its own
PARTS = {
    "plugin/verbs": [],
    "topo": ["plugin/verbs"],
    "ops": ["plugin/verbs"],
    "plugin/conn": ["plugin/verbs", "topo", "ops"],
    "plugin/mca": ["plugin/verbs", "topo", "ops", "plugin/conn"],
    "softhca": [],
    "tools": ["plugin/verbs", "topo", "ops", "plugin/conn", "softhca"],  # mend-info answers with the transport's formulas
    "tests": ["plugin/verbs", "topo", "ops", "plugin/conn", "plugin/mca", "softhca"],
    "mpi-tests": [],
}

# external header (pattern): the parts that may name it
EXTERNAL = {
    r"^(opal|ompi|orte|prrte)/|^(opal_config|ompi_config)\.h$": ["plugin/mca"],
    r"^mpi\.h$": ["mpi-tests", "plugin/mca"],
    r"^infiniband/": ["plugin/verbs", "ops", "plugin/conn", "softhca", "tests", "mpi-tests"],
    r"^hwloc(/|\.h$)": ["topo", "tests"],
    r"^gtest/|^gmock/|^benchmark/": ["tests"],
}

# Not in headers that the data path includes: they cost every file that includes them.
HEAVY = re.compile(r"^(nlohmann/|CLI/|fmt/|iostream$|regex$)")
HOT = ("ops/", "plugin/verbs/", "plugin/conn/", "softhca/engine/")

# State machines are pure: (state, event, now) -> (state, actions).
PURE_FILE = re.compile(r"^plugin/conn/.*(fsm|machine)[^/]*\.(h|cpp)$")
IMPURE = re.compile(r"^(infiniband/|ucs/|mutex$|shared_mutex$|thread$|condition_variable$|ctime$|time\.h$|sys/time\.h$|atomic$|pthread\.h$)"
                    r"|(^|/)(lock|spinlock|clock)\.h$")
IMPURE_CALL = re.compile(r"\b(steady_clock|system_clock|clock_gettime|gettimeofday|lock_guard|unique_lock|scoped_lock)\b")


def part_of(name):
    return next((p for p in sorted(PARTS, key=len, reverse=True) if name.startswith(p + "/")), None)


def complaint(name):
    part = part_of(name)
    if part is None:
        return f"{name}: belongs to no part that tests/style/direction.py knows"
    complaints = []
    for found, written, line in tree.includes(name):
        where = f"{name}:{line}: includes {written}"
        target = part_of(found) if found else None
        if found and target not in (part, *PARTS[part]):
            complaints.append(f"{where}: {part} may not know {target}")
        for pattern, allowed in EXTERNAL.items():
            if not found and re.search(pattern, written) and part not in allowed:
                complaints.append(f"{where}: only {', '.join(allowed)} may")
        if name.endswith(".h") and name.startswith(HOT) and HEAVY.search(written):
            complaints.append(f"{where}: too heavy for a header of the data path")
        if PURE_FILE.search(name) and IMPURE.search(written):
            complaints.append(f"{where}: a state machine knows no verbs, no clock and no lock")
    if PURE_FILE.search(name) and (call := IMPURE_CALL.search(tree.read(name))):
        complaints.append(f"{name}: a state machine uses {call.group(0)}")
    return "\n".join(complaints)


names = tree.code_files()
bad = tree.each(names, complaint)
for known in sorted(set(PARTS) - {part_of(n) for n in names}):
    print(f"{known}: has no source file, so its rule checks nothing")
    bad += 1
if not any(PURE_FILE.search(n) for n in names):
    print("no state machine was found in plugin/conn, so the purity rule checks nothing")
    bad += 1
tree.verdict("include direction", len(names), bad)
