#!/usr/bin/env python3
"""Writes compile_commands.json: `compile_commands.py OUTPUT COMPILER FLAG...`, run by make in the build folder."""

import json
import os
import sys

import tree


def main():
    output, *command = sys.argv[1:]
    entries = [
        {"directory": os.getcwd(), "file": str(tree.ROOT / name), "arguments": [*command, "-c", str(tree.ROOT / name)]}
        for name in tree.files((".cpp",))
    ]
    with open(output, "w", encoding="utf-8") as out:
        json.dump(entries, out, indent=1)


if __name__ == "__main__":
    main()
