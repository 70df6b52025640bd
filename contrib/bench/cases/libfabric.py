# SPDX-License-Identifier: BSD-2-Clause
"""Our own message ping-pong and RMA writes through the libfabric API: provider vma against shm and tcp."""
from __future__ import annotations

from dataclasses import replace

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, Case, Metric, Mode, at_most, times_better

SHM = Mode("shm", "libfabric shm", options=("shm",))
TCP = Mode("tcp", "libfabric tcp", options=("tcp",))
VMA = Mode(ACCELERATED.key, "libfabric vma", options=("vma",))

SMALL = Metric("pingpong_8_us", "ping-pong 8 B, half round trip", "us", lower_is_better=True)
LARGE = Metric("pingpong_65536_us", "ping-pong 64 KiB, half round trip", "us", lower_is_better=True)
WRITE_64K = Metric("rma_write_65536_gbs", "RMA write 64 KiB", "GB/s")
WRITE_1M = Metric("rma_write_1048576_gbs", "RMA write 1 MiB", "GB/s")


class Libfabric(Case):
    name = "libfabric"
    title = "FI_EP_MSG ping-pong and RMA"
    seconds = 12
    by_hand = "FI_PROVIDER_PATH=BUILD/.libs fi_bench --provider vma"
    helpers = ("fi_bench",)
    modes = (SHM, TCP, VMA)
    metrics = (SMALL, LARGE, WRITE_64K, WRITE_1M)
    targets = (at_most("ping-pong 8 B", SMALL, 0.29),
               at_most("ping-pong 64 KiB", LARGE, 4.5),
               times_better("RMA write 64 KiB against shm", WRITE_64K, SHM.key, at_least=1),
               times_better("RMA write 1 MiB against shm", WRITE_1M, SHM.key, at_least=1))
    compare = ((SMALL, SHM.key), (SMALL, TCP.key), (LARGE, SHM.key), (WRITE_64K, SHM.key), (WRITE_1M, SHM.key))
    rounds = 3
    counts_connections = False  # the preload library takes no part

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        if mode is VMA and bench.lib:
            mode = replace(mode, env={"FI_PROVIDER_PATH": str(bench.lib.parent)})
        command = [bench.helper("fi_bench"), "--provider", *mode.options, "--cpus", ",".join(map(str, bench.cpus))]
        figures = parsers.json_line(bench.client(mode, command, 10, bench.both_cpus))
        return {metric.key: float(figures[metric.key]) for metric in self.metrics if metric.key in figures}
