#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's reliable datagrams (FI_EP_RDM) between two processes of this host, each on a processor of its own: the
vma provider beside what a user would take instead: libfabric's shared memory (shm), TCP, and UCX by its own
ucx_perftest. Round by round each provider runs each test once, so all see the same machine; medians. The last column is
the time that one takes with vma, divided by that of the best which is not ours: less than 1 is faster. "-" is what a
provider does not offer."""
from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True

from benchlib import bench, find, parsers, pictures, procs, results, tables, turns  # noqa: E402

OURS = "vma"
UCX = "ucx"
UCX_ENV = {"UCX_TLS": "posix,sysv,cma,self"}
PROVIDERS = [OURS, "vma;ofi_rxm", "shm", "tcp;ofi_rxm", UCX]
SOURCES = ("fabric_bench.c", "fabric_works.c", "fabric_side.c")
LIMIT = 20  # seconds of one run: a provider that hangs is a figure that is missing, not a benchmark that doesn't end
WINDOW = 64  # messages under way, in what is no ping-pong
KIB, MIB = 1024, 1 << 20


@dataclass(frozen=True)
class Test:
    """`ucx`: the test of ucx_perftest that does the same."""
    title: str
    unit: str
    sizes: tuple[int, ...]
    ucx: str | None = None
    kept: tuple[int, ...] = (0,)  # unexpected messages of other tags that lie at the receiver

    def figure(self, microseconds: float, size: int) -> float:
        return {"us": microseconds, "GB/s": size / microseconds / 1e3, "M/s": 1 / microseconds}[self.unit]


BULK = (KIB, 4 * KIB, 64 * KIB, MIB, 4 * MIB)
TESTS = {
    "latency": Test("tagged ping-pong", "us", (0, 8, 64, *BULK), "tag_lat"),
    "untagged": Test("untagged ping-pong", "us", (8,)),
    "unexpected": Test("tagged ping-pong", "us", (8,), kept=(1, 10, 100, 1000)),
    "rate": Test("messages by fi_tsend", "M/s", (8,), "tag_bw"),
    "inject-rate": Test("messages by fi_tinject", "M/s", (8,), "tag_bw"),
    "bandwidth": Test("one way", "GB/s", BULK, "tag_bw"),
    "bidirectional": Test("both ways together", "GB/s", BULK),
    "write-latency": Test("RMA write until it is seen", "us", (8, 4 * KIB, 64 * KIB)),
    "read-latency": Test("RMA read", "us", (8, 4 * KIB, 64 * KIB)),
    "write-bandwidth": Test("RMA writes", "GB/s", BULK[1:]),
    "read-bandwidth": Test("RMA reads", "GB/s", BULK[1:]),
    "fetch-add": Test("fetch-add", "us", (8,)),
}


@dataclass(frozen=True)
class Cell:
    name: str
    size: int
    kept: int

    @property
    def test(self) -> Test:
        return TESTS[self.name]

    @property
    def work(self) -> str:
        """As fabric_bench has it: a ping-pong beside unexpected messages is a ping-pong."""
        return f"latency:{self.size}:{self.kept}" if self.kept else f"{self.name}:{self.size}"

    @property
    def title(self) -> str:
        return f"{self.test.title} {tables.size(self.size)}" + (f", {self.kept:,} unexpected" if self.kept else "")


class NotOffered(Exception):
    """The provider doesn't have what the test takes."""


