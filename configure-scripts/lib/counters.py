"""Prints the counters that mend wrote (--mca btl_mend_stats PREFIX) for a person; fails if no byte went through mend.

Usage: counters.py FILE...   one file per rank, each with one line of JSON
"""

import json
import pathlib
import sys

total = 0
for name in sys.argv[1:]:
    counters = json.loads(pathlib.Path(name).read_text())
    total += counters["bytes_sent"]
    rails = ", ".join(rail["name"] for rail in counters["rails"])
    print(f"   rank {counters['rank']} on {counters['host']}, device {rails}:")
    for line in (("sends", "recvs", "bytes_sent", "bytes_received"), ("puts", "gets", "atomics", "connections"),
                 ("qps_created", "recoveries", "replayed", "dup_rx")):
        print("      " + "  ".join(f"{field} {counters[field]:,}" for field in line))
if total == 0:
    sys.exit("no byte went through mend: this run proves nothing")
print(f"   {total:,} bytes went through mend, and none of them through another transport.")
