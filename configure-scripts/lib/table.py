"""Prints the figures of mpi-tests/bench/bench.py as the OSU benchmarks print theirs, one column per transport.

Usage: table.py FILE.json
"""

import json
import sys

TITLES = {"latency": ("OSU-style MPI Latency Test, half round trip", "Latency (us), less is better", 2),
          "bandwidth": ("OSU-style MPI Bandwidth Test", "Bandwidth (MB/s), more is better", 2),
          "rate": ("OSU-style MPI Message Rate Test", "Messages/s, more is better", 0)}

with open(sys.argv[1], encoding="utf-8") as file:
    figures = json.load(file)["figures"]
for series, (title, unit, digits) in TITLES.items():
    rows = [row for row in figures if row["series"] == series]
    if not rows:
        sys.exit(f"{sys.argv[1]} has no figures of the series {series}")
    names = list(rows[0]["values"])
    print(f"# {title}: {unit}")
    print(f"{'# Size':<12}" + "".join(f"{name:>16}" for name in names) + f"{'mend/vader':>14}")
    for row in rows:
        medians = "".join(f"{row['values'][name]['median']:>16.{digits}f}" for name in names)
        print(f"{row['size']:<12}{medians}{row['mend_to_vader']:>14.2f}")
    print()
print("# mend/vader: mend is ahead below 1.00 for latency, above 1.00 for bandwidth and message rate")
