"""Prints the counters that mend wrote (--mca btl_mend_stats PREFIX) for a person; fails if no byte went through mend.

bytes_sent counts what a rank sent and put, bytes_received what it received and got: a put is counted where it starts, and
so is a get. The job is expected to have had no other transport between its ranks.

Usage: counters.py FILE...   one file per rank, each with one line of JSON
"""

import json
import pathlib
import sys

sent = received = 0
for name in sys.argv[1:]:
    counters = json.loads(pathlib.Path(name).read_text())
    sent += counters["bytes_sent"]
    received += counters["bytes_received"]
    rails = ", ".join(rail["name"] for rail in counters["rails"])
    print(f"   rank {counters['rank']} on {counters['host']}, device {rails}:")
    for line in (("sends", "recvs", "bytes_sent", "bytes_received"), ("puts", "gets", "atomics", "connections"),
                 ("qps_created", "recoveries", "replayed", "dup_rx")):
        print("      " + "  ".join(f"{field} {counters[field]:,}" for field in line))
if sent == 0 or received == 0:
    sys.exit("no byte went through mend: this run proves nothing")
print(f"   Through mend the ranks sent or put {sent:,} bytes, and received or got {received:,}; the job had no other transport.")
