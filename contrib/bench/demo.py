#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The short form of bench.py, for a first look: sockperf and redis over the kernel and over libvma.so side by side, a
table of ratios and pictures, in about a minute. It looks into the library's log whether connections really were
accelerated.

Exit status: 0 done, 1 a program failed, 2 no library, 3 connections were not accelerated."""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.dont_write_bytecode = True

from benchlib import bench, find, pictures, results, runner, tables  # noqa: E402
from benchlib.model import Case  # noqa: E402
from cases.redis import RedisMany, RedisOne  # noqa: E402
from cases.sockperf_latency import SockperfLatency  # noqa: E402

SHOWN: tuple[type[Case], ...] = (SockperfLatency, RedisMany, RedisOne)
ROUNDS = 3


def conclusion(outcomes: Sequence[runner.Outcome]) -> tuple[int, list[str]]:
    """Exit status, and what there is to say."""
    status, lines = 0, []
    for outcome in outcomes:
        case = outcome.case
        if outcome.skipped:
            status = status or 1
            lines.append(f"{case.title}: not run, {outcome.skipped}")
        for error in dict.fromkeys(outcome.errors):
            status = status or 1
            lines.append(f"{case.title}: {error}")
        if outcome.accelerated is False and outcome.acceleration:
            status = 3
            lines.append(f"{case.title}: NOT ACCELERATED: {outcome.acceleration.sentence()}. Whatever was measured, "
                         "it was the kernel.")
        elif outcome.accelerated and outcome.acceleration:
            lines.append(f"{case.title}: {outcome.acceleration.sentence()}")
    return status, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", metavar="PATH",
                        help="libvma.so (default: that of the build tree, else the installed one)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("demo-out"),
                        help="where results and pictures go (default ./demo-out)")
    parser.add_argument("--rounds", type=int, metavar="N", default=ROUNDS, help="rounds (default %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="print the commands that are run")
    args = parser.parse_args()
    lib = find.library(args.lib)
    if not lib:
        print(f"demo.py: {args.lib or 'libvma.so'} is not there; contrib/setup.sh demo builds it", file=sys.stderr)
        return 2

    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:3.0f} s] {line}", flush=True)

    say(f"unmodified programs, over the kernel and over {lib}")
    context = bench.Bench(lib=lib, quick=True, cpus=bench.default_cpus(), verbose=args.verbose)
    load = results.load_now()
    outcomes = [runner.run_case(kind(), context, max(1, args.rounds), say) for kind in SHOWN]

    result = results.collect(outcomes, True, load)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "demo.json").write_text(json.dumps(result, indent=1) + "\n")
    status, lines = conclusion(outcomes)
    rows = tables.ratios(result["cases"])
    if len(rows) > 1:
        print("\n" + tables.text(rows) + "\n")
    print("\n".join(lines))
    if pictures.available():
        for picture in pictures.draw(result, args.out):
            print(f"picture: {picture.resolve()}")
    else:
        print("no pictures: python3-matplotlib is not installed")
    print(f"{time.monotonic() - started:.0f} s; longer and more: contrib/bench/bench.py; how to read it: "
          "doc/benchmarks.md")
    return status


if __name__ == "__main__":
    sys.exit(main())
