#!/usr/bin/env python3
"""Is every C++ file as clang-format 14 leaves it? `format.py --fix` makes it so. Other versions differ: skipped."""

import re
import shutil
import subprocess
import sys

import tree

VERSION = "14"


def find():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return path
    return None


def main():
    tool = find()
    if tool is None:
        print(f"clang-format {VERSION} is not installed")
        return 77
    names = tree.files()
    if not names:
        return 0
    if sys.argv[1:] == ["--fix"]:
        return subprocess.run([tool, "--style=file", "-i", *names], cwd=tree.ROOT, check=False).returncode
    done = subprocess.run(
        [tool, "--style=file", "--dry-run", *names], cwd=tree.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr)
        return 1
    wrong = sorted(set(re.findall(r"^(\S+?):(\d+):\d+: warning: code should be", done.stderr, re.MULTILINE)))
    for name in sorted({name for name, _ in wrong}):
        print(f"{name}: lines {', '.join(sorted((line for n, line in wrong if n == name), key=int))}")
    if wrong:
        print("contrib/checks/format.py --fix puts it right")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
