#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs unmodified programs over the kernel and over libvma.so in turn, several rounds, and prints medians, spread,
ratios and whether the project's targets are met; writes JSON and pictures. doc/benchmarks.md says how to read them.

Exit status: 0 done (whether or not targets are met), 1 something failed, 2 wrong use, 3 connections that should have
been accelerated were not."""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.dont_write_bytecode = True

import cases  # noqa: E402
from benchlib import bench, find, pictures, results, runner, tables  # noqa: E402


LIMIT = 580  # seconds, unless a number of rounds is asked for


def two_cpus(text: str) -> tuple[int, int]:
    try:
        first, second = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not two CPU numbers, as in 0,1") from None
    return first, second


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join(case.name for case in cases.ALL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append",
                        help=f"only this benchmark (again for more; wire-... are run only so): {names}")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help="rounds, kernel and accelerated in each (default 5, more or fewer of some, or so few "
                             f"that all is done in {LIMIT} s; quick 2)")
    parser.add_argument("--quick", action="store_true", help="short runs, to see that it works; no figures to quote")
    parser.add_argument("--lib", metavar="PATH",
                        help="libvma.so (default: that of the build tree, else the installed one)")
    parser.add_argument("--kernel-only", action="store_true", help="leave the accelerated runs out")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="set for accelerated programs")
    parser.add_argument("--cpus", metavar="A,B", type=two_cpus, help="CPUs of server and client (default: the first two)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("bench-out"),
                        help="where results and pictures go (default ./bench-out)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result file (default DIR/bench.json)")
    parser.add_argument("--verbose", action="store_true", help="print the commands that are run")
    args = parser.parse_args(argv)
    unknown = set(args.only or ()) - {case.name for case in cases.ALL}
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {names}")
    if any("=" not in setting for setting in args.env):
        parser.error("--env takes NAME=VALUE")
    if args.rounds is not None and args.rounds < 1:
        parser.error("--rounds takes a positive number")
    return args


def settings(args: argparse.Namespace) -> bench.Bench:
    lib = find.library(args.lib)
    if not lib and not args.kernel_only:
        print(f"bench.py: {args.lib or 'libvma.so'} is not there: build first (contrib/setup.sh build), or name it "
              "with --lib, or ask for --kernel-only", file=sys.stderr)
        sys.exit(2)
    cpus = args.cpus or bench.default_cpus()
    return bench.Bench(lib=lib, quick=args.quick, cpus=cpus, env=dict(s.split("=", 1) for s in args.env),
                       verbose=args.verbose)


def progress(line: str) -> None:
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    context = settings(args)
    load = results.load_now()
    if load > 0.5:
        progress(f"note: the machine is busy (load {load:.1f}): figures of a quiet one differ")

    outcomes = []
    chosen = [kind() for kind in cases.ALL
              if (kind.name in args.only if args.only else not kind.only_by_name)]
    started, expected = time.monotonic(), 0.0
    for i, case in enumerate(chosen):
        elapsed = time.monotonic() - started
        pace = max(1.0, elapsed / expected) if expected else 1.0
        rounds = args.rounds or (2 if args.quick else runner.rounds_that_fit(chosen[i:], LIMIT - elapsed, pace))
        expected += rounds * case.seconds
        modes = [mode for mode in case.modes if not (args.kernel_only and mode.key == "accelerated")]
        outcomes.append(runner.run_case(case, context, rounds, progress, modes))

    result = results.collect(outcomes, args.quick, load)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.json or args.out / "bench.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    progress("\n" + tables.report(result) + "\n")
    progress(f"results: {path}")
    if pictures.available():
        for picture in pictures.draw(result, args.out):
            progress(f"picture: {picture}")
    else:
        progress("no pictures: python3-matplotlib is not installed")

    if any(outcome.errors for outcome in outcomes):
        return 1
    return 3 if any(outcome.accelerated is False for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
