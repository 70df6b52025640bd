#!/usr/bin/env python3
"""Are the manual pages well-formed roff? Fails on anything that `man --warnings`, groff's eye, or `mandoc -T lint` at its
level "warning", another implementation's, says of one. What mandoc calls style is taste, and not looked at."""

import os
import shutil
import subprocess
import sys

import tree

MAN = ("man", "--warnings", "-l")
MANDOC = ("mandoc", "-T", "lint", "-W", "warning")
# The width and the encoding of a page decide which words can't be broken and which characters are missing.
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "MANWIDTH": "80"}


def said(command, page):
    """What the command says of the page, line by line; its page itself, which man writes, is not in it."""
    output = subprocess.DEVNULL if command is MAN else subprocess.PIPE
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAN")} | ENVIRONMENT
    done = subprocess.run(
        [*command, page], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, env=environment
    )
    lines = ((done.stdout or "") + done.stderr).splitlines()
    return lines or ([f"exit status {done.returncode}"] if done.returncode else [])


def main():
    for name in (MAN[0], MANDOC[0]):
        if not shutil.which(name):
            print(f"{name} is not installed")
            return 77
    faults = []
    for page in sorted((tree.ROOT / "man").glob("*.[1-9]")):
        faults += [f"man/{page.name}: {command[0]}: {line}" for command in (MAN, MANDOC) for line in said(command, page)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
