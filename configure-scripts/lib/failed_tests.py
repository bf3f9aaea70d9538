"""The last words of each failed test of a ctest JUnit file, so that they stand at the end of the output.

usage: failed_tests.py FILE
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

LINES = 40


def main() -> None:
    for case in ElementTree.parse(pathlib.Path(sys.argv[1])).getroot().iter("testcase"):
        if case.get("status") != "fail":
            continue
        print(f"\n--- failed: {case.get('name')} ---")
        said = case.findtext("system-out", default="").rstrip().splitlines()
        print("\n".join(said[-LINES:]))


if __name__ == "__main__":
    main()
