# SPDX-License-Identifier: BSD-2-Clause
"""Requests and answers of one size over one TCP connection, one after another: netperf's TCP_RR, by vma_lat (12 bytes are its least), which
waits in recv() or spins.
(TCP_CRR, a connection for each, is `short` with one exchange.)"""
from __future__ import annotations

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, times_better

from .sockperf_latency import SPINNING

SIZES = {12: "12 B", 64: "64 B", 1024: "1 KiB", 16384: "16 KiB", 65536: "64 KiB"}
RATES = {size: Metric(f"rr_{size}", text, "1/s") for size, text in SIZES.items()}


class TcpRr(Case):
    name = "tcp-rr"
    title = "TCP_RR: requests and answers"
    only_by_name = True
    seconds = 8
    by_hand = ("vma_lat server --port PORT & vma_lat client --port PORT --tcp --test ping-pong --wait recvfrom --size 64 --duration 1 "
               "127.0.0.1, and both with LD_PRELOAD=libvma.so")
    helpers = ("vma_lat",)
    modes = (KERNEL, SPINNING, Mode(ACCELERATED.key, ACCELERATED.title, preload=True))
    metrics = tuple(RATES.values())
    targets = tuple(times_better(f"{SIZES[size]} against the {word} kernel", RATES[size], mode.key, at_least)
                    for size in (64, 1024) for word, mode, at_least in (("blocking", KERNEL, 2.4), ("spinning", SPINNING, 10)))
    compare = tuple((metric, mode.key) for metric in RATES.values() for mode in (KERNEL, SPINNING))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        port = procs.free_port()
        result = bench.scratch / "tcp-rr.json"
        figures = {}
        with bench.server(mode, [bench.helper("vma_lat"), "server", "--port", str(port)], port):
            for size, metric in RATES.items():
                bench.client(mode, [bench.helper("vma_lat"), "client", "--port", str(port), "--tcp", "--test", "ping-pong", "--wait",
                                    "spin" if mode is SPINNING else "recvfrom", "--size", str(size), "--warm-up", "100", "--duration", "1",
                                    "--json", str(result), "127.0.0.1"], 2)
                figures[metric.key] = 1e6 / (2 * parsers.vma_lat_half_round_trip(result.read_text()))
        return figures
