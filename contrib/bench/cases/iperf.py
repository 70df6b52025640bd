# SPDX-License-Identifier: BSD-2-Clause
"""iperf3, one TCP stream."""
from __future__ import annotations

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

RATE = Metric("rate", "bandwidth", "Gbit/s")


class Iperf(Case):
    name = "iperf3"
    title = "iperf3, one stream"
    seconds = 4
    by_hand = "LD_PRELOAD=libvma.so iperf3 -s & LD_PRELOAD=libvma.so iperf3 -c 127.0.0.1 -t 2"
    needs = ("iperf3",)
    metrics = (RATE,)
    targets = (times_better("bandwidth", RATE, KERNEL.key, at_least=2),)
    compare = ((RATE, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        iperf = bench.program("iperf3")
        with bench.server(mode, [iperf, "-s", "-p", str(port)], port):
            output = bench.client(mode, [iperf, "-c", "127.0.0.1", "-p", str(port), "-t", str(seconds), "--json"],
                                  seconds)
        return {RATE.key: parsers.iperf_bandwidth(output)}
