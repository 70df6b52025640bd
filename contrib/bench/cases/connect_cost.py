# SPDX-License-Identifier: BSD-2-Clause
"""What connect() costs: the first of a process, later ones, and each until the first reply is there."""
from __future__ import annotations

from benchlib import parsers, procs, stats
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, at_most_more

FIRST = Metric("first_connect_us", "first connect", "us", lower_is_better=True)
FIRST_REPLY = Metric("first_reply_us", "first connect and reply", "us", lower_is_better=True)
LATER = Metric("later_connect_us", "later connect", "us", lower_is_better=True)
LATER_REPLY = Metric("later_reply_us", "later connect and reply", "us", lower_is_better=True)
SETTLED = Metric("later_settled_us", "later connect and 65 exchanges", "us", lower_is_better=True)


class ConnectCost(Case):
    name = "connect"
    title = "connect()"
    seconds = 3
    rounds = 3
    by_hand = "idle_conn server PORT & LD_PRELOAD=libvma.so VMA_SPEC=latency VMA_LIFT_AT_CONNECT=0 connect_cost PORT"
    helpers = ("connect_cost", "idle_conn")
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_SPEC": "latency", "VMA_LIFT_AT_CONNECT": "0"}))
    metrics = (FIRST, FIRST_REPLY, LATER, LATER_REPLY, SETTLED)
    targets = (at_most_more("the first of a process, over the kernel's", FIRST, KERNEL.key, limit=2000),
               at_most_more("the first until its reply, over the kernel's", FIRST_REPLY, KERNEL.key, limit=2000),
               at_most_more("later ones, over the kernel's", LATER, KERNEL.key, limit=100),
               at_most_more("later ones until the reply, over the kernel's", LATER_REPLY, KERNEL.key, limit=100))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        processes = bench.size(7, 3)  # each has only one first connect
        port = procs.free_port()
        runs = []
        with bench.server(mode, [bench.helper("idle_conn"), "server", str(port)], port):
            for _ in range(processes):
                runs.append(parsers.json_line(bench.client(mode, [bench.helper("connect_cost"), str(port), "100"], 2)))
        figures = {metric.key: stats.median([run[metric.key] for run in runs]) for metric in self.metrics}
        return {key: value for key, value in figures.items() if value is not None}


class ConnectBeforeFirstByte(ConnectCost):
    """As VMA_SPEC=latency has it: the first message waits until the connection is accelerated, for a millisecond at most."""
    name = "connect-first"
    title = "connect(), accelerated before the first byte"
    by_hand = "idle_conn server PORT & LD_PRELOAD=libvma.so VMA_SPEC=latency connect_cost PORT"
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_SPEC": "latency"}))
    targets = (at_most_more("later ones, over the kernel's", LATER, KERNEL.key, limit=100),
               at_most_more("later ones until the reply, over the kernel's", LATER_REPLY, KERNEL.key, limit=1100))