@dataclass
class Session:
    """Runs cells, and remembers which of them a provider doesn't have or can't do: those are not tried again."""
    program: Path
    providers: Path  # the folder that FI_PROVIDER_PATH names
    cpus: tuple[int, int]
    seconds: float
    not_offered: dict[tuple[Cell, str], str] = field(default_factory=dict)
    failed: dict[tuple[Cell, str], str] = field(default_factory=dict)

    def run(self, cell: Cell, provider: str) -> dict[Cell, float]:
        """Microseconds of one."""
        key = (cell, provider)
        if key in self.failed or key in self.not_offered:
            return {}
        try:
            with tempfile.TemporaryDirectory() as scratch:
                return {cell: (self._ucx if provider == UCX else self._ours)(cell, provider, Path(scratch))}
        except NotOffered as error:
            self.not_offered[key] = str(error)
        except (procs.RunError, parsers.ParseError) as error:
            self.failed[key] = str(error)
            print(f"\n{provider}, {cell.title}: {error}", file=sys.stderr)
        return {}

    def _ours(self, cell: Cell, provider: str, scratch: Path) -> float:
        env = {name: value for name, value in os.environ.items() if name.startswith("FI_")}
        cpus = ",".join(map(str, self.cpus))
        argv = [str(self.program), "-p", provider, "-c", cpus, "-t", str(self.seconds), "-l", str(LIMIT), cell.work]
        said = procs.client(argv, frozenset(), {**env, "FI_PROVIDER_PATH": str(self.providers)}, scratch, LIMIT + 10)
        return fabric_bench_figure(said, cell.work)

    def _ucx(self, cell: Cell, provider: str, scratch: Path) -> float:
        if not cell.test.ucx:
            raise NotOffered(f"{provider} has no such test")
        command, port = str(find.program("ucx_perftest")), procs.free_port()
        guess = 0.1e-6 + cell.size / 8e9  # seconds of one: it is told how many, not how long
        count = max(2, math.ceil(self.seconds / guess / (2 if cell.test.ucx == "tag_lat" else 1)))
        options = ["-t", cell.test.ucx, "-s", str(cell.size), "-n", str(count), "-w", str(count // 4 + 1), "-f", "-v",
                   "-p", str(port), *(["-O", str(WINDOW)] if cell.test.ucx == "tag_bw" else [])]
        server, client = (frozenset([cpu]) for cpu in self.cpus)
        with procs.server([command, *options], port, server, UCX_ENV, scratch):
            return ucx_figure(procs.client([command, "127.0.0.1", *options], client, UCX_ENV, scratch, LIMIT))


def fabric_bench_figure(text: str, work: str) -> float:
    """Microseconds; beside the line that has them a provider may have said something."""
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if words[:1] == [work] and words[1:2] == ["not-offered"]:
            raise NotOffered(words[-1])
        if words[:1] == [work] and len(words) == 2:
            return float(words[1])
    raise parsers.ParseError(f"no figure in the output: {text.strip() or '(empty)'}")


def ucx_figure(text: str) -> float:
    """Microseconds of one, of ucx_perftest -f -v: its last column is how many a second, of both directions if it is a
    ping-pong."""
    for line in text.splitlines():
        words = line.split(",")
        if len(words) == 8 and words[0].strip().isdecimal() and float(words[-1]) > 0:
            return 1e6 / float(words[-1])
    raise parsers.ParseError(f"no figure in the output of ucx_perftest: {text.strip()[-200:] or '(empty)'}")


def names(allowed: Sequence[str] | None = None) -> Any:
    def parse(text: str) -> list[str]:
        words = list(dict.fromkeys(text.split(",")))
        unknown = [word for word in words if not word or (allowed and word not in allowed)]
        if unknown:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(allowed or ['a name'])}")
        return words
    return parse


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fabric.py", description=__doc__)
    parser.add_argument("--lib", metavar="PATH", help="libvma.so, beside which the provider lies; default: the build "
                        "tree's, or the installed one")
    parser.add_argument("--providers", metavar="NAME,NAME", type=names(), default=PROVIDERS,
                        help=f"as fi_info names them, and {UCX} (default {','.join(PROVIDERS)})")
    parser.add_argument("--only", metavar="TEST,TEST", type=names(list(TESTS)), default=list(TESTS),
                        help=f"of {', '.join(TESTS)} (default: all)")
    parser.add_argument("--rounds", metavar="N", type=int, help="of each (default 5; 1 if quick)")
    parser.add_argument("--seconds", metavar="S", type=float,
                        help="of each figure in a round (default 0.1; 0.02 if quick)")
    parser.add_argument("--quick", action="store_true", help="see that all of it works; no figures to quote")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures of each round there as well")
    parser.add_argument("--picture", metavar="FOLDER", type=Path,
                        help="draw what vma's times are of the others' there, as a heat map (needs python3-matplotlib)")
    args = parser.parse_args(argv)
    args.rounds = args.rounds if args.rounds is not None else 1 if args.quick else 5
    args.seconds = args.seconds if args.seconds is not None else 0.02 if args.quick else 0.1
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds takes a number from 1 on, --seconds one above 0")
    if args.picture and not pictures.available():
        parser.error("--picture needs matplotlib, which is not installed (python3-matplotlib)")
    return args


