# SPDX-License-Identifier: BSD-2-Clause
"""UDP between a program that has the library and one that has not: the library must not be in the way. Counted is what
the receiver got, in recv() and in epoll_wait()."""
from __future__ import annotations

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

WAITS = ("recvfrom", "epoll")
WAYS = {"out": "to a program without", "in": "from a program without"}


def _metric(way: str, wait: str) -> Metric:
    return Metric(f"{way}_{wait}", f"{WAYS[way]}, {wait}", "messages/s")


EVERY = tuple(_metric(way, wait) for way in WAYS for wait in WAITS)


class UdpMixed(Case):
    name = "udp-mixed"
    title = "UDP, 64 B, to and from a program without the library"
    seconds = 4
    rounds = 7  # short ones: what is asked is finer than what one run can tell
    by_hand = ("vma_lat server & LD_PRELOAD=libvma.so vma_lat client --udp --test throughput --wait epoll "
               "--duration 0.3 127.0.0.1  # and the other way round")
    helpers = ("vma_lat",)
    counts_connections = False  # none may be accelerated
    metrics = EVERY
    targets = tuple(times_better(metric.title, metric, KERNEL.key, at_least=0.95) for metric in EVERY)
    compare = tuple((metric, KERNEL.key) for metric in EVERY)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        """Of kernel to kernel there is but one way: its figure stands for both."""
        figures: dict[str, float] = {}
        for wait in WAITS:
            if mode is KERNEL:
                rate = _rate(bench, KERNEL, KERNEL, wait)
                figures.update({_metric(way, wait).key: rate for way in WAYS})
            else:
                figures[_metric("out", wait).key] = _rate(bench, mode, KERNEL, wait)
                figures[_metric("in", wait).key] = _rate(bench, KERNEL, mode, wait)
        return figures


def _rate(bench: Bench, sender: Mode, receiver: Mode, wait: str) -> float:
    seconds = bench.size(3, 2) / 10
    port = procs.free_port()
    program = bench.helper("vma_lat")
    result = bench.scratch / "result.json"
    with bench.server(receiver, [program, "server", "--port", str(port)], port):
        bench.client(sender, [program, "client", "--port", str(port), "--udp", "--test", "throughput", "--wait", wait,
                              "--size", "64", "--duration", str(seconds), "--json", str(result), "127.0.0.1"], seconds)
    return parsers.vma_lat_received_rate(result.read_text())
