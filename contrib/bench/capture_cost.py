#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What vma_dump costs the programs that it listens to, and whether it keeps up: sockperf and redis-benchmark, both of their sides over
libvma.so, in turns without it and with it. Medians of all rounds: messages a second, and of those with it what they are of those without,
packets captured a second and what vma_dump takes of a processor for each, and how many were dropped."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.dont_write_bytecode = True

from benchlib import find, parsers, procs, works  # noqa: E402
from cases.sockperf_latency import SockperfLatency  # noqa: E402

Rates = Callable[[works.Run], float]
PATIENCE = 10.0  # seconds, for vma_dump to begin and to end


def sockperf(test: str, *more: str) -> Rates:
    """Messages a second of 64 B, or round trips."""
    def run(r: works.Run) -> float:
        command, port = works.program("sockperf"), procs.free_port()
        where = ["--tcp", "-i", "127.0.0.1", "-p", str(port), "-m", "64"]
        with procs.server([command, "server", *where], port, works.NO_CPUS, r.env, r.scratch, works.ALLOWANCE):
            text = r.client([command, test, *where, *more, "-t", str(r.seconds)])
        if test == "throughput":
            messages, seconds = parsers.sockperf_sent(text)
            return messages / seconds
        return parsers.sockperf_rate(text)
    return run


