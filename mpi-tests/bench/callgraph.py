"""Reads a callgrind file and sums the cost of the calls between objects.

Only the edges of the call graph matter here: (caller object, caller function) -> (callee object, callee function) with
the inclusive number of instructions of those calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"\((\d+)\)(?: (.*))?$")


@dataclass(frozen=True)
class Place:
    object: str  # file name of the shared object, no directory
    function: str


class Names:
    """Callgrind writes a name once and a number in brackets from then on."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def resolve(self, text: str) -> str:
        match = NAME.match(text)
        if match is None:
            return text
        number, name = match.groups()
        if name is not None:
            self.known[number] = name
        return self.known[number]


def edges(path: Path) -> dict[tuple[Place, Place], int]:
    """Inclusive instructions by (caller, callee), over all threads and parts of the file."""
    objects, functions = Names(), Names()
    found: dict[tuple[Place, Place], int] = {}
    ob = fn = cob = cfn = ""
    call_line_next = False
    with open(path, errors="replace") as lines:
        for raw in lines:
            line = raw.rstrip("\n")
            if call_line_next:
                call_line_next = False
                key = (Place(ob, fn), Place(cob or ob, cfn))
                found[key] = found.get(key, 0) + int(line.split()[1])
                cob = ""
            elif line.startswith("ob="):
                ob = Path(objects.resolve(line[3:])).name
            elif line.startswith("fn="):
                fn = functions.resolve(line[3:])
            elif line.startswith("cob="):
                cob = Path(objects.resolve(line[4:])).name
            elif line.startswith("cfn="):
                cfn = functions.resolve(line[4:])
            elif line.startswith("calls="):
                call_line_next = True
    return found
