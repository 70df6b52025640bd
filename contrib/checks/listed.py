#!/usr/bin/env python3
"""Is every C++ file of the tree in a Makefile.inc? One that isn't is neither compiled nor in the tarball."""

import re
import sys

import tree

WHOLE = ("contrib/",)  # folders that the tarball has as they stand
LISTS = ("compat", "fabtests", "include", "prov/vma", "util")


def main():
    listed = set()
    for folder in LISTS:
        listed |= set(re.findall(r"[\w./+-]+", (tree.ROOT / folder / "Makefile.inc").read_text(encoding="utf-8")))
    # A program named path/name is built of path/name.cpp.
    missing = [
        name
        for name in tree.files()
        if not name.startswith(WHOLE) and name not in listed and name.removesuffix(".cpp") not in listed
    ]
    for name in missing:
        print(f"{name}: in no Makefile.inc")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