def redis(r: works.Run) -> float:
    """Requests a second of 8 clients, each of which is two messages."""
    port = procs.free_port()
    server = [works.program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with procs.server(server, port, works.NO_CPUS, r.env, r.scratch, works.ALLOWANCE):
        text = r.client([works.program("redis-benchmark"), "-h", "127.0.0.1", "-p", str(port), "-t", "get", "--csv", "-c", "8",
                         "-n", str(500_000 * r.seconds)])
    return parsers.redis_rates(text)["GET"]


WORKS: dict[str, tuple[Rates, tuple[str, ...]]] = {
    "throughput": (sockperf("throughput"), ("sockperf",)),
    "500000/s": (sockperf("under-load", "--mps", "500000", "--reply-every", "1000"), ("sockperf",)),
    "ping-pong": (sockperf("ping-pong", *SockperfLatency.RATE), ("sockperf",)),
    "redis": (redis, ("redis-server", "redis-benchmark")),
}


def processor_time(pid: int) -> float:
    """Seconds that the process has run, by itself and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def listener(args: argparse.Namespace, tool: Path, folder: Path) -> Iterator[dict[str, float]]:
    """A vma_dump of all programs that count in `folder`. Its counts are there once the context has ended."""
    found: dict[str, float] = {}
    command = [str(tool), "-k", str(folder), "-w", str(args.file), "-B", str(args.buffer), "-s", str(args.snap)]
    with (folder / "dump.err").open("w+") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said, env=procs.clean_environment({}))
        try:
            yield found
        finally:
            found["processor"] = processor_time(process.pid)
            process.send_signal(signal.SIGINT)  # it reads first what the programs have left
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said.seek(0)
        found.update(parsers.vma_dump_counts(said.read()))


def run(args: argparse.Namespace, rates: Rates, lib: Path, tool: Path | None) -> dict[str, float]:
    """One run; with `tool` it is listened to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {"LD_PRELOAD": str(lib), "VMA_TRACELEVEL": "none", "VMA_STATS_SHMEM_DIR": str(folder)}
        if args.spec != "none":
            env["VMA_SPEC"] = args.spec
        r = works.Run(env, "tcp", args.seconds, folder, lib)
        if tool is None:
            return {"rate": rates(r)}
        with listener(args, tool, folder) as counts:
            rate = rates(r)
        return {"rate": rate, **counts}


def measure(args: argparse.Namespace, lib: Path, tool: Path) -> list[dict[str, Any]]:
    found = []
    for what in args.what:
        rounds: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
        for number in range(args.rounds):
            print(f"{what}: round {number + 1} of {args.rounds}", file=sys.stderr)
            for mode, runs in rounds.items():
                try:
                    runs.append(run(args, WORKS[what][0], lib, tool if mode == "with" else None))
                except (parsers.ParseError, procs.RunError) as error:
                    print(f"  {mode}: {error}", file=sys.stderr)
        found.append({"what": what, "seconds": args.seconds, **rounds})
        if args.json:
            args.json.write_text(json.dumps({"processors": os.cpu_count(), "load": os.getloadavg()[0], "buffer": args.buffer,
                                             "snap": args.snap, "works": found}, indent=1) + "\n")
    return found


def row(cell: dict[str, Any]) -> str:
    without, attached = cell["without"], cell["with"]
    if not without or not attached:
        return f"{cell['what']:12}  -"
    plain, listened = (median(one["rate"] for one in runs) for runs in (without, attached))
    captured, dropped = (sum(one[name] for one in attached) for name in ("captured", "dropped"))
    processor = sum(one["processor"] for one in attached)
    losers = sum(one["dropped"] != 0 for one in attached)
    share = 100 * dropped / (captured + dropped) if captured + dropped else 0.0
    return (f"{cell['what']:12}{plain:>13,.0f}{listened:>13,.0f}{listened / plain:>8.3f}x{1e6 / listened - 1e6 / plain:>10.3f}"
            f"{captured / len(attached) / cell['seconds']:>15,.0f}{1e6 * processor / max(captured, 1):>13.3f}"
            f"{dropped:>13,.0f} ({share:.2f} %, in {losers} of {len(attached)} runs)")


def table(cells: list[dict[str, Any]]) -> str:
    head = f"{'':12}{'without':>13}{'with':>13}{'':9}{'us more':>10}{'captured/s':>15}{'us of one':>13}{'dropped':>13}"
    return "\n".join([head, *(row(cell) for cell in cells)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Messages a second, medians. 'us more' is the time that one takes more. "
                                     "What is captured are packets, sent and received, at both ends; 'us of one' is vma_dump's processor time for it.")
    parser.add_argument("--lib", help="libvma.so; default: the build tree's, or the installed one")
    parser.add_argument("--what", type=lambda text: text.split(","), default=list(WORKS), metavar="LIST",
                        help=f"of {', '.join(WORKS)}; default all")
    parser.add_argument("--rounds", type=int, default=7, help="default %(default)s")
    parser.add_argument("--seconds", type=int, default=3, help="of each run (default %(default)s)")
    parser.add_argument("--spec", default="latency", help="VMA_SPEC of the programs, or none (default %(default)s)")
    parser.add_argument("--buffer", type=int, default=16384, metavar="KIB", help="vma_dump's -B (default %(default)s)")
    parser.add_argument("--snap", type=int, default=0, metavar="BYTES", help="vma_dump's -s (default: all bytes)")
    parser.add_argument("--file", type=Path, default=Path("/dev/null"), help="vma_dump's -w (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of each run there as well")
    args = parser.parse_args()
    unknown = [what for what in args.what if what not in WORKS]
    if unknown:
        parser.error(f"{', '.join(unknown)} is none of {', '.join(WORKS)}")
    if args.rounds < 1 or args.seconds < 1:
        parser.error("--rounds and --seconds take numbers from 1 on")
    return args


def main() -> int:
    args = arguments()
    lib = find.library(args.lib)
    tool = find.helper("vma_dump", lib) or find.program("vma_dump")
    if lib is None or tool is None:
        sys.exit("capture_cost.py: no libvma.so or no vma_dump: build them, or name the library with --lib")
    missing = {need for what in args.what for need in WORKS[what][1] if find.program(need) is None}
    if missing:
        sys.exit(f"capture_cost.py: not installed: {', '.join(sorted(missing))} (--what leaves out what needs it)")
    cells = measure(args, lib, tool)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(table(cells))
    return 0 if all(len(cell[mode]) == args.rounds for cell in cells for mode in ("without", "with")) else 1


if __name__ == "__main__":
    sys.exit(main())
