#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stops and kills one side of a TCP connection at each step of what the library does to it, and checks every byte and the kind of end
at the other. doc/fault-injection.md says what the scenarios, faults and verdicts are.

Without --all: points drawn by a seed, for --seconds. The exit status is 1 if anything was wrong."""

import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from lib import steps  # noqa: E402

AT_A_TIME = 25  # points of one run of the harness


def chunks(points, size):
    return [points[i:i + size] for i in range(0, len(points), size)]


def all_points(harness, where, every, surveys=2):
    """Threads run side by side, so one survey is not as the other: what any of them has seen."""
    points, verdicts = {}, set()
    for _ in range(surveys):
        survey = harness.survey(where, every)
        for point in survey["points"]:
            place, _, at = point.partition("@")
            points.setdefault((place, at.rpartition(":")[2]), point)  # wherever the library was mapped
        verdicts.add((survey["verdict"], survey["detail"]))
    return list(points.values()), verdicts


def by_survey(stretches, faults):
    """Yields (where, whether each instruction is a point, the faults that apply there with these points)."""
    for where in stretches:
        for every in (False, True):
            some = [fault for fault in faults if (fault in steps.SIGNALS) == every and steps.applies(where.scenario, fault)]
            if some:
                yield where, every, some


def everything(harness, stretches, faults, table, say):
    for where, every, faults in by_survey(stretches, faults):
        began = time.monotonic()
        points, verdicts = all_points(harness, where, every)
        say(f"{where}: {len(points)} points; surveys: {', '.join(sorted(v for v, _ in verdicts))}")
        for fault in faults:
            may = steps.allowed(fault, harness.on_the_kernel(where, fault))
            done = 0
            for some in chunks(points, AT_A_TIME):
                table.add(where, fault, harness.run(where, fault, some), may)
                done += len(some)
                say(f"  {fault}: {done}/{len(points)}, {len(table.wrong)} wrong so far, {time.monotonic() - began:.0f} s", end="\r")
            say("")


def sample(harness, stretches, faults, table, seed, seconds, each=5):
    """Every scenario once with some buffers, then with the others, for as long as there is time."""
    chance = random.Random(seed)
    first, then = [], []
    for where in chance.sample(stretches, len(stretches)):
        (then if any(where.scenario == other.scenario for other in first) else first).append(where)
    until = time.monotonic() + seconds
    for where, every, some in by_survey(first + then, faults):
        if time.monotonic() > until:
            break
        points = harness.survey(where, every)["points"]
        for fault in some:
            chosen = chance.sample(points, min(each, len(points)))
            table.add(where, fault, harness.run(where, fault, chosen), steps.allowed(fault, harness.on_the_kernel(where, fault)))


def of_threads(harness, stretches, table, seed, each):
    """Signals and cancellation alone: as many points of each stretch and kind, however long it takes."""
    chance = random.Random(seed)
    for where in stretches:
        points = harness.survey(where, every=True)["points"]
        for fault in (fault for fault in steps.OF_THREADS if steps.applies(where.scenario, fault)):
            chosen = chance.sample(points, min(each, len(points)))
            table.add(where, fault, harness.run(where, fault, chosen), steps.allowed(fault, harness.on_the_kernel(where, fault)))


def at(harness, stretches, faults, points, table):
    """At points that are known."""
    for where in stretches:
        for fault in faults:
            table.add(where, fault, harness.run(where, fault, points), steps.allowed(fault, harness.on_the_kernel(where, fault)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all points, with progress; a quarter of an hour or more for all scenarios")
    parser.add_argument("--every", action="store_true", help="every instruction is a point, not only those that others can see")
    parser.add_argument("--list", action="store_true", help="the scenarios")
    parser.add_argument("--scenario", action="append", choices=list(steps.scenarios()), metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--fault", action="append", choices=steps.FAULTS, help="only this one (may be repeated)")
    parser.add_argument("--buffer", action="append", type=int, help="SO_SNDBUF and SO_RCVBUF, 0 for the defaults (may be repeated)")
    parser.add_argument("--point", action="append", help="only this one, of the same build (may be repeated; with --scenario)")
    parser.add_argument("--pause", type=int, default=20, help="milliseconds for which `stop` stops (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long a sample takes (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="of a sample; printed")
    return parser.parse_args()


def main():
    options = arguments()
    if options.list:
        for name, what in steps.scenarios().items():
            print(f"{name:<22} {what}")
        return 0
    stretches = [steps.Where(scenario, buffer) for scenario in options.scenario or steps.scenarios()
                 for buffer in (options.buffer if options.buffer is not None else steps.BUFFERS)]
    faults = options.fault or steps.FAULTS
    table = steps.Table()
    with tempfile.TemporaryDirectory(prefix="steps-", dir="/dev/shm") as shm:
        harness = steps.Harness(steps.environment(shm), options.every, options.pause)
        try:
            if options.point:
                at(harness, stretches, faults, options.point, table)
            elif options.all:
                everything(harness, stretches, faults, table, lambda text, end="\n": print(text, end=end, flush=True))
            else:
                print(f"seed {options.seed}", flush=True)
                sample(harness, stretches, faults, table, options.seed, options.seconds)
        except KeyboardInterrupt:
            print("\ninterrupted: what was seen until now")
    print(f"\n{table.text()}\n{table.faults()}")
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
