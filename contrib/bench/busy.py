#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs on a machine that has other work: with and without the library, in turns, beside busy loops and under a limit of the
processor time. Of each cell the medians of all rounds: percentiles, the processor time and the context switches of a message, and
what they are of the kernel's."""
from __future__ import annotations

import argparse
import json
import math
import resource
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.dont_write_bytecode = True

from benchlib import find, parsers, pictures, procs, surroundings, works  # noqa: E402

MODES = {"kernel": None, "default": {}, "no-polling": {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"},
         "latency": {"VMA_SPEC": "latency"}}
COLUMNS = ("p50", "p99", "p99.9", "cpu", "switches")
UNITS = {"p50": "us", "p99": "us", "p99.9": "us", "cpu": "us a message", "switches": "a message"}
LIMIT = 1.05


def run(work: works.Work, env: dict[str, str], protocol: str, seconds: int, lib: Path) -> dict[str, float]:
    """What both sides took has their start and end in it, whichever the mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended: the busy loops go on
    found = works.measure(work, env, protocol, seconds, lib)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    def taken(*names: str) -> float:
        return sum(getattr(after, name) - getattr(before, name) for name in names) / found["messages"]

    return {**found, "cpu": taken("ru_utime", "ru_stime") * 1e6, "switches": taken("ru_nvcsw", "ru_nivcsw")}


def measure_cell(args: argparse.Namespace, lib: Path, protocol: str, work: works.Work) -> dict[str, dict[str, float]]:
    """The modes of a cell in turns, so that what changes on the machine meets all of them."""
    rounds: dict[str, list[dict[str, float]]] = {mode: [] for mode in args.modes}
    for _ in range(args.rounds):
        for mode in args.modes:
            more = MODES[mode]
            env = {} if more is None else {"LD_PRELOAD": str(lib), "VMA_TRACELEVEL": "none", **more}
            try:
                rounds[mode].append(run(work, env, protocol, args.seconds, lib))
            except (parsers.ParseError, procs.RunError) as error:
                print(f"  {mode}: {error}", file=sys.stderr)
    return {mode: {c: median(one[c] for one in all_) for c in COLUMNS} for mode, all_ in rounds.items() if all_}


def measure(args: argparse.Namespace, lib: Path) -> list[dict[str, Any]]:
    cells = [(by, protocol, works.WORKS[what]) for by in args.beside for protocol in args.protocols for what in args.what
             if protocol in works.WORKS[what].protocols]
    found = []
    for number, (by, protocol, work) in enumerate(cells, 1):
        print(f"[{number}/{len(cells)}] {protocol} {work.name}, {surroundings.title(by)}", file=sys.stderr)
        try:
            with surroundings.surrounded(by):
                medians = measure_cell(args, lib, protocol, work)
        except procs.RunError as error:
            print(f"  {error}", file=sys.stderr)
            medians = {}
        found.append({"beside": by, "protocol": protocol, "what": work.name, "modes": medians})
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")  # what there is, however it ends
    return found


def name_of(cell: dict[str, Any]) -> str:
    return f"{cell['protocol']} {cell['what']}, {surroundings.title(cell['beside'])}"


def table(cells: list[dict[str, Any]], column: str) -> str:
    """One line a cell: the kernel's figure, and of each mode its own and the ratio; what is over the limit has a mark."""
    modes = [mode for mode in MODES if any(mode in cell["modes"] for cell in cells) and mode != "kernel"]
    lines = [f"{column} ({UNITS[column]})", f"{'':34}{'kernel':>10}" + "".join(f"{mode:>22}" for mode in modes)]
    for cell in cells:
        kernel = cell["modes"].get("kernel", {}).get(column, math.nan)
        if math.isnan(kernel):
            continue
        line = f"{name_of(cell):34}{kernel:>10.2f}"
        for mode in modes:
            own = cell["modes"].get(mode, {}).get(column)
            ratio = own / kernel if own is not None and kernel else math.nan
            line += f"{'-' if own is None else f'{own:.2f} {ratio:6.2f}x' + ('!' if ratio > LIMIT else ' '):>22}"
        lines.append(line)
    return "\n".join(lines)


def draw(cells: list[dict[str, Any]], out: Path) -> None:
    modes = [mode for mode in MODES if mode != "kernel" and any(mode in cell["modes"] for cell in cells)]
    columns = [(mode, column) for mode in modes for column in ("p50", "p99", "cpu")]
    ratios = [[cell["modes"].get(m, {}).get(c, math.nan) / cell["modes"].get("kernel", {}).get(c, math.nan)
               for m, c in columns] for cell in cells]
    pictures.heat_map([name_of(cell) for cell in cells], [f"{mode}\n{column}" for mode, column in columns], ratios, out)


def choose(allowed: list[str], numbers: bool = False) -> Any:
    def parse(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in allowed and not (numbers and word.isdecimal()):
                raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(allowed)}")
        return words
    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Without the library's sources: --lib. A cell takes about "
                                     "(seconds + 1) x modes x rounds. '!' is more than 1.05 times the kernel's.")
    parser.add_argument("--lib", help="libvma.so; default: the build tree's, or the installed one")
    parser.add_argument("--beside", type=choose(["quota"], numbers=True), default=["0", "2", "4", "quota"], metavar="LIST",
                        help="numbers of busy loops, and quota: half of a processor for all programs of a cell together, "
                        "by a cgroup, as root (default 0,2,4,quota)")
    parser.add_argument("--protocols", type=choose(["tcp", "udp"]), default=["tcp", "udp"], help="default tcp,udp")
    parser.add_argument("--what", type=choose(list(works.WORKS)), default=list(works.WORKS), metavar="LIST",
                        help=f"of {', '.join(works.WORKS)}; default all")
    parser.add_argument("--modes", type=choose(list(MODES)), default=list(MODES), help=f"default {','.join(MODES)}")
    parser.add_argument("--rounds", type=int, default=7, help="default %(default)s")
    parser.add_argument("--seconds", type=int, default=2, help="of each run (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the ratios as a heat map (SVG or PNG)")
    args = parser.parse_args()
    lib = find.library(args.lib)
    if lib is None:
        sys.exit("busy.py: no libvma.so: build it, or name it with --lib")
    missing = {need for what in args.what for need in works.WORKS[what].needs if find.program(need) is None}
    if missing:
        sys.exit(f"busy.py: not installed: {', '.join(sorted(missing))} (--what leaves out what needs it)")
    if args.picture and not pictures.available():
        sys.exit("busy.py: --picture needs matplotlib, which is not installed")
    cells = measure(args, lib)
    for column in COLUMNS:
        print(table(cells, column), end="\n\n")
    if args.picture:
        draw(cells, args.picture)
    return 0 if all(len(cell["modes"]) == len(args.modes) for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
