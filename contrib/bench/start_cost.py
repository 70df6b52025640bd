#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a program that has no socket pays for the library when it starts, as where /etc/ld.so.preload brings it into each: programs are started in turns
without it, with an empty library in its place (what any preload library costs), and with it. Medians of the time of one start, in microseconds."""
from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchlib import find

PROGRAMS = {
    "true": ["/bin/true"],
    "a shell with 20 programs": ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; /bin/echo $i; done"],
    "python3 -c pass": ["/usr/bin/python3", "-S", "-c", "pass"],
    "a compiler, 1 file": ["/usr/bin/g++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
}
SOURCE = b"#include <vector>\nint main() { return std::vector<int>{}.empty() ? 0 : 1; }\n"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="start_cost.py", description=__doc__)
    parser.add_argument("--lib", metavar="PATH", help="libvma.so; default: the build tree's, or the installed one")
    parser.add_argument("--rounds", metavar="N", type=int, default=40, help="of each program (default %(default)s)")
    parser.add_argument("--configure", metavar="FILE", type=pathlib.Path,
                        help="a configure script as well, run in an empty folder; a seventh of the rounds")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds takes a number from 1 on")
    if args.configure and not os.access(args.configure, os.X_OK):
        parser.error(f"{args.configure} is not a program")
    return args


def empty_library(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "empty.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path], input=b"int empty_library;\n", check=True)
    return path


def start(argv: Sequence[str], library: pathlib.Path | None, repeat: int, cwd: pathlib.Path | None = None) -> float:
    """Seconds of one start of several."""
    env = {"PATH": os.environ["PATH"]}
    if library:
        env["LD_PRELOAD"] = str(library)
    begin = time.perf_counter()
    for _ in range(repeat):
        subprocess.run(argv, env=env, input=SOURCE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=cwd)
    return (time.perf_counter() - begin) / repeat


def measure(name: str, argv: Sequence[str], libraries: dict[str, pathlib.Path | None], rounds: int, fresh_folder: bool = False):
    times: dict[str, list[float]] = {key: [] for key in libraries}
    repeat = 20 if argv == PROGRAMS["true"] else 1
    for _ in range(rounds):
        for key, library in libraries.items():
            folder = pathlib.Path(tempfile.mkdtemp()) if fresh_folder else None
            times[key].append(start(argv, library, repeat, folder))
            if folder:
                shutil.rmtree(folder)
    without = statistics.median(times["without"])
    row = "".join(f"{statistics.median(values) * 1e6:>14.0f} {statistics.median(values) / without:5.3f}x" for values in times.values())
    print(f"{name:26}{row}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    library = find.library(args.lib)
    if not library:
        print("start_cost.py: there is no libvma.so: build first, or name one with --lib", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # By another name: nobody has asked for it then, and it says nothing (doc/startup.md).
        unasked = folder / "preloaded.so"
        shutil.copy(library, unasked)
        libraries = {"without": None, "an empty library": empty_library(folder), "libvma.so": unasked}
        print(f"{'':26}" + "".join(f"{key:>21}" for key in libraries))
        for program, words in PROGRAMS.items():
            measure(program, words, libraries, args.rounds)
        if args.configure:
            measure(str(args.configure.name), [str(args.configure.resolve())], libraries, max(args.rounds // 7, 1), fresh_folder=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
