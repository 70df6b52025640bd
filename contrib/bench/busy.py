#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sockperf on a machine that has other work: with and without the library, in turns, beside busy loops. Of each cell the
medians of all rounds: percentiles, the processor time and the context switches of a message, and what they are of the kernel's."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.dont_write_bytecode = True

from benchlib import find, parsers, pictures, procs  # noqa: E402
from cases.sockperf_latency import SockperfLatency  # noqa: E402

PING_PONG = "ping-pong"
MODES = {"kernel": None, "default": {}, "no-polling": {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"},
         "latency": {"VMA_SPEC": "latency"}}
COLUMNS = ("p50", "p99", "p99.9", "cpu", "switches")
UNITS = {"p50": "us", "p99": "us", "p99.9": "us", "cpu": "us a message", "switches": "a message"}
LIMIT = 1.05
NO_CPUS: procs.Cpus = frozenset()  # whichever the scheduler chooses
ALLOWANCE = 20.0  # seconds beside the measured ones, before a program is ended


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """They end with us, however we end."""
    loops = [subprocess.Popen([sys.executable, "-c", "import os\nwhile os.getppid() == %d: sum(range(10000))" % os.getpid()])
             for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(program: str, env: dict[str, str], protocol: str, what: str, seconds: int) -> dict[str, float]:
    """One server and one client. What both took has their start and end in it, whichever the mode."""
    tcp = protocol == "tcp"
    port = procs.free_port() if tcp else procs.free_udp_ports(1)[0]
    where = ["-i", "127.0.0.1", "-p", str(port), *(["--tcp"] if tcp else [])]
    test = [PING_PONG, *SockperfLatency.RATE] if what == PING_PONG else ["under-load", "--mps", what]
    server = procs.server if tcp else procs.udp_server
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended: the busy loops go on
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with server([program, "server", *where], port if tcp else [port], NO_CPUS, env, scratch, ALLOWANCE):
            text = procs.client([program, *test, *where, "-t", str(seconds)], NO_CPUS, env, scratch, seconds + ALLOWANCE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    percentiles = parsers.sockperf_percentiles(text)
    messages = parsers.sockperf_messages(text)

    def taken(*names: str) -> float:
        return sum(getattr(after, name) - getattr(before, name) for name in names) / messages

    return {"p50": percentiles[50.0], "p99": percentiles[99.0], "p99.9": percentiles[99.9],
            "cpu": taken("ru_utime", "ru_stime") * 1e6, "switches": taken("ru_nvcsw", "ru_nivcsw")}


def measure(args: argparse.Namespace, program: str, lib: Path) -> list[dict[str, Any]]:
    """The modes of a cell in turns, so that what changes on the machine meets all of them."""
    cells = [(loops, protocol, what) for loops in args.loops for protocol in args.protocols for what in args.what]
    found = []
    for number, (loops, protocol, what) in enumerate(cells, 1):
        print(f"[{number}/{len(cells)}] {protocol} {what}, {loops} busy loops", file=sys.stderr)
        rounds: dict[str, list[dict[str, float]]] = {mode: [] for mode in args.modes}
        with busy_loops(loops):
            for _ in range(args.rounds):
                for mode in args.modes:
                    more = MODES[mode]
                    env = {} if more is None else {"LD_PRELOAD": str(lib), "VMA_TRACELEVEL": "none", **more}
                    try:
                        rounds[mode].append(run(program, env, protocol, what, args.seconds))
                    except (parsers.ParseError, procs.RunError) as error:
                        print(f"  {mode}: {error}", file=sys.stderr)
        medians = {mode: {c: median(one[c] for one in all_) for c in COLUMNS} for mode, all_ in rounds.items() if all_}
        found.append({"loops": loops, "protocol": protocol, "what": what, "modes": medians})
    return found


def name_of(cell: dict[str, Any]) -> str:
    return f"{cell['protocol']} {cell['what']}, {cell['loops']} loops"


def table(cells: list[dict[str, Any]], column: str) -> str:
    """One line a cell: the kernel's figure, and of each mode its own and the ratio; what is over the limit has a mark."""
    modes = [mode for mode in MODES if any(mode in cell["modes"] for cell in cells) and mode != "kernel"]
    lines = [f"{column} ({UNITS[column]})", f"{'':34}{'kernel':>10}" + "".join(f"{mode:>22}" for mode in modes)]
    for cell in cells:
        kernel = cell["modes"].get("kernel", {}).get(column)
        line = f"{name_of(cell):34}" + (f"{kernel:>10.2f}" if kernel is not None else f"{'-':>10}")
        for mode in modes:
            own = cell["modes"].get(mode, {}).get(column)
            ratio = own / kernel if own is not None and kernel else None
            text = "-" if own is None else f"{own:.2f}" + ("" if ratio is None else f" {ratio:6.2f}x{'!' if ratio > LIMIT else ' '}")
            line += f"{text:>22}"
        lines.append(line)
    return "\n".join(lines)


def draw(cells: list[dict[str, Any]], out: Path) -> None:
    modes = [mode for mode in MODES if mode != "kernel" and any(mode in cell["modes"] for cell in cells)]
    columns = [(mode, column) for mode in modes for column in ("p50", "p99", "cpu")]
    missing = float("nan")
    ratios = [[cell["modes"].get(m, {}).get(c, missing) / cell["modes"].get("kernel", {}).get(c, missing)
               for m, c in columns] for cell in cells]
    pictures.heat_map([name_of(cell) for cell in cells], [f"{mode}\n{column}" for mode, column in columns], ratios, out)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def choose(allowed: list[str]) -> Any:
    def parse(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in allowed and not (PING_PONG in allowed and word.isdecimal()):
                raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(allowed)}")
        return words
    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Without the library's sources: --lib. A cell takes about "
                                     "(seconds + 1) x modes x rounds. '!' is more than 1.05 times the kernel's.")
    parser.add_argument("--lib", help="libvma.so; default: the build tree's, or the installed one")
    parser.add_argument("--loops", type=numbers, default=[0, 2, 4], help="busy loops beside it, with commas (default 0,2,4)")
    parser.add_argument("--protocols", type=choose(["tcp", "udp"]), default=["tcp", "udp"], help="default tcp,udp")
    parser.add_argument("--what", type=choose([PING_PONG]), default=[PING_PONG, "1000", "10000", "100000"],
                        help="ping-pong, or messages a second under load (default ping-pong,1000,10000,100000)")
    parser.add_argument("--modes", type=choose(list(MODES)), default=list(MODES), help=f"default {','.join(MODES)}")
    parser.add_argument("--rounds", type=int, default=7, help="default %(default)s")
    parser.add_argument("--seconds", type=int, default=2, help="of each run (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the ratios as a heat map (SVG or PNG)")
    args = parser.parse_args()
    lib = find.library(args.lib)
    program = find.program("sockperf")
    if lib is None or program is None:
        sys.exit("busy.py: " + ("sockperf is not installed" if program is None else "no libvma.so: build it, or name it with --lib"))
    if args.picture and not pictures.available():
        sys.exit("busy.py: --picture needs matplotlib, which is not installed")
    cells = measure(args, str(program), lib)
    for column in COLUMNS:
        print(table(cells, column), end="\n\n")
    if args.json:
        args.json.write_text(json.dumps(cells, indent=1) + "\n")
    if args.picture:
        draw(cells, args.picture)
    return 0 if all(len(cell["modes"]) == len(args.modes) for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
