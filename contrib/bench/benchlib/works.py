# SPDX-License-Identifier: BSD-2-Clause
"""What busy.py runs: each work starts its programs, ends them, and gives the latencies (microseconds) and the number of its messages."""
from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cases import nginx
from cases.sockperf_latency import SockperfLatency

from . import find, parsers, procs

NO_CPUS: procs.Cpus = frozenset()  # whichever the scheduler chooses
ALLOWANCE = 20.0  # seconds beside the measured ones, before a program is ended
THROUGHPUT_BYTES = {"tcp": "1472", "udp": "64"}  # a message; by TCP some hundred of them are one call


@dataclass(frozen=True)
class Run:
    """One run of one mode. `scratch` is empty."""
    env: Mapping[str, str]
    protocol: str
    seconds: int
    scratch: Path
    lib: Path | None

    def client(self, argv: Iterable[str | Path]) -> str:
        return procs.client([*map(str, argv)], NO_CPUS, self.env, self.scratch, self.seconds + ALLOWANCE)


Figures = dict[str, float]  # p50, p99, p99.9 (nan: there is none), messages


@dataclass(frozen=True)
class Work:
    name: str
    run: Callable[[Run], Figures]
    needs: tuple[str, ...]  # programs of the system
    protocols: tuple[str, ...] = ("tcp", "udp")


def program(name: str) -> str:
    found = find.program(name)
    if found is None:
        raise procs.RunError(f"{name} is not installed")
    return str(found)


def sockperf(test: list[str]) -> Callable[[Run], Figures]:
    def run(r: Run) -> Figures:
        tcp = r.protocol == "tcp"
        port = procs.free_port() if tcp else procs.free_udp_ports(1)[0]
        where = ["-i", "127.0.0.1", "-p", str(port), *(["--tcp"] if tcp else [])]
        server = procs.server if tcp else procs.udp_server
        command = program("sockperf")
        with server([command, "server", *where], port if tcp else [port], NO_CPUS, r.env, r.scratch, ALLOWANCE):
            text = r.client([command, *test, *where, "-t", str(r.seconds)])
        found = parsers.sockperf_percentiles(text)
        return {"p50": found[50.0], "p99": found[99.0], "p99.9": found[99.9], "messages": parsers.sockperf_messages(text)}
    return run


def throughput(r: Run) -> Figures:
    """As fast as it goes: its latency is the time that a message takes of the whole. By UDP only what came counts."""
    command = program("sockperf")
    size = ["-m", THROUGHPUT_BYTES[r.protocol], "-i", "127.0.0.1"]
    if r.protocol == "tcp":
        port = procs.free_port()
        with procs.server([command, "server", *size, "--tcp", "-p", str(port)], port, NO_CPUS, r.env, r.scratch, ALLOWANCE):
            messages, seconds = parsers.sockperf_sent(r.client(
                [command, "throughput", *size, "--tcp", "-p", str(port), "-t", str(r.seconds)]))
    else:
        port = procs.free_udp_ports(1)[0]
        with procs.udp_server([command, "server", *size, "-p", str(port)], [port], NO_CPUS, r.env, r.scratch, ALLOWANCE) as end:
            _, seconds = parsers.sockperf_sent(r.client([command, "throughput", *size, "-p", str(port), "-t", str(r.seconds)]))
            messages = parsers.sockperf_received(end())
    return {"p50": 1e6 * seconds / messages, "p99": math.nan, "p99.9": math.nan, "messages": messages}


def threads(count: int) -> Callable[[Run], Figures]:
    def run(r: Run) -> Figures:
        helper = find.helper("echo_load", r.lib)
        if helper is None:
            raise procs.RunError("echo_load is not built (make contrib/bench/echo_load)")
        return {name: float(value) for name, value in
                parsers.json_line(r.client([helper, r.protocol, str(count), str(r.seconds)])).items()}
    return run


def redis(r: Run) -> Figures:
    """8 clients."""
    port = procs.free_port()
    server = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    requests = 20_000 * r.seconds
    with procs.server(server, port, NO_CPUS, r.env, r.scratch, ALLOWANCE):
        text = r.client([program("redis-benchmark"), "-h", "127.0.0.1", "-p", str(port), "-t", "get", "--csv", "-c", "8",
                         "-n", str(requests)])
    milliseconds = parsers.redis_latencies(text)["GET"]
    return {**{name: 1000 * value for name, value in milliseconds.items()}, "p99.9": math.nan, "messages": requests}


def web(r: Run) -> Figures:
    """nginx with two workers, wrk with 8 connections."""
    port = procs.free_port()
    home = nginx.prefix(r.scratch, port)
    with procs.server([program("nginx"), "-p", str(home), "-c", "nginx.conf"], port, NO_CPUS, r.env, r.scratch, ALLOWANCE):
        text = r.client([program("wrk"), "-t", "1", "-c", "8", "--latency", "-d", f"{r.seconds}s",
                         f"http://127.0.0.1:{port}/page.html"])
    return {**parsers.wrk_latencies(text), "p99.9": math.nan, "messages": parsers.wrk_rate(text) * r.seconds}


WORKS = {work.name: work for work in (
    Work("ping-pong", sockperf(["ping-pong", *SockperfLatency.RATE]), ("sockperf",)),
    *(Work(f"{rate}/s", sockperf(["under-load", "--mps", str(rate)]), ("sockperf",)) for rate in (1000, 10_000, 100_000)),
    Work("throughput", throughput, ("sockperf",)),
    *(Work(f"threads-{count}", threads(count), ()) for count in (1, 2, 3, 8)),
    Work("redis", redis, ("redis-server", "redis-benchmark"), ("tcp",)),
    Work("nginx", web, ("nginx", "wrk"), ("tcp",)),
)}


def measure(work: Work, env: Mapping[str, str], protocol: str, seconds: int, lib: Path | None) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return work.run(Run(env, protocol, seconds, Path(folder), lib))
