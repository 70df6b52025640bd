#!/usr/bin/env python3
"""One idea a file, under some 500 lines: lists the files above that, and fails above 600."""

import sys

import tree

LONG, TOO_LONG = 500, 600


def main():
    failed = False
    for name in tree.files(tree.CXX + tree.SCRIPTS):
        with open(tree.ROOT / name, "rb") as source:
            lines = sum(1 for _ in source)
        if lines > LONG:
            print(f"{name}: {lines} lines" + (f", more than {TOO_LONG}: split it" if lines > TOO_LONG else ""))
        failed |= lines > TOO_LONG
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
