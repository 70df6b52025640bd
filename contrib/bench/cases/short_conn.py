# SPDX-License-Identifier: BSD-2-Clause
"""Connections that carry a few exchanges and are closed: what is closed before the way to an endpoint was worth it must cost nothing."""
from __future__ import annotations

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, at_most_more, times_better

EXCHANGES = (1, 2, 4, 16, 20, 40)
PLACES = {"apart": "two processors", "together": "one processor"}
COSTS = {(place, n): Metric(f"{place}_{n}_us", f"{text}, {n} exchange{'s' if n > 1 else ''}", "us a connection", lower_is_better=True)
         for place, text in PLACES.items() for n in EXCHANGES}


class ShortConnections(Case):
    name = "short"
    title = "connect(), a few exchanges, close()"
    seconds = 3
    rounds = 3
    words = " ".join(map(str, EXCHANGES))
    by_hand = f"short_conn 400 {words}; LD_PRELOAD=libvma.so short_conn 400 {words}"
    helpers = ("short_conn",)
    counts_connections = False  # a line for each in the log would be most of what it costs
    modes = (KERNEL, ACCELERATED)
    metrics = tuple(COSTS.values())
    targets = tuple(times_better(metric.title, metric, KERNEL.key, 0.98 if n <= 16 else 0.95) for (_, n), metric in COSTS.items())
    compare = tuple((metric, KERNEL.key) for metric in COSTS.values())

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        words = [bench.helper("short_conn"), str(bench.size(400, 200)), *map(str, EXCHANGES)]
        cpus = {"apart": bench.server_cpu | bench.client_cpu, "together": bench.client_cpu}
        figures = {place: parsers.json_line(bench.client(mode, words, 20, cpus[place])) for place in PLACES}
        return {metric.key: float(figures[place][str(n)]) for (place, n), metric in COSTS.items()}


MOVE_OR_WAIT = ("recvfrom", "sendto", "sched_yield", "futex", "poll", "ppoll", "epoll_wait", "epoll_pwait")
CALLS = Metric("calls", "system calls a connection", "calls", lower_is_better=True)


class ConnectionCalls(Case):
    """Of the two ends together, beside those that wait, which vary, and those by which the program's own bytes move."""
    name = "connection-calls"
    title = "a connection of 40 exchanges, accelerated at once"
    only_by_name = True  # strace makes the machine busy
    seconds = 6
    rounds = 1
    by_hand = "VMA_LIFT_AFTER=1 LD_PRELOAD=libvma.so strace -f -c short_conn 240 40, less the same with 40"
    needs = ("strace",)
    helpers = ("short_conn",)
    counts_connections = False
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_LIFT_AFTER": "1"}))
    metrics = (CALLS,)
    targets = (at_most_more("over the kernel's", CALLS, KERNEL.key, limit=10),)
    compare = ((CALLS, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        few, many = 40, 240
        counts = [self._calls(bench, mode, connections) for connections in (few, many)]
        return {CALLS.key: (counts[1] - counts[0]) / (many - few)}

    @staticmethod
    def _calls(bench: Bench, mode: Mode, connections: int) -> int:
        report = bench.scratch / "calls"
        bench.client(mode, [bench.program("strace"), "-f", "-c", "-U", "name,calls", "-o", str(report), bench.helper("short_conn"),
                            str(connections), "40"], 10, bench.both_cpus)
        return parsers.strace_calls(report.read_text(), but=MOVE_OR_WAIT)
