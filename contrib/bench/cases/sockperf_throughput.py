# SPDX-License-Identifier: BSD-2-Clause
"""sockperf throughput over one TCP connection, 64 KiB messages."""
from __future__ import annotations

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

RATE = Metric("rate", "bandwidth", "Gbit/s")


class SockperfThroughput(Case):
    name = "sockperf-throughput"
    title = "sockperf throughput, TCP, 64 KiB"
    seconds = 9
    rounds = 3
    by_hand = ("LD_PRELOAD=libvma.so sockperf server --tcp -i 127.0.0.1 -m 65536 & "
               "LD_PRELOAD=libvma.so sockperf throughput --tcp -i 127.0.0.1 -m 65536 -t 2")
    needs = ("sockperf",)
    metrics = (RATE,)
    targets = (times_better("bandwidth", RATE, KERNEL.key, at_least=2),)
    compare = ((RATE, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        sockperf = bench.program("sockperf")
        common = ["--tcp", "-i", "127.0.0.1", "-p", str(port), "-m", "65536"]
        with bench.server(mode, [sockperf, "server", *common], port):
            output = bench.client(mode, [sockperf, "throughput", *common, "-t", str(seconds)], seconds)
        return {RATE.key: parsers.sockperf_bandwidth(output)}
