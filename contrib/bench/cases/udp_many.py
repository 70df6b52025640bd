# SPDX-License-Identifier: BSD-2-Clause
"""10,000 UDP sockets in one process, each used for a moment by another: what they cost to open and to have, and whether
asking for messages gets dearer with their number. How many of them the library had at all is shown beside it."""
from __future__ import annotations

from benchlib import parsers, trace
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Measurements, Metric, Mode, Target, at_most

COUNTS = (10, 1000, 10_000)
ALLOWED = 1.5  # times the cost with the fewest

OPEN = Metric("open_us", "socket() and bind()", "us", lower_is_better=True)
MEMORY = Metric("memory_kib", "RSS of a socket", "KiB", lower_is_better=True)
LIFTED = Metric("lifted", "accelerated", "sockets")
EACH = Metric(f"recv_each_{COUNTS[-1]}_ns", f"{COUNTS[-1]:,} open, idle recv() of each in turn", "ns",
              lower_is_better=True)


def _cost(call: str, count: int) -> Metric:
    what = {"epoll": "idle epoll_wait()", "recv": "idle recv() of ten of them"}[call]
    return Metric(f"{call}_{count}_ns", f"{count:,} open, {what}", "ns", lower_is_better=True)


def _flat(call: str) -> Target:
    """With all sockets open a call costs what it does with few."""
    def limit(results: Measurements) -> float | None:
        with_few = results.median(ACCELERATED.key, _cost(call, COUNTS[0]).key)
        return with_few and ALLOWED * with_few

    metric = _cost(call, COUNTS[-1])
    return at_most(f"{metric.title}, against {ALLOWED:g} x with {COUNTS[0]}", metric, limit)


class UdpMany(Case):
    name = "udp-many"
    title = "10,000 UDP sockets"
    seconds = 3
    by_hand = "udp_many; LD_PRELOAD=libvma.so VMA_SPEC=latency udp_many"
    helpers = ("udp_many",)
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_SPEC": "latency"}))
    metrics = (LIFTED, OPEN, MEMORY, *(_cost(call, count) for call in ("epoll", "recv") for count in COUNTS), EACH)
    targets = (_flat("epoll"), _flat("recv"))
    compare = ((OPEN, KERNEL.key), (_cost("epoll", COUNTS[-1]), KERNEL.key), (_cost("recv", COUNTS[-1]), KERNEL.key),
               (EACH, KERNEL.key))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        output = bench.client(mode, [bench.helper("udp_many"), *map(str, COUNTS)], 10)
        figures = parsers.json_line(output)
        measured = {metric.key: float(figures[metric.key]) for metric in self.metrics if metric is not LIFTED}
        return {**measured, LIFTED.key: trace.udp_receivers(bench.scratch)} if mode.preload else measured
