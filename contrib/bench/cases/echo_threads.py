# SPDX-License-Identifier: BSD-2-Clause
"""A server of many threads, each waiting for a socket of its own, and a client that asks one after the other."""
from __future__ import annotations

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, times_better

THREADS = 50
LOOPS = 8
WAITS = {"recv": f"{THREADS} threads in recv()", "poll": f"{THREADS} threads in poll()",
         "poll_two": f"{LOOPS} threads in poll() of two", "epoll": f"{LOOPS} epoll sets"}
WAYS = WAITS | {f"udp_{way}": f"UDP: {text}" for way, text in WAITS.items()}
ASLEEP = Mode("asleep", "without polling", preload=True, env={"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"})
TRIPS = {way: Metric(f"{way}_us", f"{text}, a round trip", "us", lower_is_better=True) for way, text in WAYS.items()}
USED = {way: Metric(f"{way}_cpu_us", f"{text}, processor time of the server", "us a message", lower_is_better=True)
        for way, text in WAYS.items()}


class EchoThreads(Case):
    name = "threads"
    title = "a thread a connection"
    seconds = 4
    rounds = 3
    by_hand = f"echo_threads 10000 {THREADS} {LOOPS}; LD_PRELOAD=libvma.so echo_threads 10000 {THREADS} {LOOPS}"
    helpers = ("echo_threads",)
    modes = (KERNEL, ACCELERATED, ASLEEP)
    metrics = (*TRIPS.values(), *USED.values())
    targets = tuple(times_better(metric.title, metric, KERNEL.key, 0.95) for metric in (*TRIPS.values(), *USED.values()))
    compare = tuple((metric, KERNEL.key) for metric in TRIPS.values())

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        rounds = bench.size(10_000, 4000)
        figures = parsers.json_line(bench.client(mode, [bench.helper("echo_threads"), str(rounds), str(THREADS), str(LOOPS)], 20))
        return {metric.key: float(figures[metric.key]) for metric in self.metrics}