def best_other(ways: Mapping[str, float]) -> str | None:
    """The fastest that has nothing of ours in it."""
    return min((way for way in ways if OURS not in way.split(";")), key=lambda way: ways[way], default=None)


def row(cell: Cell, ways: Mapping[str, float], session: Session, providers: Sequence[str]) -> list[str]:
    figures = [tables.number(cell.test.figure(ways[way], cell.size)) if way in ways
               else "failed" if (cell, way) in session.failed else "-" for way in providers]
    other = best_other(ways)
    ratio = f"{ways[OURS] / ways[other]:.2f} ({other})" if OURS in ways and other else "-"
    return [f"{cell.title}, {cell.test.unit}", *figures, ratio]


def result(cells: Sequence[Cell], session: Session, seen: turns.Figures[Cell]) -> dict[str, Any]:
    """What there is, in the units of the table; `ratio` is of times."""
    found, medians = [], turns.medians(seen)
    for cell in cells:
        ways, middle = seen.get(cell, {}), medians.get(cell, {})
        figures = {way: {"median": cell.test.figure(middle[way], cell.size),
                         "rounds": [cell.test.figure(value, cell.size) for value in ways[way]]} for way in ways}
        other = best_other(middle)
        found.append({"test": cell.name, "title": cell.title, "bytes": cell.size, "kept": cell.kept,
                      "unit": cell.test.unit, "ways": figures, "best_other": other,
                      "ratio": middle[OURS] / middle[other] if OURS in middle and other else None,
                      "not_offered": {way: why for (at, way), why in session.not_offered.items() if at == cell},
                      "failed": {way: why for (at, way), why in session.failed.items() if at == cell}})
    return {"seconds": session.seconds, "cpus": session.cpus, "host": results.host(), "cells": found}


def draw(medians: Mapping[Cell, Mapping[str, float]], providers: Sequence[str], out: Path) -> None:
    others = [way for way in providers if way != OURS]
    drawn = {cell: ways for cell, ways in medians.items() if OURS in ways and set(ways) & set(others)}
    if not drawn:
        return
    ratios = [[ways[OURS] / ways.get(way, math.nan) for way in others] for ways in drawn.values()]
    out.mkdir(parents=True, exist_ok=True)
    pictures.heat_map([cell.title for cell in drawn], others, ratios, out / "fabric.png", "vma's time, in the other's")


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    library = find.library(args.lib)
    if not library or not find.program("cc"):
        print("fabric.py: " + ("there is no cc" if library else "no library: build first, or name one with --lib"),
              file=sys.stderr)
        return 2
    if UCX in args.providers and not find.program("ucx_perftest"):
        print("fabric.py: no ucx_perftest (install ucx-utils): no column for UCX", file=sys.stderr)
        args.providers = [name for name in args.providers if name != UCX]
    cells = [Cell(name, size, kept) for name in args.only for size in TESTS[name].sizes for kept in TESTS[name].kept]
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(Path(__file__).resolve().with_name(name)) for name in SOURCES]
        program = find.compiled("fabric_bench", Path(folder), "cc", "-O2", "-std=c11", *sources, "-lfabric")
        session = Session(program, library.parent, bench.default_cpus(), args.seconds)

        def write(seen: turns.Figures[Cell]) -> None:
            if args.json:  # what there is, however it ends
                args.json.write_text(json.dumps(result(cells, session, seen), indent=1) + "\n")

        seen = turns.measure(args.rounds, cells, args.providers, session.run, lambda cell: cell.title, write)
    medians = turns.medians(seen)
    rows = [["", *args.providers, "vma : best other"]]
    rows += [row(cell, medians.get(cell, {}), session, args.providers) for cell in cells]
    print(tables.text(rows))
    if args.picture:
        draw(medians, args.providers, args.picture)
    return 1 if session.failed else 0


if __name__ == "__main__":
    sys.exit(main())
