# SPDX-License-Identifier: BSD-2-Clause
"""Connections that carry a few exchanges and are closed: what is closed before the way to an endpoint was worth it must cost nothing."""
from __future__ import annotations

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, times_better

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
