# SPDX-License-Identifier: BSD-2-Clause
"""What a process with many connections pays when it makes another one, and what they take while they are idle."""
from __future__ import annotations

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Figure, Measurements, Metric, Mode, Target, at_most

TIMES = (Metric("first_fork_ms", "the first fork", "ms", lower_is_better=True),
         Metric("fork_ms", "further forks", "ms", lower_is_better=True),
         Metric("exec_ms", "fork, exec and wait", "ms", lower_is_better=True),
         Metric("spawn_ms", "posix_spawn and wait", "ms", lower_is_better=True),
         Metric("exit_ms", "fork, exit and wait", "ms", lower_is_better=True))
MEMORY = Metric("shared_kib", "memory of an idle connection, both processes", "KiB", lower_is_better=True)
CPU = Metric("cpu_percent", "processor, all idle, both processes", "%", lower_is_better=True)
CARRIED = 512  # KiB each way
IDLE = 40  # seconds; those that are let go have gone by then


def _twice_the_kernel(metric: Metric) -> Figure:
    """And 10 ms."""
    def limit(results: Measurements) -> float | None:
        kernel = results.median(KERNEL.key, metric.key)
        return None if kernel is None else 2 * kernel + 10
    return limit


def _targets(what: str) -> tuple[Target, ...]:
    return tuple(at_most(f"{metric.title}, {what}", metric, limit=_twice_the_kernel(metric)) for metric in TIMES)


class _Many(Case):
    helpers = ("many_conn",)
    rounds = 3
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_SPEC": "latency"}))
    count = 0

    def run_many(self, bench: Bench, mode: Mode, *how: str) -> dict[str, float]:
        argv = [bench.helper("many_conn"), str(bench.size(self.count, self.count // 10)), *how]
        figures = parsers.json_line(bench.client(mode, argv, self.seconds))
        return {metric.key: figures[metric.key] for metric in self.metrics}


class ManyPlain(_Many):
    name = "many-plain"
    title = "10,000 connections, never used"
    seconds = 5
    by_hand = "many_conn 10000 plain"
    count = 10000
    metrics = TIMES
    targets = _targets("10,000 connections")
    counts_connections = False

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        return self.run_many(bench, mode, "plain")


class FewerPlain(ManyPlain):
    name = "fewer-plain"
    title = "1,000 connections, never used"
    by_hand = "many_conn 1000 plain"
    count = 1000
    targets = _targets("1,000 connections")


class ManyIdle(_Many):
    name = "many-idle"
    only_by_name = True
    title = "10,000 connections, idle after 512 KiB each"
    seconds = 100
    by_hand = f"VMA_SPEC=latency many_conn 10000 busy {CARRIED} {IDLE}"
    count = 10000
    metrics = (*TIMES, MEMORY, CPU)
    targets = (*_targets("10,000 connections"), at_most("each idle connection", MEMORY, limit=64),
               at_most("10,000 idle connections", CPU, limit=1))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        return self.run_many(bench, mode, "busy", str(CARRIED), str(IDLE))


class FewerIdle(ManyIdle):
    name = "fewer-idle"
    title = "1,000 connections, idle after 512 KiB each"
    seconds = 55
    by_hand = f"VMA_SPEC=latency many_conn 1000 busy {CARRIED} {IDLE}"
    count = 1000
    targets = (*_targets("1,000 connections"), at_most("each idle connection", MEMORY, limit=64),
               at_most("1,000 idle connections", CPU, limit=1))
