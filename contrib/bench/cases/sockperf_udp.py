# SPDX-License-Identifier: BSD-2-Clause
"""sockperf over UDP: ping-pong and throughput, of one socket and of 200 in an epoll set. Of throughput only what the
server received counts: the client is as fast as it can throw messages away."""
from __future__ import annotations

from collections import Counter

from benchlib import parsers, procs, stats
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Measurements, Metric, Mode, times_better

from .sockperf_latency import BLOCKING, LATENCY, SPINNING, SockperfLatency

SECONDS = 1  # each run of a sockperf client takes 2.2 s more, in which it sleeps
SOCKETS = 200


class _Sockperf(Case):
    needs = ("sockperf",)
    rounds = 3
    sockets = 1

    def sockperf(self, bench: Bench, mode: Mode, test: str, size: int, *options: str) -> tuple[str, str]:
        """What client and server of one run said."""
        ports = procs.free_udp_ports(self.sockets)
        if self.sockets == 1:
            where = ["-i", "127.0.0.1", "-p", str(ports[0])]
        else:
            feed = bench.scratch / "feed"
            feed.write_text("".join(f"U:127.0.0.1:{port}\n" for port in ports))
            where = ["-f", str(feed), "-F", "epoll"]
        program = bench.program("sockperf")
        with bench.udp_server(mode, [program, "server", *where, *mode.options], ports) as interrupt:
            client = bench.client(mode, [program, test, *where, *mode.options, "-m", str(size), "-t", str(SECONDS),
                                         *options], SECONDS + 2)
            return client, interrupt()


class _PingPong(_Sockperf):
    """Half round trips of each of `sizes`; the picture has the last one's."""
    modes = (BLOCKING, SPINNING, LATENCY)
    sizes: tuple[int, ...]

    def __init__(self) -> None:
        self.histograms: dict[str, Counter[int]] = {}

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        figures = {}
        log = bench.scratch / "full-log.csv"
        for size in self.sizes:
            self.sockperf(bench, mode, "ping-pong", size, *SockperfLatency.RATE, "--full-log", str(log))
            with log.open() as lines:
                histogram = parsers.sockperf_log(lines)
            log.unlink()
            p50, p999 = (ns / 1000 for ns in stats.percentiles(histogram, (50, 99.9)))
            figures[_p50(size).key] = p50
            figures[_p999(size).key] = p999
        figures["p50"] = p50  # for the picture
        self.histograms.setdefault(mode.key, Counter()).update(histogram)
        return figures

    def finish(self, results: Measurements) -> None:
        results.curves = {mode: stats.curve(histogram) for mode, histogram in self.histograms.items()}


def _p50(size: int) -> Metric:
    return Metric(f"p50_{size}", f"{size} B, half round trip p50", "us", lower_is_better=True)


def _p999(size: int) -> Metric:
    return Metric(f"p99.9_{size}", f"{size} B, half round trip p99.9", "us", lower_is_better=True)


class UdpLatency(_PingPong):
    name = "udp-latency"
    title = "sockperf ping-pong, UDP"
    seconds = 22
    by_hand = SockperfLatency.by_hand.replace("--tcp ", "")
    sizes = (14, 64)
    metrics = (_p50(14), _p999(14), _p50(64), _p999(64))
    targets = tuple(
        times_better(f"{size} B, p50 against the {how} kernel", _p50(size), base.key, at_least=least, aim=aim)
        for size in sizes for how, base, least, aim in (("spinning", SPINNING, 6, 10), ("blocking", BLOCKING, 50, 100)))
    compare = tuple((_p50(size), base.key) for size in sizes for base in (SPINNING, BLOCKING))


class UdpEpollLatency(_PingPong):
    """The spinning kernel calls epoll_wait() without a timeout, again and again."""
    name = "udp-epoll-latency"
    title = f"sockperf ping-pong, UDP, epoll of {SOCKETS} sockets"
    seconds = 11
    by_hand = ("VMA_SPEC=latency LD_PRELOAD=libvma.so sockperf server -f FEED -F epoll & "
               "VMA_SPEC=latency LD_PRELOAD=libvma.so sockperf ping-pong -f FEED -F epoll -m 14 -t 1 --mps 5000000 "
               "# FEED: 200 lines U:127.0.0.1:PORT")
    modes = (BLOCKING, Mode(SPINNING.key, SPINNING.title, options=("--nonblocked", "--timeout", "0")), LATENCY)
    sockets = SOCKETS
    sizes = (14,)
    metrics = (_p50(14), _p999(14))
    targets = (times_better("14 B, p50 against the spinning kernel", _p50(14), SPINNING.key, at_least=5),
               times_better("14 B, p50 against the blocking kernel", _p50(14), BLOCKING.key, at_least=5))
    compare = ((_p50(14), SPINNING.key), (_p50(14), BLOCKING.key))


class _Throughput(_Sockperf):
    sizes: tuple[int, ...]

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        figures: dict[str, float] = {}
        for size in self.sizes:
            client, server = self.sockperf(bench, mode, "throughput", size)
            sent, seconds = parsers.sockperf_sent(client)
            figures[_received(size).key] = parsers.sockperf_received(server) / seconds
            figures[_sent(size).key] = sent / seconds
        return figures


def _received(size: int) -> Metric:
    return Metric(f"received_{size}", f"{size} B, received", "messages/s")


def _sent(size: int) -> Metric:
    return Metric(f"sent_{size}", f"{size} B, sent", "messages/s")


class UdpThroughput(_Throughput):
    name = "udp-throughput"
    title = "sockperf throughput, UDP"
    seconds = 14
    by_hand = ("LD_PRELOAD=libvma.so sockperf server -i 127.0.0.1 & LD_PRELOAD=libvma.so sockperf throughput "
               "-i 127.0.0.1 -m 14 -t 1; kill -INT %1  # the server says what it received")
    sizes = (14, 1472)
    metrics = (_received(14), _sent(14), _received(1472), _sent(1472))
    targets = (times_better("14 B, received", _received(14), KERNEL.key, at_least=8),
               times_better("1472 B, received", _received(1472), KERNEL.key, at_least=5))
    compare = ((_received(14), KERNEL.key), (_received(1472), KERNEL.key))


class UdpEpollThroughput(_Throughput):
    name = "udp-epoll-throughput"
    title = f"sockperf throughput, UDP, epoll of {SOCKETS} sockets"
    seconds = 7
    by_hand = UdpThroughput.by_hand.replace("-i 127.0.0.1", "-f FEED -F epoll")
    sockets = SOCKETS
    sizes = (14,)
    metrics = (_received(14), _sent(14))
    targets = (times_better("14 B, received", _received(14), KERNEL.key, at_least=5),)
    compare = ((_received(14), KERNEL.key),)
