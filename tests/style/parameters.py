"""docs/parameters.md says what `ompi_info` says about mend's parameters.

Usage: parameters.py BUILD_DIR           compares (a test)
       parameters.py BUILD_DIR --write   writes docs/parameters.md
"""

import os
import re
import subprocess
import sys

import tree

HEAD = """# Parameters of mend

Written by `tests/style/parameters.py` from what the component registers; a test compares. Set them with `--mca NAME VALUE`, as
`OMPI_MCA_NAME=VALUE` or in a parameter file ([sites.md](sites.md)).

"""
# What every BTL has: Open MPI's own words, in a table of their own.
STANDARD = {"exclusivity", "flags", "atomic_flags", "rndv_eager_limit", "eager_limit", "get_limit", "get_alignment", "put_limit", "put_alignment",
            "max_send_size", "rdma_pipeline_send_length", "rdma_pipeline_frag_size", "min_rdma_pipeline_size", "latency", "bandwidth"}


def registered(build):
    """{short name: {attribute: text}} of the component in this build."""
    environment = {**os.environ, "OMPI_MCA_mca_base_component_path": f"{build}/components:SYSTEM_DEFAULT",
                   "OMPI_MCA_mca_base_param_files": "none"}
    environment = {k: v for k, v in environment.items() if not k.startswith("OMPI_MCA_btl_mend")}
    listing = subprocess.run(["ompi_info", "--param", "btl", "mend", "--level", "9", "--parsable"], env=environment,
                             capture_output=True, text=True, check=True, timeout=60).stdout
    result = {}
    for match in re.finditer(r'^mca:btl:mend:param:"?btl_mend_(\w+):(value|help):"?(.*?)"?$', listing, re.M):
        result.setdefault(match.group(1), {})[match.group(2)] = match.group(3)
    return result


def table(names, parameters):
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for name in sorted(names):
        entry = parameters[name]
        text = entry.get("help", "").replace("|", "\\|").strip()
        lines.append(f"| `btl_mend_{name}` | {entry.get('value') or '(empty)'} | {text} |")
    return "\n".join(lines) + "\n"


def page(parameters):
    own = parameters.keys() - STANDARD
    return HEAD + table(own, parameters) + "\n## Those that every BTL has\n\n" + table(parameters.keys() & STANDARD, parameters)


def main():
    found = registered(sys.argv[1])
    text = page(found)
    if "--write" in sys.argv[2:]:
        (tree.ROOT / "docs/parameters.md").write_text(text, encoding="utf-8")
        return
    complaints = [f"btl_mend_{n} has no help text" for n, e in found.items() if not e.get("help", "").strip()]
    if not (tree.ROOT / "docs/parameters.md").is_file() or tree.read("docs/parameters.md") != text:
        complaints.append("docs/parameters.md differs from what the component registers: parameters.py BUILD_DIR --write")
    print("\n".join(complaints))
    tree.verdict("parameters", len(found), len(complaints))


main()
