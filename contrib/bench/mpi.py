#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Open MPI over the vma provider, its own reliable datagrams and through ofi_rxm, beside what a user would take instead: the same libfabric over TCP,
Open MPI's own shared memory (vader), UCX. Round by round each way runs once, so all see the same machine; medians. Microseconds: half a round trip, one message of a window of 64 (rate), one
collective call."""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchlib import find, pictures, tables, turns

OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include"]
WAYS = {
    "vma": [*OFI, "vma", "-x", "FI_PROVIDER=vma"],
    "rxm": [*OFI, "vma;ofi_rxm", "-x", "FI_PROVIDER=vma,ofi_rxm"],
    "tcp": [*OFI, "tcp;ofi_rxm"],
    "vader": ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"],
    "ucx": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"],
}
MPICH = "mpich"  # Debian's, whose device is UCX
TWO = ["latency:8", "latency:1024", "latency:65536", "latency:1048576", "rate:8"]
ALL = ["allreduce:8", "allreduce:1048576", "alltoall:1024", "bcast:65536"]
LIMIT = 120  # seconds of one run: a way that hangs is a figure that is missing, not a benchmark that doesn't end


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mpi.py", description=__doc__)
    parser.add_argument("--lib", metavar="PATH", help="libvma.so, beside which the provider lies; default: the build tree's, or the installed one")
    parser.add_argument("--ranks", metavar="N,N", default="2,4,8", help="numbers of ranks (default %(default)s)")
    parser.add_argument("--ways", metavar="NAME,NAME", default=",".join(WAYS),
                        help=f"of these, and {MPICH}, which is MPICH over UCX (default: %(default)s)")
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="of each (default %(default)s)")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.1, help="of each figure in a round (default %(default)s)")
    parser.add_argument("--picture", metavar="FOLDER", type=Path, help="draw the ratios to vader there, as a heat map (needs python3-matplotlib)")
    args = parser.parse_args(argv)
    args.ranks, args.ways = [int(number) for number in args.ranks.split(",")], args.ways.split(",")
    unknown = set(args.ways) - {*WAYS, MPICH}
    if unknown or args.rounds < 1 or min(args.ranks) < 2:
        parser.error(f"no way {', '.join(sorted(unknown))}" if unknown else "--rounds takes a number from 1 on, --ranks from 2 on")
    return args


def command(way: str, ranks: int) -> list[str]:
    """What starts that many ranks."""
    if way == MPICH:
        return ["mpirun.mpich", "-n", str(ranks)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    crowd = ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []  # with it, ranks are not bound to processors, and yield
    return ["mpirun.openmpi", *root, *crowd, "--timeout", str(LIMIT), "-n", str(ranks), "-x", "FI_PROVIDER_PATH", "-x", "FI_VMA_DIR", *WAYS[way]]


def run(program: Path, way: str, ranks: int, seconds: float, folder: Path) -> dict[str, float]:
    """The figures of one run; none of those that it did not come to."""
    works = (TWO if ranks == 2 else []) + ALL
    argv = [*command(way, ranks), program, str(seconds), *works]
    env = {**os.environ, "FI_PROVIDER_PATH": str(folder), "FI_VMA_DIR": os.environ.get("FI_VMA_DIR", "")}
    done = subprocess.run([str(word) for word in argv], env=env, capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    if done.returncode:
        print(f"\n{way}, {ranks} ranks: status {done.returncode}: {done.stderr.strip().splitlines()[:1]}", file=sys.stderr)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2 and line[0] in works}


def title(work: str, ranks: int) -> str:
    name, size = work.split(":")
    return f"{name} {tables.size(int(size))}, {ranks} ranks"


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    library = find.library(args.lib)
    kinds = [kind for kind in ("openmpi", MPICH) if kind in (MPICH if way == MPICH else "openmpi" for way in args.ways)]
    missing = [name for kind in kinds for name in (f"mpirun.{kind}", f"mpicc.{kind}") if not shutil.which(name)]
    if not library or missing:
        print(f"mpi.py: {', '.join(missing)}: install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev" if missing else "mpi.py: no library: build first, or name one with --lib",
              file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        source = Path(__file__).with_name("mpi_bench.c")
        programs = {kind: find.compiled(f"mpi_bench.{kind}", Path(name), f"mpicc.{kind}", "-O2", "-std=c99", str(source)) for kind in kinds}

        def once(ranks: int, way: str) -> dict[tuple[str, int], float]:
            found = run(programs[MPICH if way == MPICH else "openmpi"], way, ranks, args.seconds, library.parent)
            return {(work, ranks): value for work, value in found.items()}

        seen = turns.measure(args.rounds, args.ranks, args.ways, once, lambda ranks: f"{ranks} ranks")
    middle = dict(sorted(turns.medians(seen).items(), key=lambda item: item[0][1]))
    rows = [["microseconds", *args.ways]]
    rows += [[title(*key), *(f"{ways[way]:.2f}" if way in ways else "-" for way in args.ways)] for key, ways in middle.items()]
    print(tables.text(rows))
    if args.picture and "vader" in args.ways:
        others = [way for way in args.ways if way != "vader"]
        drawn = {key: ways for key, ways in middle.items() if all(way in ways for way in args.ways)}
        ratios = [[ways[way] / ways["vader"] for way in others] for ways in drawn.values()]
        args.picture.mkdir(parents=True, exist_ok=True)
        pictures.heat_map([title(*key) for key in drawn], others, ratios, args.picture / "mpi.png", "times vader's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
