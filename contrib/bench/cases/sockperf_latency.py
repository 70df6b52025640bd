# SPDX-License-Identifier: BSD-2-Clause
"""sockperf ping-pong over TCP: the kernel as run by default, the kernel at its best, and accelerated; beside them what
a bare cache line takes between the same two CPUs."""
from __future__ import annotations

from collections import Counter

from benchlib import parsers, procs, stats
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, Case, Measurements, Metric, Mode, at_most, times_better

BLOCKING = Mode("kernel", "kernel, blocking")
SPINNING = Mode("spinning", "kernel, spinning", options=("--nonblocked",))
LATENCY = Mode(ACCELERATED.key, "accelerated", preload=True, env={"VMA_SPEC": "latency"})
BARE = Mode("cacheline", "bare cache line")

P50 = Metric("p50", "half round trip p50", "us", lower_is_better=True)
P99 = Metric("p99", "half round trip p99", "us", lower_is_better=True)
P999 = Metric("p99.9", "half round trip p99.9", "us", lower_is_better=True)


def _near_the_floor(results: Measurements) -> float | None:
    bare = results.median(BARE.key, P50.key)
    return None if bare is None else 2 * bare + 0.1


class SockperfLatency(Case):
    name = "sockperf-latency"
    title = "sockperf ping-pong, TCP, 64 B"
    seconds = 15
    by_hand = ("VMA_SPEC=latency LD_PRELOAD=libvma.so sockperf server --tcp -i 127.0.0.1 & "
               "VMA_SPEC=latency LD_PRELOAD=libvma.so sockperf ping-pong --tcp -i 127.0.0.1 -m 64 -t 2 "
               "--mps 5000000")
    needs = ("sockperf",)
    # Unless told, sockperf has room for 600,000 round trips a second, and gives up when there are more (a round trip of
    # less than 1.7 us). This makes room for 5 million, which nothing here reaches: it never waits to keep to them.
    RATE = ("--mps", "5000000")
    helpers = ("cacheline",)
    modes = (BLOCKING, SPINNING, LATENCY, BARE)
    metrics = (P50, P99, P999)
    targets = (
        times_better("p50 against the spinning kernel", P50, SPINNING.key, at_least=8, aim=15),
        times_better("p50 against the blocking kernel", P50, BLOCKING.key, at_least=50, aim=100),
        at_most("p50 against 2 x bare cache line + 0.1 us", P50, _near_the_floor),
        times_better("p99.9 against the spinning kernel", P999, SPINNING.key, at_least=5),
        times_better("p99.9 against the blocking kernel", P999, BLOCKING.key, at_least=5),
    )
    compare = ((P50, SPINNING.key), (P50, BLOCKING.key), (P999, SPINNING.key))

    def __init__(self) -> None:
        self.histograms: dict[str, Counter[int]] = {}

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        if mode is BARE:
            return self._bare(bench)
        seconds = bench.size(2, 1)
        port = procs.free_port()
        sockperf = bench.program("sockperf")
        common = ["--tcp", "-i", "127.0.0.1", "-p", str(port), *mode.options]
        log = bench.scratch / "full-log.csv"
        with bench.server(mode, [sockperf, "server", *common], port):
            bench.client(mode, [sockperf, "ping-pong", *common, "-m", "64", "-t", str(seconds), *self.RATE,
                                "--full-log", str(log)],
                         seconds)
        with log.open() as lines:
            histogram = parsers.sockperf_log(lines)
        log.unlink()
        self.histograms.setdefault(mode.key, Counter()).update(histogram)
        p50, p99, p999 = (ns / 1000 for ns in stats.percentiles(histogram, (50, 99, 99.9)))
        return {P50.key: p50, P99.key: p99, P999.key: p999}

    @staticmethod
    def _bare(bench: Bench) -> dict[str, float]:
        """Each side writes its own line and reads the other's; 'same_line' is for the record."""
        figures = parsers.json_line(bench.client(BARE, [bench.helper("cacheline"), *map(str, bench.cpus)], 2,
                                                 cpus=bench.both_cpus))
        return {P50.key: figures["own_lines_ns"] / 1000, "same_line": figures["same_line_ns"] / 1000}

    def finish(self, results: Measurements) -> None:
        results.curves = {mode: stats.curve(histogram) for mode, histogram in self.histograms.items()}
