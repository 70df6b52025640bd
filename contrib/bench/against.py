#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Two builds of the library, one against the other: the accelerated runs of bench.py's cases, in turns. Of each figure the median of both, and the
median of the ratios of neighbouring runs with the 95 % of its bootstrap: where that holds 1, the two can't be told from each other so."""
from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence

import cases
from benchlib import bench, find, runner
from benchlib.model import ACCELERATED

RESAMPLES = 2000


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="against.py", description=__doc__)
    names = [kind.name for kind in cases.ALL]
    parser.add_argument("before", metavar="LIBVMA_SO", help="libvma.so of the build before, its provider beside it")
    parser.add_argument("--lib", metavar="PATH",
                        help="libvma.so of the build after; default: the build tree's, or the installed one")
    parser.add_argument("--only", metavar="NAME", action="append", required=True, choices=names,
                        help=f"a case; may be repeated: {', '.join(names)}")
    parser.add_argument("--rounds", metavar="N", type=int, default=11, help="runs of each build (default 11)")
    parser.add_argument("--quick", action="store_true", help="short runs: more of them in the same time, with more scatter")
    args = parser.parse_args(argv)
    if args.rounds < 2:
        parser.error("--rounds takes a number from 2 on")
    for name in (args.before, args.lib):
        if name and not find.library(name):
            parser.error(f"{name} is not there")
    return args


def middle_of_resamples(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which 95 % of the medians of resamples lie."""
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40 - 1]


def line(name: str, before: Sequence[float], after: Sequence[float]) -> str:
    ratios = [b / a for a, b in zip(before, after) if a]
    low, high = middle_of_resamples(ratios)
    return (f"{name:34} before {statistics.median(before):>10.4g}  after {statistics.median(after):>10.4g}  "
            f"ratio {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]")


def compare(kind: type, args: argparse.Namespace, contexts: Sequence[bench.Bench]) -> bool:
    """False: a run failed; what came of the others is printed."""
    figures: dict[str, tuple[list[float], list[float]]] = {}
    whole = True
    for number in range(args.rounds):
        pair = {}
        for which in ((0, 1), (1, 0))[number % 2]:
            case = kind()
            modes = [mode for mode in case.modes if mode.key == ACCELERATED.key]
            outcome = runner.run_case(case, contexts[which], 1, lambda said: None, modes)
            for error in outcome.errors or ([outcome.skipped] if outcome.skipped else []):
                print(f"{case.name}: {error}", file=sys.stderr)
            pair[which] = outcome.results.values.get(ACCELERATED.key, {})
        whole = whole and all(pair.values())
        for metric in set(pair[0]) & set(pair[1]):
            sides = figures.setdefault(metric, ([], []))
            for which in (0, 1):
                sides[which].extend(pair[which][metric])
        print(f"{kind.name}: {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    for metric, (before, after) in sorted(figures.items()):
        print(line(f"{kind.name} {metric}", before, after), flush=True)
    return whole and bool(figures)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    libraries = [find.library(args.before), find.library(args.lib)]
    if None in libraries:
        print("against.py: libvma.so is not there: build first (contrib/setup.sh build), or name it with --lib",
              file=sys.stderr)
        return 2
    contexts = [bench.Bench(lib=lib, quick=args.quick, cpus=bench.default_cpus()) for lib in libraries]
    chosen = [kind for kind in cases.ALL if kind.name in args.only]
    return 0 if all([compare(kind, args, contexts) for kind in chosen]) else 1


if __name__ == "__main__":
    sys.exit(main())
